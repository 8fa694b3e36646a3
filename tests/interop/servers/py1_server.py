"""py1_server.py PORT | --stdio: a plain server of the Python SDK v1, the one most Python servers in the wild use.

Its quirks are the point: elicitation comes on the stream of the call, sampling on the GET stream with nothing that names
the call, lines end with CRLF, log messages come unasked.
"""

import asyncio
import sys

from mcp.server.fastmcp import Context, FastMCP
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel

where = sys.argv[1]
server = FastMCP("py1", host="127.0.0.1", port=int(where) if where.isdigit() else 8000)


class Name(BaseModel):
    name: str


@server.tool()
def quick(x: int = 1) -> int:
    """Answer at once."""
    return x + 1


@server.tool()
async def slow(seconds: float, ctx: Context) -> str:
    """Sleep with progress and log messages."""
    steps = max(1, int(seconds))
    for step in range(steps):
        await ctx.report_progress(step, steps, f"step {step}")
        await ctx.info(f"log {step}")
        await asyncio.sleep(seconds / steps)
    return f"slept {seconds}"


@server.tool()
def boom() -> str:
    """Raise."""
    raise ValueError("boom")


@server.tool()
async def ask(ctx: Context) -> str:
    """Elicit a name."""
    answer = await ctx.elicit(message="Your name?", schema=Name)
    return f"{answer.action} {getattr(answer, 'data', None)}"


@server.tool()
async def sample(ctx: Context) -> str:
    """Ask the model."""
    question = SamplingMessage(role="user", content=TextContent(type="text", text="hi"))
    answer = await ctx.session.create_message(messages=[question], max_tokens=10)
    return str(answer.content)


server.run("stdio" if where == "--stdio" else "streamable-http")
