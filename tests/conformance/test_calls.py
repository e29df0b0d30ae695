"""How calls of one session run beside each other, end, break and are read again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from ..interop.servers import ServerProcess
from .playing import error_of, fault_of, open_stream, session_of, text_of

pytestmark = pytest.mark.process


@pytest.mark.conformance("P-9-same-tool-serial")
async def test_calls_of_one_tool_run_one_after_the_other(server: ServerProcess) -> None:
    async with session_of(server.url, "busy") as session:
        replies = await asyncio.gather(*(session.call("one", {"label": label}) for label in "abc"))
        assert [text_of(reply) for reply in replies] == ["alone"] * 3


@pytest.mark.conformance("P-9-other-tools-overlap")
async def test_calls_of_different_tools_overlap(server: ServerProcess) -> None:
    async with session_of(server.url, "busy") as session:
        replies = await asyncio.gather(
            session.call("one", {"label": "a", "seconds": 0.5}),
            session.call("two", {"label": "b", "seconds": 0.5}),
        )
        assert [text_of(reply) for reply in replies] == ["two-b", "one-a"]


@pytest.mark.conformance("P-9-concurrent")
async def test_calls_of_a_concurrent_tool_overlap(server: ServerProcess) -> None:
    async with session_of(server.url, "busy") as session:
        replies = await asyncio.gather(
            *(session.call("free", {"label": label, "seconds": 0.5}) for label in "ab")
        )
        assert [text_of(reply) for reply in replies] == ["free-b", "free-a"]


@pytest.mark.conformance("P-9-exclusive")
async def test_an_exclusive_tool_runs_alone(server: ServerProcess) -> None:
    async with session_of(server.url, "busy") as session:
        names = ("one", "only", "two", "only", "free")
        calls = (session.call(name, {"label": str(i)}) for i, name in enumerate(names))
        results = dict(zip(names, [text_of(reply) for reply in await asyncio.gather(*calls)], strict=True))
        assert results["only"] == "alone"
        assert not any("only" in beside for name, beside in results.items() if name != "only")


@pytest.mark.conformance("P-9-wrong-return", "P-16-fault-event")
async def test_a_tool_that_returns_nothing_is_an_error_that_names_it(server: ServerProcess) -> None:
    async with session_of(server.url, "odd") as session:
        reply = await session.call("nothing", {})
        assert "nothing" in error_of(reply)
        assert fault_of(reply)["class"] == "tool_error"
        assert (await session.post("/ping")).status_code == 200


@pytest.mark.conformance("D3", "P-16-fault-event")
@pytest.mark.parametrize("kind", ["nan", "inf", "-inf"])
async def test_a_reward_that_is_no_number_is_an_error_that_names_the_tool(
    server: ServerProcess, kind: str
) -> None:
    async with session_of(server.url, "odd") as session:
        reply = await session.call("reward", {"kind": kind})
        assert "reward" in error_of(reply)
        assert fault_of(reply)["class"] == "bad_reward"
        assert (await session.call("reward", {"kind": "zero"})).result["output"]["reward"] == 0.0


@pytest.mark.conformance("P-4-metadata-nan")
async def test_numbers_in_metadata_that_json_lacks_become_null(server: ServerProcess) -> None:
    async with session_of(server.url, "odd") as session:
        reply = await session.call("metadata", {})
        assert reply.result["output"]["metadata"] == {"nan": None, "inf": None, "fine": 1.5}


@pytest.mark.conformance("P-5.2-error-event", "P-9-tool-raises")
@pytest.mark.parametrize("text", ["", "one line", "two\nlines", "a\r\nb\rc", "data: x", "\u2028 é \x00"])
async def test_an_exception_reaches_the_client_whatever_its_text(server: ServerProcess, text: str) -> None:
    async with session_of(server.url, "odd") as session:
        results = error_of(await session.call("fail", {"text": text}))
        assert text.replace("\r\n", "\n").replace("\r", "\n") in results


@pytest.mark.conformance("I3")
@pytest.mark.parametrize("kind", ["exit", "interrupt", "cancelled"])
async def test_exceptions_that_end_programs_end_a_call_only(server: ServerProcess, kind: str) -> None:
    async with session_of(server.url, "odd") as session:
        reply = await session.call("give_up", {"kind": kind})
        assert reply.events[-1].event == "error"
        assert (await session.target.get("/health")).status_code == 200
    async with session_of(server.url, "odd") as other:
        assert (await other.call("reward", {"kind": "zero"})).result["ok"] is True


@pytest.mark.conformance("P-9-first-finisher", "D4")
async def test_calls_still_running_when_the_episode_finishes_are_discarded(server: ServerProcess) -> None:
    async with session_of(server.url, "busy") as session:
        async with open_stream(session, "free", {"label": "slow", "seconds": 0.8}) as stream:
            assert (await stream.event()).event == "task_id"
            assert (await session.call("finish", {})).result["output"]["finished"] is True
            last = await stream.event()
        assert last.event == "end"
        assert json.loads(last.data)["reason"] == "episode_finished"
        late = await session.call("free", {"label": "late"})
        assert late.result["reason"] == "episode_finished"


@pytest.mark.conformance("P-5.4-task-id-at-once", "P-10-attach-running", "D5")
async def test_a_running_call_is_attached_to_by_its_task_id(server: ServerProcess) -> None:
    async with session_of(server.url, "busy") as session:
        async with open_stream(session, "one", {"label": "a", "seconds": 1.0}) as stream:
            task_id = (await stream.event()).data
            other = await session.call("one", {"label": "ignored"}, task_id=task_id)
            assert other.task_id == task_id
            last = await stream.event()
        assert json.loads(last.data) == other.result
        again = await session.call("one", {"label": "a"}, task_id=task_id)
        assert again.result == other.result


@pytest.mark.conformance("P-9-disconnect", "D2", "D5")
async def test_a_client_that_lost_its_connection_comes_back_for_the_result(
    server: ServerProcess, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    async with session_of(server.url, "busy") as session:
        value = {"path": str(marks), "seconds": 0.8}
        async with open_stream(session, "note", value) as stream:
            task_id = (await stream.event()).data
        reply = await session.call("note", value, task_id=task_id)
        assert text_of(reply) == "noted"
    assert marks.read_text().splitlines() == ["done"]


@pytest.mark.conformance("D2")
async def test_a_retry_without_a_task_id_attaches_to_the_broken_call(
    server: ServerProcess, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    value = {"path": str(marks), "seconds": 0.8}
    async with session_of(server.url, "busy") as session:
        async with open_stream(session, "note", value):
            pass
        # As released clients do that lost the connection before they read the task id.
        assert text_of(await session.call("note", value)) == "noted"
        assert marks.read_text().splitlines() == ["done"]
        assert text_of(await session.call("note", {**value, "seconds": 0})) == "noted"
    assert marks.read_text().splitlines() == ["done", "done"]


@pytest.mark.conformance("D2")
async def test_a_key_makes_a_call_run_once(server: ServerProcess, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    value, key = {"path": str(marks), "seconds": 0.3}, {"Idempotency-Key": "once"}
    async with session_of(server.url, "busy") as session:
        async with open_stream(session, "note", value, key):
            pass
        replies = await asyncio.gather(*(session.call("note", value, headers=key) for _ in range(3)))
        assert {text_of(reply) for reply in replies} == {"noted"}
        assert len({reply.task_id for reply in replies}) == 1
    assert marks.read_text().splitlines() == ["done"]


@pytest.mark.conformance("D5", "P-10-attach-endpoint")
async def test_a_task_id_is_known_in_its_session_at_its_endpoint_only(server: ServerProcess) -> None:
    async with session_of(server.url, "kit") as session, session_of(server.url, "kit") as other:
        first = await session.call("add", {"n": 1})
        foreign = await other.call("add", {"n": 1}, task_id=first.task_id)
        assert error_of(foreign) == "unknown task_id"
        body = {"candidates": [], "task_id": first.task_id}
        elsewhere = await session.stream("/score_group", body)
        assert error_of(elsewhere) == "unknown task_id"
        assert (await session.call("add", {"n": 1}, task_id=first.task_id)).result == first.result


CANDIDATE = {"messages": [{"role": "assistant", "blocks": [{"type": "text", "text": "four"}]}]}


@pytest.mark.conformance("P-10-score-group-attach")
async def test_a_group_score_is_read_again_by_its_task_id(server: ServerProcess) -> None:
    async with session_of(server.url, "kit") as session:
        first = await session.stream("/score_group", {"candidates": [CANDIDATE]})
        assert [score["reward"] for score in first.result["scores"]] == [4.0]
        again = await session.stream("/score_group", {"candidates": [], "task_id": first.task_id})
        assert again.result == first.result


@pytest.mark.conformance("P-11-score-group-raised")
async def test_a_failed_group_score_leaves_the_session_alone(server: ServerProcess) -> None:
    broken = {"messages": [{"role": "assistant", "blocks": [{"type": "text", "text": "fail"}]}]}
    async with session_of(server.url, "kit") as session:
        reply = await session.stream("/score_group", {"candidates": [broken]})
        assert "the judge broke" in error_of(reply)
        assert fault_of(reply)["class"] == "score_error"
        assert text_of(await session.call("add", {"n": 2})) == "2"


@pytest.mark.conformance("I5")
async def test_a_tool_past_its_own_time_limit_says_so(server: ServerProcess) -> None:
    async with session_of(server.url, "busy") as session:
        reply = await session.call("hasty", {"seconds": 60})
        assert "0.3" in error_of(reply)
        assert fault_of(reply)["class"] == "time_limit"
        assert text_of(await session.call("hasty", {"seconds": 0})) == "in time"


@pytest.mark.conformance("P-1-sessions-apart")
async def test_the_prompts_of_sessions_at_once_are_their_own(server: ServerProcess) -> None:
    async def one(number: int) -> bool:
        async with session_of(server.url, "busy", {"number": number}) as session:
            prompt = (await session.get("/busy/prompt")).json()[0]["text"]
            return bool(prompt == f"task {{'number': {number}}}")

    assert all(await asyncio.gather(*(one(number) for number in range(20))))
