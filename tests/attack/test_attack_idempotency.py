"""An Idempotency-Key names one request, and no other one gets its result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.server_process import ServerProcess, server
from tests.support.session_api import Api, Reply, api_for

from .test_attack_recovery import ORDERS, Killed, begun, opened, patiently

pytestmark = pytest.mark.process

KEY = {"Idempotency-Key": "a key"}
SCORE = {"candidates": [{"messages": [{"role": "user", "blocks": []}]}]}


@pytest.fixture(scope="module")
def found() -> Iterator[ServerProcess]:
    with server(f"{ORDERS}:Orders", also="openenv") as found:
        yield found


async def sent(api: Api, text: str, path: str = "/call") -> Reply:
    """A call whose body is spelled in this way."""
    headers = {"X-Session-ID": api.sid, "Content-Type": "application/json", **KEY}
    return Reply(await api.http.post(path, content=text.encode(), headers=headers))


def expect_conflict(answer: httpx.Response, *words: str) -> None:
    assert (answer.status_code, answer.headers["x-orsay-code"]) == (409, "key_conflict"), answer.text
    detail = answer.json()["detail"]
    for word in ("'a key' belongs to another request", *words):
        assert word in detail
    assert "with a key of its own" in detail


@pytest.mark.conformance("D2")
async def test_a_key_with_another_request_is_a_conflict_and_nothing_runs(found: ServerProcess) -> None:
    async with opened(found.url) as api:
        first = await api.call("step", label="A", headers=KEY)
        others: list[Any] = [
            {"name": "step", "input": {"label": "B"}},
            {"name": "queued", "input": {"label": "A"}},
            {"name": "step", "input": {"label": "A", "until": ""}},
            {"name": "nothing", "input": {}},
        ]
        for body in others:
            answer = await api.post("/call", body, **KEY)
            expect_conflict(answer, "a call of 'step'", f"task_id {first.task_id}")
        expect_conflict(await api.post("/score_group", SCORE, **KEY), "a call of 'step'")
        assert (await api.call("step", label="A", headers=KEY)).task_id == first.task_id
        assert (await api.call("read")).text == "A"


@pytest.mark.conformance("D2")
async def test_a_key_of_a_group_score_is_no_key_of_a_call(found: ServerProcess) -> None:
    async with opened(found.url) as api:
        first = Reply(await api.post("/score_group", SCORE, **KEY))
        expect_conflict(await api.post("/call", {"name": "read", "input": {}}, **KEY), "a group score")
        expect_conflict(await api.post("/score_group", {"candidates": []}, **KEY), "a group score")
        assert Reply(await api.post("/score_group", SCORE, **KEY)).task_id == first.task_id
        assert (await api.call("read")).text == "scored"


@pytest.mark.conformance("D2")
async def test_a_request_is_the_same_however_its_json_is_spelled(found: ServerProcess) -> None:
    async with opened(found.url) as api:
        first = await sent(api, '{"name":"step","input":{"label":"Ä","until":""}}')
        for same in (
            '{"name":"step","input":{"label":"\\u00c4","until":""}}',
            '{ "input": {"until": "", "label": "Ä"}, "task_id": null, "name": "step" }',
        ):
            assert (await sent(api, same)).task_id == first.task_id
        for other in (
            '{"name":"step","input":{"label":"A","until":""}}',
            '{"name":"step","input":{"label":"Ä","until":null}}',
            '{"name":"step","input":{"label":"Ä","until":false}}',
        ):
            expect_conflict((await sent(api, other)).response)


@pytest.mark.conformance("D2")
async def test_numbers_of_another_kind_are_another_request(found: ServerProcess) -> None:
    async with opened(found.url) as api:
        await sent(api, '{"name":"nothing","input":{"number":1}}')
        for other in ("1.0", "true", '"1"', "10"):
            expect_conflict((await sent(api, f'{{"name":"nothing","input":{{"number":{other}}}}}')).response)


@pytest.mark.conformance("D2")
async def test_the_key_of_a_call_that_runs_is_no_key_of_another_one(
    found: ServerProcess, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    async with (
        opened(found.url) as api,
        begun(api, "step", headers=KEY, label="A", until=str(go)) as ends,
    ):
        expect_conflict((await api.call("step", label="B", headers=KEY)).response, "a call of 'step'")
        go.touch()
        await ends()


@pytest.mark.conformance("D2", "L7")
async def test_a_key_names_its_request_after_a_restart_too(tmp_path: Path) -> None:
    killed = Killed(tmp_path, f"{ORDERS}:Orders")
    try:
        async with opened(killed.process.url) as api:
            spelled = '{ "input": {"label": "A\\u00c4", "until" : ""}, "name": "step" }'
            first = await sent(api, spelled)
            scored = Reply(await api.post("/score_group", SCORE, **{"Idempotency-Key": "another"}))
            await killed.kill()
            again = await patiently(lambda: sent(api, spelled))
            assert again.task_id == first.task_id
            expect_conflict((await api.call("step", label="B", headers=KEY)).response, first.task_id)
            same = Reply(await api.post("/score_group", SCORE, **{"Idempotency-Key": "another"}))
            assert same.task_id == scored.task_id
            assert (await api.call("read")).text == "AÄ scored"
    finally:
        killed.process.end()


@pytest.mark.conformance("D2")
async def test_the_request_id_of_an_openenv_step_names_one_action(found: ServerProcess) -> None:
    async with api_for(found.url) as api:
        assert (await api.post("/reset", {})).status_code == 200

        def step(label: str) -> dict[str, Any]:
            action = {"type": "call_tool", "tool_name": "step", "arguments": {"label": label}}
            return {"action": action, "request_id": "one"}

        first = await api.post("/step", step("A"))
        assert first.status_code == 200 and first.json() == (await api.post("/step", step("A"))).json()
        answer = await api.post("/step", step("B"))
        assert answer.status_code == 409 and "'one' belongs to another request" in answer.text
