"""server.py PORT: a real Tasks server (FastMCP), the control of this harness: every client that knows tasks must be ok.
It stands where Raincheck and its upstream stand otherwise."""

import asyncio
import sys
from datetime import timedelta

from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension
from mcp.shared.exceptions import MCPError

server = FastMCP("control")
server.add_extension(TasksExtension())


def tool(name: str, mode: str):
    if mode == "forbidden":
        return server.tool(name=name)
    return server.tool(name=name, task=TaskConfig(mode=mode, poll_interval=timedelta(milliseconds=300)))


@tool("greet", "forbidden")
async def greet(name: str) -> str:
    return f"Hello, {name}!"


@tool("slow_compute", "optional")
async def slow_compute(seconds: float, label: str = "result") -> str:
    await asyncio.sleep(seconds)
    return f"Computed {label} in {seconds}s"


@tool("failing_job", "required")
async def failing_job() -> str:
    await asyncio.sleep(1)
    raise ToolError("The job failed")


@tool("protocol_error_job", "optional")
async def protocol_error_job() -> str:
    await asyncio.sleep(1)
    raise MCPError(code=-32603, message="The worker crashed")


server.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]))
