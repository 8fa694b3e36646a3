"""py2_server.py PORT | --stdio: a server of the Python SDK 2. It speaks every revision; Raincheck is told to speak 2026-07-28
with it, where what it asks is a result that the client answers in a retry."""

import asyncio
import sys
from typing import Annotated

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel

where = sys.argv[1]
server = MCPServer("py2")


class Name(BaseModel):
    name: str


def ask_name() -> Elicit[Name]:
    return Elicit("Your name?", Name)


@server.tool()
def greet(name: str) -> str:
    """Answer at once."""
    return f"Hello, {name}!"


@server.tool()
async def slow(seconds: float, ctx: Context) -> str:
    """Sleep with progress."""
    await ctx.report_progress(1, 2, "half")
    await asyncio.sleep(seconds)
    return f"slept {seconds}"


@server.tool()
def boom() -> CallToolResult:
    """Fail."""
    return CallToolResult(content=[TextContent(type="text", text="boom")], is_error=True)


@server.tool()
async def ask(who: Annotated[Name, Resolve(ask_name)]) -> str:
    """Elicit a name."""
    return f"accept {who.name}"


if where == "--stdio":
    server.run("stdio")
else:
    server.run("streamable-http", host="127.0.0.1", port=int(where))
