"""The life of a session: setup, failures on the way, teardown, and what is left."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from orsay.conformance.target import Target, TargetSession

from ..interop.servers import ServerProcess
from .playing import open_stream, session_of, text_of, until

pytestmark = pytest.mark.process


def steps(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


@pytest.mark.conformance("P-6-setup-in-background", "P-6-task-tools-early", "L3")
async def test_create_answers_before_setup_is_over(server: ServerProcess) -> None:
    async with Target.open(server.url, env="fragile") as target:
        loop = asyncio.get_running_loop()
        started = loop.time()
        async with target.session({"env_name": "fragile", "task_spec": {"setup_s": 1.5}}) as session:
            tools = await target.get("/fragile/task_tools", headers=session.headers())
            ping = await target.post("/ping", headers=session.headers())
            assert loop.time() - started < 1.4, "something waited for setup"
            assert (tools.status_code, ping.status_code) == (200, 200)
            prompt = await target.get("/fragile/prompt", headers=session.headers())
            assert prompt.status_code == 200
            assert loop.time() - started > 1.4, "the prompt did not wait for setup"


@pytest.mark.conformance("P-6-setup-failed", "P-16-fault-header", "L2")
async def test_a_failed_setup_is_reported_to_everyone_until_delete(
    server: ServerProcess, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with session_of(server.url, "fragile", {"fail": "setup", "log": str(log)}) as session:
        call = {"name": "touch", "input": {}}
        for answer in (
            await session.get("/fragile/prompt"),
            await session.get("/fragile/messages"),
            await session.post("/fragile/call", call),
            await session.get("/fragile/task_tools"),
        ):
            assert answer.status_code == 500, answer.request.url
            assert "setup broke" in answer.json()["detail"]
            assert answer.headers["x-orsay-fault"] == "setup_error"
        assert (await session.post("/ping")).status_code == 200
        await session.post("/delete")
        assert (await session.post("/ping")).status_code == 410
    assert steps(log) == ["constructor", "setup", "teardown"]


@pytest.mark.conformance("P-6-constructor-failed")
async def test_a_failed_constructor_leaves_no_session(server: ServerProcess, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with Target.open(server.url, env="fragile") as target:
        session = TargetSession(target, await target.new_sid())
        task = {"fail": "constructor", "log": str(log)}
        answer = await session.post("/create", {"env_name": "fragile", "task_spec": task})
        assert answer.status_code == 500
        assert "constructor broke" in answer.json()["detail"]
        assert (await session.post("/ping")).status_code == 404
        again = await session.post("/create", {"env_name": "fragile", "task_spec": {}})
        assert again.status_code == 200
        await session.post("/delete")
    assert steps(log) == ["constructor"]


@pytest.mark.conformance("P-6-prompt-failed")
async def test_a_failed_prompt_leaves_the_session_alone(server: ServerProcess) -> None:
    async with session_of(server.url, "fragile", {"fail": "prompt"}) as session:
        answer = await session.get("/fragile/prompt")
        assert answer.status_code == 500
        assert answer.headers["x-orsay-fault"] == "prompt_error"
        assert text_of(await session.call("touch", {})) == "touched"


@pytest.mark.conformance("P-6-delete-during-setup", "L2")
async def test_delete_during_setup_tears_down_and_answers_who_waits(
    server: ServerProcess, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with session_of(server.url, "fragile", {"setup_s": 60, "log": str(log)}) as session:
        waiting = asyncio.create_task(session.get("/fragile/prompt"))
        await until(lambda: asyncio.sleep(0, steps(log)[1:] == ["setup"]))
        async with asyncio.timeout(15):
            assert (await session.post("/delete")).status_code == 200
            answer = await waiting
        assert answer.status_code == 410
        assert "deleted" in answer.json()["detail"]
    assert steps(log) == ["constructor", "setup", "teardown"]


@pytest.mark.conformance("P-6-teardown-once", "L2")
async def test_teardown_runs_once_however_often_delete_is_called(
    server: ServerProcess, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    async with session_of(server.url, "fragile", {"fail": "teardown", "log": str(log)}) as session:
        await session.get("/fragile/prompt")
        answers = await asyncio.gather(*(session.post("/delete") for _ in range(5)))
        assert [answer.status_code for answer in answers] == [200] * 5
    assert steps(log) == ["constructor", "setup", "prompt", "teardown"]


@pytest.mark.conformance("L2")
async def test_delete_during_a_call_ends_its_stream(server: ServerProcess, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    async with session_of(server.url, "busy") as session:
        async with open_stream(session, "note", {"path": str(marks), "seconds": 60}) as stream:
            assert (await stream.event()).event == "task_id"
            assert (await session.post("/delete")).status_code == 200
            kinds = [(await stream.event()).event, (await stream.event()).event]
        assert kinds == ["fault", "error"]
    assert steps(marks) == ["stopped"]
