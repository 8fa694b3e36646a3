"""limited_py.py URL JOB py1|py2: a client of the Python SDK that gives each request up after JOB.limit ms, or each stream
after JOB.silence ms in which nothing came. JOB: { tool, arguments, limit or silence, progress }. It does what the results tell
it, as agent.mjs does."""

import asyncio
import datetime
import json
import re
import sys
import time


def next_call(said):
    first = re.search(r'call `([^`]+)` with (\{"job":"[^"]+"\})', said)
    if first:
        return first[1], json.loads(first[2])
    again = re.search(r"^Job (\S+) .*Call `([^`]+)` with the same job again", said, re.S)
    return (again[2], {"job": again[1]}) if again else None


async def pursue(call, job):
    step, calls = (job["tool"], job["arguments"]), []
    while step:
        calls.append(step[0])
        text, is_error = await call(*step)
        step = next_call(text)
    return {"text": text, "isError": is_error, "calls": calls}


def text_of(result):
    return "\n".join(block.text for block in result.content if block.type == "text")


async def told(*progress):
    print("progress", *progress, file=sys.stderr)


async def main(url, job, kind):
    seconds = job["limit"] / 1000 if "limit" in job else None
    silence = job["silence"] / 1000 if "silence" in job else 300
    progress = told if job.get("progress") else None
    if kind == "py2":
        import httpx2
        from mcp.client.client import Client
        from mcp.client.streamable_http import streamable_http_client

        http = httpx2.AsyncClient(timeout=httpx2.Timeout(30, read=silence))
        async with http, Client(streamable_http_client(url, http_client=http)) as client:

            async def call(name, arguments):
                result = await client.call_tool(
                    name, arguments, read_timeout_seconds=seconds, progress_callback=progress
                )
                return text_of(result), bool(result.is_error)

            return await pursue(call, job)
    import httpx
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    http = httpx.AsyncClient(timeout=httpx.Timeout(30, read=silence))
    async with (
        http,
        streamable_http_client(url, http_client=http) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        await session.initialize()

        async def call(name, arguments):
            limit = None if seconds is None else datetime.timedelta(seconds=seconds)
            result = await session.call_tool(
                name, arguments, read_timeout_seconds=limit, progress_callback=progress
            )
            return text_of(result), bool(result.isError)

        return await pursue(call, job)


def cause(error):
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return {"code": getattr(getattr(error, "error", error), "code", None), "message": str(error)[:400]}


began = time.monotonic()
try:
    said = asyncio.run(main(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]))
except BaseException as error:
    said = {"error": cause(error)}
print(json.dumps({**said, "ms": round((time.monotonic() - began) * 1000)}))
