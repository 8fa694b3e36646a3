"""What every Python client here answers to a server's questions, and how it tells what it saw: one JSON line a job."""

import json
import time

asked: list[str] = []


def fill(schema: dict | None) -> dict:
    """Fills in a form: each property that it must have."""
    content = {}
    for key in (schema or {}).get("required", []):
        rule = schema["properties"][key]
        kinds = {"boolean": True, "integer": rule.get("minimum", 1), "number": rule.get("minimum", 1), "array": []}
        content[key] = rule.get("default", kinds.get(rule.get("type"), (rule.get("enum") or ["Ann"])[0]))
    return content


def say(line: dict) -> None:
    print(json.dumps(line), flush=True)


def words(content: list, is_error: bool) -> dict:
    return {"text": " ".join(getattr(block, "text", "") or "" for block in content), "isError": bool(is_error)}


async def each_job(jobs: list[dict], call) -> None:
    """Runs the jobs one after the other; `call(job)` gives what is told of one."""
    for job in jobs:
        asked.clear()
        began = time.monotonic()
        try:
            seen = await call(job)
        except Exception as error:  # noqa: BLE001  whatever a client raises is what is told
            facts = getattr(error, "error", error)
            seen = {"error": {"name": type(error).__name__, "code": getattr(facts, "code", None), "message": str(error)[:400]}}
        say({"job": job["name"], **seen, "asked": list(asked), "ms": round((time.monotonic() - began) * 1000)})
