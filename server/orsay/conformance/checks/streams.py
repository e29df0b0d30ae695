"""The bytes of an answer stream."""

from __future__ import annotations

import json
import re

from orsay.conformance.check import standard
from orsay.conformance.failures import NotSupported, expect
from orsay.conformance.strict import read_json
from orsay.conformance.target import Reply, Target

_TASK_ID = re.compile(r"[0-9a-f]{32}")
_FIELD = re.compile(rb"(event|data): ?.*|:.*", re.DOTALL)


@standard(
    "stream-headers",
    "5.1",
    "A call answers with text/event-stream and headers that keep proxies from buffering.",
)
async def stream_headers(target: Target) -> None:
    async with target.session() as session:
        headers = (await session.call("no such tool", {})).headers
        expect(
            headers["content-type"].startswith("text/event-stream"),
            f"the type is {headers['content-type']!r}",
        )
        expect(
            "no-cache" in headers.get("cache-control", ""),
            f"cache-control is {headers.get('cache-control')!r}",
        )
        expect(
            headers.get("x-accel-buffering") == "no",
            f"x-accel-buffering is {headers.get('x-accel-buffering')!r}",
        )


@standard(
    "stream-bytes",
    "5.1",
    "A stream holds event and data lines, CRLF ends, and a blank line after each event.",
)
async def stream_bytes(target: Target) -> None:
    name, value = await target.probe.working()
    async with target.session() as session, target.raw() as wire:
        await session.get(target.path("/prompt"))
        reply = await session.raw_call(wire, name, value)
        expect(reply.status == 200, f"answered {reply.status}")
        expect(reply.body.endswith(b"\r\n\r\n"), f"the stream ends with {reply.body[-40:]!r}")
        expect(b"\n" not in reply.body.replace(b"\r\n", b""), "a line ends with a bare LF")
        expect(b"\r" not in reply.body.replace(b"\r\n", b""), "a line ends with a bare CR")
        for line in reply.body.split(b"\r\n"):
            expect(not line or _FIELD.fullmatch(line), f"a line is {line[:80]!r}")


@standard("stream-events", "5.2", "A stream is task_id, then any chunks, then one end, and nothing after it.")
async def stream_events(target: Target) -> None:
    name, value = await target.probe.working()
    async with target.session() as session:
        _whole(await session.call(name, value))
    for reply in (await target.probe.replies()).values():
        _whole(reply)


def _whole(reply: Reply) -> None:
    kinds = reply.kinds
    expect(reply.events and reply.events[0].event == "task_id", f"the events are {kinds}")
    expect(kinds[-1] in ("end", "error") and kinds.count(kinds[-1]) == 1, f"the events are {kinds}")
    expect(reply.events[-1].event == kinds[-1], f"after {kinds[-1]} comes {reply.events[-1].event}")
    expect(set(kinds[1:-1]) <= {"chunk"}, f"the events are {kinds}")


@standard("task-id", "5.2", "A task id is 32 hexadecimal digits in lower case.")
async def task_id(target: Target) -> None:
    async with target.session() as session:
        found = (await session.call("no such tool", {})).task_id
        expect(_TASK_ID.fullmatch(found), f"the task id is {found!r}")


@standard(
    "compact-result", "5.1", "The result is compact JSON, so that white space occurs inside strings only."
)
async def compact_result(target: Target) -> None:
    name, value = await target.probe.working()
    async with target.session() as session:
        reply = await session.call(name, value)
        text = "".join(reply.pieces)
        compact = json.dumps(read_json(text, "the result"), separators=(",", ":"), ensure_ascii=False)
        expect(len(text) <= len(compact) + 16, f"the result is {text[:120]!r}")


@standard("refusal-stream", "5.2", "A refused call has the stream of a call that ran: task_id, then end.")
async def refusal_stream(target: Target) -> None:
    async with target.session() as session:
        kinds = [event.event for event in (await session.call("no such tool", {})).events]
        expect(kinds == ["task_id", "end"], f"the events are {kinds}")


@standard("keep-alive", "1", "One connection serves request after request, streams included.")
async def keep_alive(target: Target) -> None:
    async with target.session() as session, target.raw() as wire:
        await session.get(target.path("/prompt"))
        for _ in range(3):
            reply = await session.raw_call(wire, "no such tool", {})
            expect(reply.status == 200, f"a call answered {reply.status}")
            health = await wire.request("GET", "/health")
            expect(health.status == 200, f"/health answered {health.status}")


@standard("line-length", "5.3", "No line of a stream is longer than 64 KiB, which some clients refuse.")
async def line_length(target: Target) -> None:
    echo = await target.probe.echo()
    async with target.session() as session:
        reply = await session.call(echo.tool, {echo.field: echo.cut("word " * 60_000)})
        longest = max(len(line) for line in reply.body.split(b"\r\n"))
        expect(longest <= 64 * 1024, f"the longest line has {longest} bytes")


@standard("head-of-call", "3.2", "GET on /call and POST on /prompt answer 405.")
async def methods(target: Target) -> None:
    async with target.session() as session:
        got = await session.get(target.path("/call"))
        expect(got.status_code == 405, f"GET /call answered {got.status_code}")
        posted = await session.post(target.path("/prompt"))
        expect(posted.status_code == 405, f"POST /prompt answered {posted.status_code}")


@standard(
    "message-block-types", "4", "message_block_types names the blocks that messages to the server may hold."
)
async def message_block_types(target: Target) -> None:
    listed = target.tools.get("message_block_types")
    if listed is None:
        raise NotSupported("servers before openreward 0.1.157 and ors-sdk have no message_block_types")
    expect({"text", "image"} <= set(listed), f"it is {listed!r}")
