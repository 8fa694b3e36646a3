"""py2_client.py TARGET JOBS: the client of the Python SDK 2, as it is: it tries `server/discover` first, and knows
multi round-trip results but no tasks. TARGET is a URL, or a command as a JSON list."""

import asyncio
import json
import os
import sys

import mcp_types as types
from mcp import StdioServerParameters
from mcp.client.client import Client

from answers import asked, each_job, fill, words


async def elicit(_context, params):
    asked.append("elicitation")
    return types.ElicitResult(action="accept", content=fill(params.requested_schema))


async def sample(_context, _params):
    asked.append("sampling")
    answer = types.TextContent(type="text", text="Rain is likely")
    return types.CreateMessageResult(role="assistant", model="none", content=answer)


def server(target: str):
    if not target.startswith("["):
        return target
    command, *args = json.loads(target)
    return StdioServerParameters(command=command, args=args, env=dict(os.environ))


async def main(target: str, jobs: list[dict]) -> None:
    async with Client(server(target), elicitation_callback=elicit, sampling_callback=sample) as client:

        async def call(job):
            result = await client.call_tool(job["tool"], job["arguments"])
            return words(result.content, result.is_error)

        await each_job(jobs, call)


asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
