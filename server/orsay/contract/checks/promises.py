"""What Orsay promises beyond the standard. Other servers are right without these."""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import Sequence
from typing import Any

from orsay_protocol.headers import FAULT, IDEMPOTENCY_KEY, SECRETS, SESSION_ID
from orsay_protocol.sse import Decoder

from orsay.contract.inputs import fitting
from orsay.contract.model import NotSupported, expect, promise
from orsay.contract.target import Target, TargetSession, fresh_sid

_WHITE_SPACE = " \t\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000"


@promise(
    "D1",
    "no-leading-space",
    "No data value of a stream starts with white space, which released clients strip.",
)
async def no_leading_space(target: Target) -> None:
    name, field = await target.repeating()
    async with target.session() as session:
        for space in _WHITE_SPACE:
            for phase in range(3):
                text = "x" * phase + space * 30_000 + (space + "ab") * 12_000
                reply = await session.call(name, {field: text})
                result = reply.result
                got = "".join(block.get("text", "") for block in result["output"]["blocks"])
                expect(text in got, f"{len(text)} characters of {space!r} sent, {len(got)} came back")
                data = [event.data for event in reply.events if event.event in ("chunk", "end")]
                stripped = [value for value in data if value != value.lstrip()]
                expect(not stripped, f"a data value starts with {stripped[:1]!r:.20}")


@promise(
    "D2", "idempotency-key", "A call sent twice with one Idempotency-Key runs once and answers the same."
)
async def idempotency_key(target: Target) -> None:
    name, value = await target.working()
    async with target.session() as session:
        headers = {IDEMPOTENCY_KEY: uuid.uuid4().hex}
        first, second = await asyncio.gather(*(session.call(name, value, headers=headers) for _ in range(2)))
        third = await session.call(name, value, headers=headers)
        expect(first.task_id == second.task_id == third.task_id, "the same key got several task ids")
        expect(first.result == second.result == third.result, "the same key got several results")
        other = await session.call(name, value, headers={IDEMPOTENCY_KEY: uuid.uuid4().hex})
        expect(other.task_id != first.task_id, "another key got the same task id")


@promise("D4", "no-call-after-finish", "After finished is true the episode takes no more calls.")
async def no_call_after_finish(target: Target) -> None:
    probe = await target.probe()
    if probe.finishing is None:
        raise NotSupported("no tool of this environment ends the episode with an input made from its schema")
    name, value = probe.finishing
    async with target.session() as session:
        expect(
            (await session.call(name, value)).result["output"]["finished"] is True,
            f"{name} no longer finishes",
        )
        for later in await asyncio.gather(*(session.call(name, value) for _ in range(4))):
            expect(later.result.get("reason") == "episode_finished", f"a later call answers {later.result}")


@promise("D5", "own-session-only", "A result is read by task_id within its own session and through no other.")
async def own_session_only(target: Target) -> None:
    name, value = await target.working()
    async with target.session() as session, target.session() as other:
        first = await session.call(name, value)
        expect(
            (await session.call(name, value, task_id=first.task_id)).result == first.result,
            "its own cannot read it",
        )
        foreign = await other.call(name, value, task_id=first.task_id)
        kinds = [event.event for event in foreign.events]
        expect("end" not in kinds and "error" in kinds, f"another session reads it: {foreign.body[:200]!r}")


@promise("L1", "create-twice", "The same /create twice answers 200 with the id, another body 409.")
async def create_twice(target: Target) -> None:
    async with target.session() as session:
        again = await session.post("/create", target.task_source())
        expect(again.status_code == 200, f"the same body answered {again.status_code}: {again.text[:200]}")
        expect(again.json() == {"sid": session.sid}, f"the same body answered {again.text[:200]}")
        other = await session.post("/create", {"task_spec": {"other": 1}, "env_name": target.env})
        expect(other.status_code == 409, f"another body answered {other.status_code}: {other.text[:200]}")
        expect((await session.post("/ping")).status_code == 200, "the session is gone afterwards")


@promise("L1", "create-at-once", "Several /create of one session at the same time make one session.")
async def create_at_once(target: Target) -> None:
    session = TargetSession(target, await target.new_sid())
    answers = await asyncio.gather(*(session.post("/create", target.task_source()) for _ in range(6)))
    codes = [answer.status_code for answer in answers]
    await session.post("/delete")
    expect(codes == [200] * 6, f"they answered {codes}")


@promise(
    "L2", "delete-at-once", "Several /delete at once, right after /create, all answer 200 and leave nothing."
)
async def delete_at_once(target: Target) -> None:
    async with target.session() as session:
        answers = await asyncio.gather(*(session.post("/delete") for _ in range(4)))
        expect([answer.status_code for answer in answers] == [200] * 4, "a /delete was refused")
        expect((await session.post("/ping")).status_code in (404, 410), "the session is still there")


@promise(
    "L4",
    "gone",
    "A deleted session answers 410 and says that it was deleted; one that never was answers 404.",
)
async def gone(target: Target) -> None:
    async with target.session() as session:
        await session.post("/delete")
        for answer in (await session.post("/ping"), await session.get(target.path("/prompt"))):
            expect(answer.status_code == 410, f"{answer.request.url.path} answered {answer.status_code}")
            expect("deleted" in answer.json()["detail"], f"the detail is {answer.json()['detail']!r}")
            expect(answer.headers.get(FAULT) == "session_gone", f"{FAULT} is {answer.headers.get(FAULT)!r}")
        called = await session.call("no such tool", {})
        expect(called.status == 410, f"/call answered {called.status}")
    never = await TargetSession(target, fresh_sid()).post("/ping")
    expect(never.status_code == 404, f"one that never was answered {never.status_code}")


@promise("S1", "key-needed", "With keys, every route but /health and /ready needs one.")
async def key_needed(target: Target) -> None:
    if target.api_key is None:
        raise NotSupported("no key was given with --api-key")
    async with target.raw() as wire:
        for path in ("/list_environments", target.path("/tools"), target.path("/splits"), "/openapi.json"):
            for key in ("", "wrong", target.api_key + "x", target.api_key[:-1]):
                reply = await wire.request("GET", path, {"X-API-Key": key})
                expect(reply.status == 401, f"{path} with a wrong key answered {reply.status}")
            bearer = {"X-API-Key": "", "Authorization": f"Bearer {target.api_key}"}
            reply = await wire.request("GET", path, bearer)
            expect(reply.status == 200, f"{path} with a bearer token answered {reply.status}")
        for path in ("/health", "/ready"):
            reply = await wire.request("GET", path, {"X-API-Key": ""})
            expect(reply.status == 200, f"{path} without a key answered {reply.status}")


@promise("S3", "bad-secrets", "X-Secrets that cannot be decoded answers 400 and is not repeated.")
async def bad_secrets(target: Target) -> None:
    for value in ("hush hush", "aHVzaA==", "W10=", "eyJhIjogMX0="):
        session = TargetSession(target, await target.new_sid())
        answer = await session.post("/create", target.task_source(), {SECRETS: value})
        await session.post("/delete")
        expect(answer.status_code == 400, f"{value!r} answered {answer.status_code}: {answer.text[:200]}")
        expect(
            value not in answer.text and "hush" not in answer.text,
            f"the answer repeats it: {answer.text[:200]}",
        )


@promise("S5", "tables-only", "Names are looked up in tables: paths, dots and code in them find nothing.")
async def tables_only(target: Target) -> None:
    async with target.session() as session:
        for name in (
            "__dict__",
            "task_spec",
            "secrets",
            "a.b",
            "../x",
            "tools",
            "%s",
            "{0}",
            "_private",
            "\x00",
        ):
            result = (await session.call(name, {})).result
            expect(result.get("reason") == "not_found", f"{name!r} answers {result}")
        for sid in ("../" + session.sid, session.sid + "x", session.sid[:-1], "*", "%00"):
            answer = await target.post("/ping", headers={SESSION_ID: sid})
            expect(answer.status_code == 404, f"the session id {sid!r} answered {answer.status_code}")


@promise(
    "C1",
    "body-secrets",
    "POST /create takes secrets in its body too, as clients up to openreward 0.1.62 send them.",
)
async def body_secrets(target: Target) -> None:
    session = TargetSession(target, await target.new_sid())
    body = {**target.task_source(), "secrets": {"some_key": "some value", "api_key": None}}
    answer = await session.post("/create", body)
    await session.post("/delete")
    expect(answer.status_code == 200, f"answered {answer.status_code}: {answer.text[:200]}")


@promise("C1", "plain-secrets", "X-Secrets may hold plain strings.")
async def plain_secrets(target: Target) -> None:
    session = TargetSession(target, await target.new_sid())
    value = base64.b64encode(b'{"some_key": "some value"}').decode()
    answer = await session.post("/create", target.task_source(), {SECRETS: value})
    await session.post("/delete")
    expect(answer.status_code == 200, f"answered {answer.status_code}: {answer.text[:200]}")


@promise("C5", "json-session", "POST /create_session without an Accept for streams answers with JSON.")
async def json_session(target: Target) -> None:
    for accept in ("*/*", "application/json"):
        answer = await target.post("/create_session", headers={"Accept": accept})
        kind = answer.headers.get("content-type", "")
        expect(kind.startswith("application/json"), f"Accept {accept}: the type is {kind!r}")
        expect(list(answer.json()) == ["sid"], f"Accept {accept}: answered {answer.text[:200]}")
    answer = await target.post("/create_session", headers={"Accept": "application/json, text/event-stream"})
    expect(
        [event.event for event in Decoder().feed(answer.content)] == ["task_id", "end"],
        "no stream when asked",
    )


@promise("C5", "no-redirect", "Paths without an environment are answered at once, without a redirect.")
async def no_redirect(target: Target) -> None:
    expect((await target.get("/splits")).status_code == 200, "GET /splits is redirected")
    async with target.session() as session:
        expect((await session.get("/prompt")).status_code == 200, "GET /prompt is redirected")
        called = await session.post("/call", {"name": "no such tool", "input": {}})
        expect(called.status_code == 200, "POST /call is redirected")


@promise("L6", "ready", "GET /ready answers 200 while the server takes sessions.")
async def ready(target: Target) -> None:
    answer = await target.get("/ready")
    expect(answer.status_code == 200, f"answered {answer.status_code}: {answer.text[:200]}")


@promise("L7", "replays", "A replayable environment answers the same calls on the same task in the same way.")
async def replays(target: Target) -> None:
    listed = await target.get("/environments")
    known = listed.json() if listed.status_code == 200 else []
    if not any(each.get("key") == target.env and each.get("replayable") for each in known):
        raise NotSupported("this environment is not declared replayable")
    calls = [(tool["name"], fitting(tool.get("input_schema"))) for tool in target.tool_specs()] * 2
    recorded = await _played(target, calls)
    for _ in range(3):  # other workers too
        replayed = await _played(target, calls)
        expect(replayed[0] == recorded[0], "another session on the same task shows another prompt")
        for number, (name, _input) in enumerate(calls, 1):
            same = replayed[number] == recorded[number]
            expect(same, f"call {number}, of {name!r}, is answered differently in another session")


async def _played(target: Target, calls: Sequence[tuple[str, Any]]) -> list[Any]:
    async with target.session() as session:
        answers = [(await session.get("/prompt")).json()]
        for name, value in calls:
            reply = await session.call(name, value)
            kinds = [event.event for event in reply.events]
            answers.append(reply.result if "end" in kinds else kinds[-1:])
    return answers
