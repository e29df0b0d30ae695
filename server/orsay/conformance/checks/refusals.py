"""Requests that must be refused with the right status and without side effects."""

from __future__ import annotations

import json
from typing import Any

from orsay.conformance.check import standard
from orsay.conformance.failures import NotSupported, expect
from orsay.conformance.strict import json_of
from orsay.conformance.target import Target, TargetSession, fresh_sid

_DISCOVERY = {
    "/tasks": {},
    "/num_tasks": {},
    "/task": {"index": 0},
    "/task_range": {"start": 0, "stop": 1},
}


@standard("invalid-split", "3.1", "An unknown split answers 400 Invalid split.")
async def invalid_split(target: Target) -> None:
    for path, more in _DISCOVERY.items():
        answer = await target.post(target.path(path), {"split": "no such split", **more})
        expect(answer.status_code == 400, f"{path} answered {answer.status_code}: {answer.text[:200]}")
        detail = json_of(answer)["detail"]
        expect("nvalid split" in detail, f"{path}: the detail is {detail!r}")


@standard("unknown-environment", "3.1", "An unknown environment answers 404.")
async def unknown_environment(target: Target) -> None:
    for path in ("/tools", "/splits"):
        answer = await target.get(f"/no-such-environment{path}", follow_redirects=True)
        expect(answer.status_code == 404, f"GET {path} answered {answer.status_code}")
    for path, more in _DISCOVERY.items():
        body = {"split": target.split, **more}
        answer = await target.post(f"/no-such-environment{path}", body, follow_redirects=True)
        expect(answer.status_code == 404, f"POST {path} answered {answer.status_code}")


@standard("unknown-field", "3", "A field that the request does not have answers 422.")
async def unknown_field(target: Target) -> None:
    for path, more in _DISCOVERY.items():
        body = {"split": target.split, **more, "colour": "red"}
        answer = await target.post(target.path(path), body)
        expect(answer.status_code == 422, f"{path} answered {answer.status_code}")
    async with target.session() as session:
        answer = await session.post(target.path("/call"), {"name": "a", "input": {}, "colour": "red"})
        expect(answer.status_code == 422, f"/call answered {answer.status_code}")
    other = TargetSession(target, await target.new_sid())
    answer = await other.post("/create", {**target.task_source(), "colour": "red"})
    await other.post("/delete")
    expect(answer.status_code == 422, f"/create answered {answer.status_code}")


@standard("422-body", "4", "The body of a 422 is a list of details with type, loc and msg.")
async def body_of_422(target: Target) -> None:
    answer = await target.post(target.path("/num_tasks"), {})
    expect(answer.status_code == 422, f"answered {answer.status_code}")
    details = json_of(answer)["detail"]
    expect(isinstance(details, list) and details, f"the detail is {details!r}")
    expect({"type", "loc", "msg"} <= set(details[0]), f"a detail has the keys {sorted(details[0])}")


@standard("error-body", "4", "Every other error has a body with a detail in words.")
async def error_body(target: Target) -> None:
    answers = [
        await target.post(target.path("/num_tasks"), {"split": "no such split"}),
        await target.post("/ping"),
        await TargetSession(target, fresh_sid()).post("/ping"),
    ]
    for answer in answers:
        detail = json_of(answer).get("detail")
        expect(isinstance(detail, str) and detail, f"{answer.request.url.path}: the detail is {detail!r}")


@standard("broken-json", "3", "A body that is no JSON answers 422.")
async def broken_json(target: Target) -> None:
    for content in (b"{", b"", b"\xff\xfe", b"[1", b'{"split": '):
        headers = {"Content-Type": "application/json"}
        answer = await target.post(target.path("/num_tasks"), content=content, headers=headers)
        expect(answer.status_code in (400, 422), f"{content!r} answered {answer.status_code}")


@standard("content-type", "3", "A body of another content type than JSON answers 422.")
async def content_type(target: Target) -> None:
    content = f'{{"split": "{target.split}"}}'.encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        answer = await target.post(target.path("/num_tasks"), content=content, headers={"Content-Type": kind})
        expect(answer.status_code == 422, f"{kind} answered {answer.status_code}")


@standard("wrong-types", "4", "Fields of the wrong type answer 422.")
async def wrong_types(target: Target) -> None:
    for body in ({"split": 1}, {"split": None}, {"split": ["train"]}, ["train"], "train", None, 3):
        answer = await target.post(target.path("/num_tasks"), json=body)
        expect(answer.status_code == 422, f"{body!r} answered {answer.status_code}")


def _session_requests(target: Target) -> list[tuple[str, str, bytes]]:
    return [
        ("POST", "/ping", b""),
        ("GET", target.path("/prompt"), b""),
        ("GET", target.path("/task_tools"), b""),
        ("POST", target.path("/call"), b'{"name": "a", "input": {}}'),
    ]


@standard("no-session-id", "2", "A session request without X-Session-ID, or with a blank one, answers 400.")
async def no_session_id(target: Target) -> None:
    create = json.dumps(target.task_source()).encode()
    requests = [*_session_requests(target)]
    requests += [("POST", "/create", create), ("POST", "/delete", b""), ("POST", "/delete_session", b"")]
    # By hand: client libraries refuse to send a blank header.
    async with target.raw() as wire:
        for headers in ({}, {"X-Session-ID": ""}, {"X-Session-ID": "   "}):
            for method, path, body in requests:
                answer = await wire.request(
                    method, path, {"Content-Type": "application/json", **headers}, body
                )
                expect(answer.status == 400, f"{path} with {headers} answered {answer.status}")


@standard(
    "unknown-session", "11", "A session id that was never created answers 404 on every session request."
)
async def unknown_session(target: Target) -> None:
    headers = {"X-Session-ID": fresh_sid(), "Content-Type": "application/json"}
    for method, path, body in _session_requests(target):
        answer = await target.http.request(method, path, headers=headers, content=body)
        expect(answer.status_code == 404, f"{path} answered {answer.status_code}: {answer.text[:200]}")


async def _refused_create(target: Target, body: Any, status: int) -> None:
    session = TargetSession(target, await target.new_sid())
    answer = await session.post("/create", body)
    after = await target.post("/ping", headers=session.headers())
    await session.post("/delete")
    expect(answer.status_code == status, f"{body!r} answered {answer.status_code}: {answer.text[:200]}")
    expect(after.status_code == 404, f"{body!r} was refused and left a session behind")


@standard(
    "create-unknown-env",
    "7",
    "POST /create for an unknown environment answers 404 and leaves nothing behind.",
)
async def create_unknown_env(target: Target) -> None:
    await _refused_create(target, {**target.task_source(), "env_name": "no such environment"}, 404)


@standard("create-one-source", "4", "POST /create takes one task: task_spec, or split with index; else 422.")
async def create_one_source(target: Target) -> None:
    source = target.task_source()
    for body in (
        {},
        {"env_name": target.env},
        {**source, "task_spec": {}},
        {"split": target.split},
        {"index": 0},
        {"task_spec": [1]},
        {"task_spec": "a"},
    ):
        await _refused_create(target, body, 422)


@standard(
    "create-invalid-task",
    "3.2",
    "POST /create with an unknown split or index answers 400 and leaves nothing behind.",
)
async def create_invalid_task(target: Target) -> None:
    await _refused_create(target, {**target.task_source(), "split": "no such split"}, 400)
    await _refused_create(target, {**target.task_source(), "index": target.count}, 400)


@standard("create-unknown-toolset", "8", "POST /create with an unknown toolset_name answers 400.")
async def create_unknown_toolset(target: Target) -> None:
    session = TargetSession(target, await target.new_sid())
    answer = await session.post("/create", {**target.task_source(), "toolset_name": "no such toolset"})
    await session.post("/delete")
    if answer.status_code == 422:
        raise NotSupported("servers before openreward 0.1.100 and ors-sdk know no toolset_name")
    if answer.status_code == 200:
        raise NotSupported("openreward 0.1.100 looks at toolset_name only when tools are called")
    expect(answer.status_code == 400, f"answered {answer.status_code}: {answer.text[:200]}")


@standard("still-there", "11", "After all refused requests the server plays on.")
async def still_there(target: Target) -> None:
    async with target.session() as session:
        expect((await session.get(target.path("/prompt"))).status_code == 200, "a prompt does not answer 200")
    expect((await target.get("/health")).status_code == 200, "/health does not answer 200")
