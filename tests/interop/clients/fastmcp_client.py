"""fastmcp_client.py TARGET JOBS [--handle]: FastMCP with fastmcp-tasks. TARGET is a URL, or a command as a JSON list.

Without --handle the task is driven behind an ordinary call_tool, as an application would do that knows nothing of tasks
(the harness sees the task on the wire); with it call_tool_task gives the handle, which is then driven to its end.
"""

import asyncio
import json
import os
import sys

import fastmcp_tasks  # noqa: F401  importing it is what turns tasks on in the client
import mcp_types as types
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp_tasks import call_tool_task

from answers import asked, each_job, fill, words


async def elicit(_message, _response_type, params, _context):
    asked.append("elicitation")
    return fill(params.requested_schema)


async def sample(_messages, _params, _context):
    asked.append("sampling")
    return "Rain is likely"


def server(target: str):
    if not target.startswith("["):
        return target
    command, *args = json.loads(target)
    return StdioTransport(command=command, args=args, env=dict(os.environ), keep_alive=False)


async def main(target: str, jobs: list[dict], by_handle: bool) -> None:
    async with Client(server(target), elicitation_handler=elicit, sampling_handler=sample) as client:

        async def call(job):
            if not by_handle:
                result = await client.call_tool(job["tool"], job["arguments"], raise_on_error=False)
                return words(result.content, result.is_error)
            task = await call_tool_task(client, job["tool"], job["arguments"])
            result = await task.result()
            last = await task.status()
            return {"taskId": task.task_id, "statuses": [last.status], **words(result.content, result.is_error)}

        await each_job(jobs, call)


given = [word for word in sys.argv[1:] if word != "--handle"]
asyncio.run(main(given[0], json.loads(given[1]), "--handle" in sys.argv))
