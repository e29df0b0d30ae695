"""A session from create to delete."""

from __future__ import annotations

from typing import Any

import httpx
from orsay_protocol.headers import SECRETS, encode_secrets

from orsay.conformance.check import standard
from orsay.conformance.concurrent import at_once
from orsay.conformance.failures import NotSupported, expect
from orsay.conformance.strict import json_of
from orsay.conformance.target import Target, TargetSession, fresh_sid

_BLOCKS = {"text": {"text", "detail", "type"}, "image": {"data", "mimeType", "detail", "type"}}


def _blocks_in_shape(blocks: Any, where: str) -> None:
    expect(isinstance(blocks, list), f"{where} is {blocks!r}, not a list of blocks")
    for block in blocks:
        keys = _BLOCKS.get(block.get("type"))
        expect(keys is not None, f"{where} has a block of type {block.get('type')!r}")
        missing = (keys or set()) - set(block)
        expect(not missing, f"{where}: a block lacks {sorted(missing)}, which old clients index")


async def _create(target: Target, body: dict[str, Any]) -> httpx.Response:
    session = TargetSession(target, await target.new_sid())
    answer = await session.post("/create", body)
    await session.post("/delete")
    return answer


@standard("create-index", "3.2", "POST /create with split and index answers with the session id.")
async def create_index(target: Target) -> None:
    target.need_tasks()
    session = TargetSession(target, await target.new_sid())
    answer = await session.post("/create", {"split": target.split, "index": 0, "env_name": target.env})
    await session.post("/delete")
    expect(answer.status_code == 200, f"answered {answer.status_code}: {answer.text[:200]}")
    expect(json_of(answer).get("sid") == session.sid, f"answered {answer.text[:200]}")


@standard("create-task", "3.2", "POST /create with a task_spec opens a session on that task.")
async def create_task(target: Target) -> None:
    target.need_tasks()
    asked = await target.post(target.path("/task"), {"split": target.split, "index": 0})
    body = {"task_spec": json_of(asked)["task"], "env_name": target.env}
    session = TargetSession(target, await target.new_sid())
    answer = await session.post("/create", body)
    if answer.status_code in (400, 403) and "index" in answer.text:
        raise NotSupported(f"this server serves tasks by index only: {answer.text[:200]}")
    expect(answer.status_code == 200, f"answered {answer.status_code}: {answer.text[:200]}")
    expect((await session.get(target.path("/prompt"))).status_code == 200, "its prompt does not answer 200")
    await session.post("/delete")


@standard("create-env-case", "7", "POST /create takes env_name in any letter case.")
async def create_env_case(target: Target) -> None:
    target.need_tasks()
    answer = await _create(target, {**target.task_source(), "env_name": target.env.upper()})
    expect(answer.status_code == 200, f"answered {answer.status_code}: {answer.text[:200]}")


@standard("create-default-env", "7", "POST /create without env_name uses the first environment.")
async def create_default_env(target: Target) -> None:
    first = target.environments[0]
    split = json_of(await target.get(f"/{first}/splits"))[0]["name"]
    counted = await target.post(f"/{first}/num_tasks", {"split": split})
    if not json_of(counted)["num_tasks"]:
        raise NotSupported(f"the first split of {first} has no task")
    answer = await _create(target, {"split": split, "index": 0})
    expect(answer.status_code == 200, f"answered {answer.status_code}: {answer.text[:200]}")


@standard(
    "own-session-id", "2", "A session id of the client's own making is as good as one from /create_session."
)
async def own_session_id(target: Target) -> None:
    session = TargetSession(target, f"mine/{fresh_sid()}:with punctuation")
    answer = await session.post("/create", target.task_source())
    expect(answer.status_code == 200, f"answered {answer.status_code}: {answer.text[:200]}")
    expect(json_of(answer)["sid"] == session.sid, f"answered {answer.text[:200]}")
    expect((await session.post("/ping")).status_code == 200, "/ping does not know it")
    await session.post("/delete")


@standard("secrets-header", "2", "POST /create takes X-Secrets.")
async def secrets_header(target: Target) -> None:
    session = TargetSession(target, await target.new_sid())
    headers = {SECRETS: encode_secrets({"some_key": "some value"})}
    answer = await session.post("/create", target.task_source(), headers)
    await session.post("/delete")
    expect(answer.status_code == 200, f"answered {answer.status_code}: {answer.text[:200]}")


@standard(
    "create-twice", "3.2", "A second /create for a live session never makes a second session of another task."
)
async def create_twice(target: Target) -> None:
    if target.count < 2:
        raise NotSupported("the environment has fewer than two tasks")
    async with target.session() as session:
        answer = await session.post("/create", {**target.task_source(), "index": 1})
        expect(answer.status_code in (400, 409), f"answered {answer.status_code}: {answer.text[:200]}")
        expect((await session.post("/ping")).status_code == 200, "the session is gone afterwards")


@standard("prompt", "3.2", "GET /{env}/prompt answers with blocks, each with its detail.")
async def prompt(target: Target) -> None:
    async with target.session() as session:
        answer = await session.get(target.path("/prompt"))
        expect(answer.status_code == 200, f"answered {answer.status_code}: {answer.text[:200]}")
        _blocks_in_shape(json_of(answer), "the prompt")
        again = await session.get(target.path("/prompt"))
        expect(again.status_code == 200, f"asked again it answered {again.status_code}")


@standard("messages", "3.2", "GET /{env}/messages answers with messages: a role and blocks that it may hold.")
async def messages(target: Target) -> None:
    async with target.session() as session:
        answer = await session.get(target.path("/messages"))
        if answer.status_code in (404, 405):
            raise NotSupported("servers before openreward 0.1.157 and ors-sdk have no /messages")
        expect(answer.status_code == 200, f"answered {answer.status_code}: {answer.text[:200]}")
        for message in json_of(answer):
            expect(
                message["role"] in ("system", "user", "assistant"),
                f"a message has the role {message['role']!r}",
            )
            expect(isinstance(message["blocks"], list), "a message has no list of blocks")
            expect(
                all("type" in block and "detail" in block for block in message["blocks"]),
                "a block lacks a key",
            )


@standard("task-tools", "3.2", "GET /{env}/task_tools lists at least the tools of /{env}/tools.")
async def task_tools(target: Target) -> None:
    async with target.session() as session:
        answer = await session.get(target.path("/task_tools"))
        expect(answer.status_code == 200, f"answered {answer.status_code}: {answer.text[:200]}")
        listed = json_of(answer)["tools"]
        for spec in listed:
            expect(
                set(spec) == {"name", "description", "input_schema"}, f"a tool has the keys {sorted(spec)}"
            )
        missing = {spec["name"] for spec in target.tool_specs()} - {spec["name"] for spec in listed}
        expect(not missing, f"it lacks {sorted(missing)}")


@standard("ping", "3.2", "POST /ping with an empty body answers 200 with status ok.")
async def ping(target: Target) -> None:
    async with target.session() as session:
        for kind in (None, "application/octet-stream", "application/json"):
            headers = {} if kind is None else {"Content-Type": kind}
            answer = await session.post("/ping", headers=headers)
            expect(answer.status_code == 200, f"content type {kind}: answered {answer.status_code}")
            expect(json_of(answer) == {"status": "ok"}, f"answered {answer.text[:200]}")


@standard("empty-api-key", "2", "An empty X-API-Key, as clients without a key send it, does no harm.")
async def empty_api_key(target: Target) -> None:
    if target.api_key is not None:
        raise NotSupported("this server requires a key")
    answer = await target.get(target.path("/splits"), headers={"X-API-Key": "", "X-Deployment": "some/name"})
    expect(answer.status_code == 200, f"answered {answer.status_code}")


@standard(
    "environment-in-path",
    "3.2",
    "The environment in the path of a session request is not compared with the session's.",
)
async def environment_in_path(target: Target) -> None:
    async with target.session() as session:
        wanted = json_of(await session.get(target.path("/prompt")))
        for name in {target.env.upper(), *target.environments}:
            answer = await session.get(f"/{name}/prompt")
            expect(answer.status_code == 200, f"/{name}/prompt answered {answer.status_code}")
            expect(json_of(answer) == wanted, f"/{name}/prompt answered {answer.text[:200]}")


@standard("bare-session-path", "3.3", "Session requests work without an environment in the path.")
async def bare_session_path(target: Target) -> None:
    async with target.session() as session:
        headers = session.headers()
        wanted = json_of(await session.get(target.path("/prompt")))
        answer = await target.get("/prompt", headers=headers, follow_redirects=True)
        expect(answer.status_code == 200, f"/prompt answered {answer.status_code}: {answer.text[:200]}")
        expect(json_of(answer) == wanted, f"/prompt answered {answer.text[:200]}")
        body = {"name": "no such tool", "input": {}}
        called = await target.post("/call", body, headers=headers, follow_redirects=True)
        expect(called.status_code == 200, f"/call answered {called.status_code}: {called.text[:200]}")
        expect(b"event: end" in called.content, f"/call answered {called.text[:200]!r}")


@standard("delete", "6", "POST /delete answers with the session id and ends the session.")
async def delete(target: Target) -> None:
    async with target.session() as session:
        answer = await session.post("/delete")
        expect(answer.status_code == 200, f"answered {answer.status_code}: {answer.text[:200]}")
        expect(json_of(answer) == {"sid": session.sid}, f"answered {answer.text[:200]}")
        for method, path in (("POST", "/ping"), ("GET", target.path("/prompt"))):
            after = await target.http.request(method, path, headers=session.headers())
            expect(after.status_code in (404, 410), f"afterwards {path} answers {after.status_code}")


@standard("delete-unknown", "3.2", "POST /delete for an unknown session answers 200 all the same.")
async def delete_unknown(target: Target) -> None:
    session = TargetSession(target, fresh_sid())
    for _ in range(2):
        answer = await session.post("/delete")
        if answer.status_code == 404:
            raise NotSupported("servers up to openreward 0.1.62 answer 404")
        expect(answer.status_code == 200, f"answered {answer.status_code}: {answer.text[:200]}")
        expect(json_of(answer) == {"sid": session.sid}, f"answered {answer.text[:200]}")


@standard(
    "delete-session", "6", "POST /delete_session answers with the session id and leaves the session alone."
)
async def delete_session(target: Target) -> None:
    async with target.session() as session:
        answer = await session.post("/delete_session")
        expect(answer.status_code == 200, f"answered {answer.status_code}: {answer.text[:200]}")
        expect(json_of(answer) == {"sid": session.sid}, f"answered {answer.text[:200]}")
        expect((await session.post("/ping")).status_code == 200, "the session is gone afterwards")


@standard("create-again", "6", "A deleted session id may be created again, and is then a new session.")
async def create_again(target: Target) -> None:
    async with target.session() as session:
        await session.post("/delete")
        answer = await session.post("/create", target.task_source())
        expect(answer.status_code == 200, f"answered {answer.status_code}: {answer.text[:200]}")
        expect(
            (await session.get(target.path("/prompt"))).status_code == 200, "its prompt does not answer 200"
        )
    counter = await target.probe.counter_if_any()
    if counter is None:
        return
    async with target.session() as session:
        for _ in range(2):
            await session.call(counter.tool, counter.value)
        await session.post("/delete")
        await session.post("/create", target.task_source())
        counter.expect_runs(await session.call(counter.tool, counter.value), 1, "in the new session")


@standard("sessions-apart", "1", "Sessions at the same time do not see one another.")
async def sessions_apart(target: Target) -> None:
    async def one(index: int) -> Any:
        async with target.session({**target.task_source(), "index": index}) as session:
            return json_of(await session.get(target.path("/prompt")))

    target.need_tasks()
    indexes = [i % min(target.count, 4) for i in range(12)]
    prompts = await at_once(*(one(index) for index in indexes))
    alone = {index: await one(index) for index in sorted(set(indexes))}
    for index, seen in zip(indexes, prompts, strict=True):
        expect(len(seen) == len(alone[index]), f"task {index} has another prompt beside other sessions")
    counter = await target.probe.counter_if_any()
    if counter is None:
        return

    async def play(turns: int) -> None:
        async with target.session() as session:
            for turn in range(turns):
                reply = await session.call(counter.tool, counter.value)
                counter.expect_runs(reply, turn + 1, f"beside other sessions, after {turn + 1} calls")

    await at_once(*(play(turns) for turns in (1, 2, 3, 1, 2, 3)))
