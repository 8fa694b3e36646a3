"""py1_client.py TARGET JOBS: the client of the Python SDK v1. TARGET is a URL, or a command as a JSON list."""

import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from answers import asked, each_job, fill, words


async def elicit(_context, params):
    asked.append("elicitation")
    return types.ElicitResult(action="accept", content=fill(params.requestedSchema))


async def sample(_context, _params):
    asked.append("sampling")
    answer = types.TextContent(type="text", text="Rain is likely")
    return types.CreateMessageResult(role="assistant", model="none", content=answer)


def connect(target: str):
    if not target.startswith("["):
        return streamable_http_client(target)
    command, *args = json.loads(target)
    return stdio_client(StdioServerParameters(command=command, args=args, env=dict(os.environ)))


async def main(target: str, jobs: list[dict]) -> None:
    async with connect(target) as streams:
        async with ClientSession(streams[0], streams[1], sampling_callback=sample, elicitation_callback=elicit) as session:
            await session.initialize()

            async def call(job):
                result = await session.call_tool(job["tool"], job["arguments"])
                return words(result.content, result.isError)

            await each_job(jobs, call)


asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
