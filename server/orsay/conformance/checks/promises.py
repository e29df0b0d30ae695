"""Promises beyond the standard: life of a session, keys, names, clients of every kind.

``results`` has the promises for calls. Other servers conform without these.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Any

from orsay_protocol.headers import FAULT, SECRETS, SESSION_ID
from orsay_protocol.sse import Decoder

from orsay.conformance.check import promise
from orsay.conformance.concurrent import at_once
from orsay.conformance.failures import NotSupported, expect
from orsay.conformance.inputs import fitting
from orsay.conformance.strict import json_of
from orsay.conformance.target import Target, TargetSession, fresh_sid

from .calls import private_names


@promise("L1", "create-twice", "The same /create twice answers 200 with the id, another body 409.")
async def create_twice(target: Target) -> None:
    async with target.session() as session:
        again = await session.post("/create", target.task_source())
        expect(again.status_code == 200, f"the same body answered {again.status_code}: {again.text[:200]}")
        expect(json_of(again) == {"sid": session.sid}, f"the same body answered {again.text[:200]}")
        # By index if there is a second task: a server may refuse every task_spec.
        task: dict[str, Any] = {"task_spec": {"other": 1}, "env_name": target.env}
        if target.count > 1:
            task = {**target.task_source(), "index": 1}
        other = await session.post("/create", task)
        expect(other.status_code == 409, f"another body answered {other.status_code}: {other.text[:200]}")
        expect((await session.post("/ping")).status_code == 200, "the session is gone afterwards")
    counter = await target.probe.counter_if_any()
    if counter is None:
        return
    async with target.session() as session:
        await session.call(counter.tool, counter.value)
        await session.post("/create", target.task_source())
        reply = await session.call(counter.tool, counter.value)
        counter.expect_runs(reply, 2, "after the same /create between two calls")


@promise("L1", "create-at-once", "Several /create of one session at the same time make one session.")
async def create_at_once(target: Target) -> None:
    session = TargetSession(target, await target.new_sid())
    answers = await at_once(*(session.post("/create", target.task_source()) for _ in range(6)))
    codes = [answer.status_code for answer in answers]
    await session.post("/delete")
    after = (await session.post("/ping")).status_code
    expect(codes == [200] * 6, f"they answered {codes}")
    expect(after in (404, 410), "one /delete left a session behind")


@promise(
    "L2", "delete-at-once", "Several /delete at once, right after /create, all answer 200 and leave nothing."
)
async def delete_at_once(target: Target) -> None:
    async with target.session() as session:
        answers = await at_once(*(session.post("/delete") for _ in range(4)))
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
            expect("deleted" in json_of(answer)["detail"], f"the detail is {json_of(answer)['detail']!r}")
            expect(answer.headers.get(FAULT) == "session_gone", f"{FAULT} is {answer.headers.get(FAULT)!r}")
        called = await session.call("no such tool", {})
        expect(called.status == 410, f"/call answered {called.status}")
    never = await TargetSession(target, fresh_sid()).post("/ping")
    expect(never.status_code == 404, f"one that never was answered {never.status_code}")


@promise("S1", "key-needed", "With keys, every route but /health and /ready needs one.")
async def key_needed(target: Target) -> None:
    key = target.api_key
    if key is None:
        raise NotSupported("no key was given with --api-key")
    async with target.session() as session, target.raw() as wire:
        for method, path in await _routes(target):
            for wrong in ("", "wrong", key + "x", key[:-1]):
                # An existing session, so that the refusal is not about an unknown session.
                headers = {"X-API-Key": wrong, SESSION_ID: session.sid, "Content-Type": "application/json"}
                reply = await wire.request(method, path, headers, b"{}" if method == "POST" else b"")
                expect(reply.status == 401, f"{method} {path} with a wrong key answered {reply.status}")
        bearer = {"X-API-Key": "", "Authorization": f"Bearer {key}"}
        reply = await wire.request("GET", target.path("/tools"), bearer)
        expect(reply.status == 200, f"/tools with a bearer token answered {reply.status}")
        for path in ("/health", "/ready"):
            reply = await wire.request("GET", path, {"X-API-Key": ""})
            expect(reply.status == 200, f"{path} without a key answered {reply.status}")


async def _routes(target: Target) -> list[tuple[str, str]]:
    """Routes of the standard and of the server's own document, with the harmless methods of each."""
    gets = ["/list_environments", "/version", "/openapi.json", "/docs", "/environments", "/metrics"]
    gets += [target.path(path) for path in ("/tools", "/splits", "/prompt", "/messages", "/task_tools")]
    posts = ["/create_session", "/create", "/ping", "/delete_session", "/delete"]
    posts += [target.path(f"/{name}") for name in ("tasks", "num_tasks", "task", "task_range", "call")]
    posts.append(target.path("/score_group"))
    found = [*(("GET", path) for path in gets), *(("POST", path) for path in posts)]
    described = await target.get("/openapi.json")
    for path, methods in json_of(described)["paths"].items() if described.status_code == 200 else ():
        real = re.sub(r"\{env\w*\}", target.env, path)
        if "{" not in real and real not in ("/health", "/ready"):
            found += [(method, real) for method in ("GET", "POST") if method.lower() in methods]
    return list(dict.fromkeys(found))


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
            *private_names(target),
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
        expect(list(json_of(answer)) == ["sid"], f"Accept {accept}: answered {answer.text[:200]}")
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
    known = json_of(listed) if listed.status_code == 200 else []
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
        answers = [json_of(await session.get("/prompt"))]
        for name, value in calls:
            reply = await session.call(name, value)
            kinds = [event.event for event in reply.events]
            answers.append(reply.result if "end" in kinds else kinds[-1:])
    return answers
