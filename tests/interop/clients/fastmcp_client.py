"""fastmcp_client.py URL TOOL ARGUMENTS-JSON [--handle]: FastMCP with fastmcp-tasks calls a tool and prints one JSON line.

Without --handle the task is driven behind an ordinary call_tool, as an application would do that knows nothing of tasks
(the harness sees the task on the wire); with it call_tool_task gives the handle, which is then driven to its end.
"""

import asyncio
import json
import sys

import fastmcp_tasks  # noqa: F401  importing it is what turns tasks on in the client
from fastmcp import Client
from fastmcp_tasks import call_tool_task


async def drive(url: str, tool: str, arguments: dict, by_handle: bool) -> dict:
    async with Client(url) as client:
        if not by_handle:
            result = await client.call_tool(tool, arguments, raise_on_error=False)
            return {"text": result.content[0].text, "isError": result.is_error}
        task = await call_tool_task(client, tool, arguments)
        first = await task.status()
        result = await task.result()
        last = await task.status()
        return {
            "taskId": task.task_id,
            "statuses": [first.status, last.status],
            "text": result.content[0].text,
            "isError": result.is_error,
        }


words = [w for w in sys.argv[1:] if w != "--handle"]
print(json.dumps(asyncio.run(drive(words[0], words[1], json.loads(words[2]), "--handle" in sys.argv))))
