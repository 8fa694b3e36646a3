"""limited_py.py URL JOB py1|py2: a client of the Python SDK that gives each request up after JOB.limit ms. JOB: { tool,
arguments, limit }. It does what the results tell it, as agent.mjs does."""

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


async def main(url, job, kind):
    seconds = job["limit"] / 1000
    if kind == "py2":
        from mcp.client.client import Client

        async with Client(url) as client:

            async def call(name, arguments):
                result = await client.call_tool(name, arguments, read_timeout_seconds=seconds)
                return text_of(result), bool(result.is_error)

            return await pursue(call, job)
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    async with streamable_http_client(url) as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()

        async def call(name, arguments):
            limit = datetime.timedelta(seconds=seconds)
            result = await session.call_tool(name, arguments, read_timeout_seconds=limit)
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
