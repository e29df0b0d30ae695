"""Discovery, where it takes an environment made for it."""

from __future__ import annotations

import httpx
import pytest
from orsay.conformance.target import Target

from ..interop.servers import ServerProcess
from .playing import session_of, text_of

pytestmark = pytest.mark.process


@pytest.mark.conformance("P-3.1-create-session-json", "C5")
def test_create_session_answers_json_to_those_who_ask_for_no_stream(server: ServerProcess) -> None:
    answer = httpx.post(f"{server.url}/create_session")
    assert answer.headers["content-type"] == "application/json"
    assert len(answer.json()["sid"]) == 36


@pytest.mark.conformance("P-3.1-listing-unsupported")
def test_tasks_that_cannot_be_listed_answer_400(server: ServerProcess) -> None:
    answer = httpx.post(f"{server.url}/huge/tasks", json={"split": "train"})
    assert answer.status_code == 400
    assert "list" in answer.json()["detail"]


@pytest.mark.conformance("P-3.1-listing-avoided", "P-7-task-range")
async def test_a_trillion_tasks_are_counted_and_got_without_a_list(server: ServerProcess) -> None:
    async with Target.open(server.url, env="huge") as target:
        assert target.count == 10**12
        body = {"split": "train", "start": 10**12 - 2, "stop": None}
        tasks = (await target.post("/huge/task_range", body)).json()["tasks"]
        assert tasks == [{"number": 10**12 - 2}, {"number": 10**12 - 1}]
        refused = await target.post("/huge/task", {"split": "train", "index": -1})
        assert refused.status_code == 400
        assert "Invalid index" in refused.json()["detail"]
        last = {"env_name": "huge", "split": "train", "index": 10**12 - 1}
        async with target.session(last) as session:
            assert text_of(await session.call("number", {})) == str(10**12 - 1)


@pytest.mark.conformance("P-7-name-override")
async def test_an_environment_goes_by_the_name_it_gives_itself(server: ServerProcess) -> None:
    async with session_of(server.url, "another-name") as session:
        assert "named" not in session.target.environments
        assert text_of(await session.call("alpha", {})) == "alpha"


@pytest.mark.conformance("P-7-split-strings")
def test_splits_given_by_name_alone_get_a_type(server: ServerProcess) -> None:
    splits = {split["name"]: split["type"] for split in httpx.get(f"{server.url}/another-name/splits").json()}
    same = {"train": "train", "validation": "validation", "test": "test"}
    assert splits == {**same, "held-out": "validation", "own": "test"}


@pytest.mark.conformance("P-7-spec-from-client")
async def test_a_task_of_the_clients_own_reaches_the_environment_as_it_is(server: ServerProcess) -> None:
    task = {"id": 5, "nested": {"a": [1, None, True, 1.5]}, "text": "é\u2028\x00"}
    async with session_of(server.url, "busy", task) as session:
        prompt = (await session.get("/busy/prompt")).json()
    assert prompt[0]["text"] == f"task {task}"


@pytest.mark.conformance("P-8-listing-order", "P-8-hidden-tool")
def test_tools_are_listed_by_name_the_class_first(server: ServerProcess) -> None:
    listed = httpx.get(f"{server.url}/another-name/tools").json()["tools"]
    assert [tool["name"] for tool in listed] == ["alpha", "zeta", "alpha_of_box", "beta"]


@pytest.mark.conformance("P-8-description")
def test_a_tool_is_described_by_its_docstring(server: ServerProcess) -> None:
    listed = httpx.get(f"{server.url}/another-name/tools").json()["tools"]
    described = {tool["name"]: tool["description"] for tool in listed}
    assert described["zeta"].splitlines()[0] == "Says zeta."
    assert described["zeta"] == described["zeta"].strip()
    assert described["alpha"] == ""


@pytest.mark.conformance("P-8-task-tools-extra", "P-8-hidden-tool")
async def test_a_session_adds_tools_that_the_environment_does_not_list(server: ServerProcess) -> None:
    async with session_of(server.url, "another-name") as session:
        listed = (await session.get("/another-name/task_tools")).json()["tools"]
        assert [tool["name"] for tool in listed] == ["alpha", "zeta", "alpha_of_box", "beta", "hidden"]
        assert text_of(await session.call("hidden", {})) == "found"


@pytest.mark.conformance("P-8-toolset")
async def test_a_toolset_is_made_once_for_each_session(server: ServerProcess) -> None:
    one_on, other_on = ({"id": "first"}, {"id": "second"})
    url = server.url
    async with (
        session_of(url, "another-name", one_on) as one,
        session_of(url, "another-name", other_on) as other,
    ):
        seen = [text_of(await session.call("beta", {})) for session in (one, other, one)]
    assert seen == ["first 1", "second 1", "first 2"]
