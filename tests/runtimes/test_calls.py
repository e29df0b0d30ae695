"""What every runtime promises of tool calls: results, refusals, faults, limits, order."""

from __future__ import annotations

import asyncio
import json

import pytest
from orsay.errors import Overloaded
from orsay.runtimes.base import Runtime

from ..support.author_log import Log
from ..support.environments import EXCEPTIONS
from ..support.runtime_session import open_session
from ..support.runtimes import MAX_RESULT, is_ours, running_runtime
from ..support.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]


async def test_a_call_answers_with_its_result(runtime: Runtime) -> None:
    player = await open_session(runtime)
    result = await player.call("add", by=2).result()
    block = {"text": "2", "detail": None, "type": "text"}
    assert result == {
        "ok": True,
        "output": {"blocks": [block], "metadata": None, "reward": 2.0, "finished": False},
    }
    outcome = await player.call("add").value()
    assert (outcome.reward, outcome.finished) == (3.0, False)
    await player.close()


@pytest.mark.conformance("D1")
@pytest.mark.parametrize(
    "text",
    [
        " " * 40_000,
        "\n\r\n\r " * 9_000,
        "é\u2028\u2029\x85" * 9_000,
        "\u3000" * 33_000,
        "data: x\n\nevent: end",
        "",
    ],
    ids=["spaces", "breaks", "separators", "ideographic", "events", "empty"],
)
async def test_a_text_comes_back_as_it_was(runtime: Runtime, text: str) -> None:
    player = await open_session(runtime)
    assert await player.call("say", text=text).text() == text
    await player.close()


async def test_results_may_be_large_but_not_too_large(runtime: Runtime) -> None:
    player = await open_session(runtime)
    assert len(await player.call("fill", size=MAX_RESULT - 200).text()) == MAX_RESULT - 200
    fault = await player.call("fill", size=MAX_RESULT).fault()
    assert (
        fault.fault == "result_too_large" and "'fill'" in fault.message and str(MAX_RESULT) in fault.message
    )
    await player.close()


@pytest.mark.conformance("I6")
async def test_a_prompt_may_not_be_too_large(runtime: Runtime) -> None:
    player = await open_session(runtime, number="x" * MAX_RESULT)
    assert (await player.start("prompt").fault()).fault == "result_too_large"
    assert (await player.start("messages").fault()).fault == "result_too_large"
    await player.close()


# refusals


@pytest.mark.conformance("S5")
@pytest.mark.parametrize(
    "name",
    ["nope", "", "trap", "__class__", "task_spec", "secrets", "note", "setup", "teardown", "__init__", "SAY"],
)
async def test_only_tools_are_found_by_name(runtime: Runtime, log: Log, name: str) -> None:
    player = await open_session(runtime, log=str(log.path))
    assert await player.call(name).reason() == "not_found"
    assert "trapped" not in log.lines and log.count("setup") == 1
    await player.close()


async def test_a_tool_that_only_the_task_lists_can_be_called(runtime: Runtime) -> None:
    player = await open_session(runtime)
    assert "hidden" in [tool["name"] for tool in (await player.start("task_tools").result())["tools"]]
    assert await player.call("hidden").text() == "found"
    await player.close()


async def test_a_wrong_input_is_refused_and_nothing_runs(runtime: Runtime, log: Log) -> None:
    player = await open_session(runtime, log=str(log.path))
    result = await player.call("add", by="many").result()
    assert result["ok"] is False and result["reason"] == "input_validation" and "by" in result["error"]
    assert await player.call("add", more=1).reason() == "input_validation"
    assert await player.call("say").reason() == "input_validation"
    assert "add" not in log.lines
    await player.close()


async def test_tools_of_a_toolset_share_one_instance_per_session(runtime: Runtime, log: Log) -> None:
    one = await open_session(runtime, log=str(log.path))
    two = await open_session(runtime)
    assert [await one.call("switch").text() for _ in range(3)] == ["on", "off", "on"]
    assert await two.call("switch").text() == "on"
    assert log.count("lamp") == 1
    await one.close()
    await two.close()


@pytest.mark.conformance("I1")
async def test_the_constructor_of_a_toolset_keeps_no_other_session_waiting(
    runtime: Runtime, log: Log
) -> None:
    slow = await open_session(runtime, log=str(log.path), toolset=f"wait:{log.gate('lamp')}")
    other = await open_session(runtime)
    calls = [slow.call("switch"), slow.call("switch")]
    assert await other.call("say", text="on").text() == "on"
    assert log.count("lamp") == 0
    log.open("lamp")
    assert [await call.text() for call in calls] == ["on", "off"]
    assert log.count("lamp") == 1
    await slow.close()
    await other.close()


async def test_a_toolset_whose_constructor_failed_is_tried_again(runtime: Runtime, log: Log) -> None:
    player = await open_session(runtime, log=str(log.path), toolset="ValueError")
    for _ in range(2):
        assert (await player.call("switch").fault()).fault == "tool_error"
    assert await player.call("say", text="fine").text() == "fine"
    await player.close()


# faults


@pytest.mark.conformance("I3")
@pytest.mark.parametrize("tool", ["do", "do_async", "check"])
@pytest.mark.parametrize("how", EXCEPTIONS)
async def test_a_tool_that_raises_ends_its_call_and_nothing_else(
    runtime: Runtime, tool: str, how: str
) -> None:
    player = await open_session(runtime)
    running = player.call(tool, how=how)
    if tool == "check" and how == "ValueError":  # that is how a validator says no
        assert await running.reason() == "input_validation"
    else:
        assert (await running.fault()).fault == "tool_error"
    assert await player.call("say", text="fine").text() == "fine"
    await player.close()


async def test_a_fault_has_the_exception_and_keeps_the_traceback_apart(runtime: Runtime) -> None:
    player = await open_session(runtime)
    fault = await player.call("do", how="ValueError").fault()
    assert fault.message == "ValueError: no such door"
    if is_ours(runtime):
        assert "environments.py" in fault.trace and "Traceback" in fault.trace
    else:  # it is in the log of the server where the tool ran, under the same id
        assert fault.fault_id and fault.fault_id in fault.trace
    await player.close()


async def test_an_exception_that_is_raised_again_and_again_shows_its_last_way_only(runtime: Runtime) -> None:
    player = await open_session(runtime)
    traces = [(await player.call("do", how="ValueError").fault()).trace for _ in range(5)]
    if is_ours(runtime):
        assert traces[-1].count("environments.py") == traces[0].count("environments.py") > 0
    await player.close()


@pytest.mark.parametrize("tool", ["nothing", "odd_metadata", "half_letter"])
async def test_what_is_no_result_is_a_fault_that_names_the_tool(runtime: Runtime, tool: str) -> None:
    player = await open_session(runtime)
    fault = await player.call(tool).fault()
    assert fault.fault == "tool_error"
    assert tool in fault.message + fault.trace or (not is_ours(runtime) and fault.fault_id)
    await player.close()


@pytest.mark.conformance("D3")
@pytest.mark.parametrize("reward", ["nan", "inf", "-inf"])
async def test_a_reward_that_is_no_number_is_refused(runtime: Runtime, reward: str) -> None:
    player = await open_session(runtime)
    fault = await player.call("pay", reward=reward).fault()
    assert fault.fault == "bad_reward" and "'pay'" in fault.message
    assert (await player.call("pay", reward="1e308").value()).reward == 1e308
    await player.close()


@pytest.mark.conformance("S3")
async def test_secrets_are_taken_out_of_faults(runtime: Runtime) -> None:
    player = await open_session(runtime, secrets={"token": "swordfish-1234", "short": "ab"})
    assert await player.call("secret", how="return").text() == "swordfish-1234"
    fault = await player.call("secret").fault()
    assert "swordfish" not in fault.message + fault.trace
    assert fault.message == "ValueError: cannot log in with [secret]"
    await player.close()


# limits


@pytest.mark.conformance("I5")
@pytest.mark.parametrize("tool", ["limited", "limited_async"])
async def test_a_call_ends_at_its_time_limit(runtime: Runtime, log: Log, tool: str) -> None:
    player = await open_session(runtime, log=str(log.path))
    fault = await player.call(tool, how="wait:/nowhere").fault()
    assert fault.fault == "time_limit" and f"'{tool}'" in fault.message and "0.3 s" in fault.message
    assert await player.call(tool, how="sleep:0").text() == "done"
    await player.close()


@pytest.mark.conformance("I5", "I2")
async def test_an_endless_loop_on_a_thread_is_interrupted(runtime: Runtime, log: Log) -> None:
    player = await open_session(runtime, log=str(log.path))
    assert (await player.call("limited", how="spin").fault()).fault == "time_limit"
    await log.has("limited ended")
    assert await player.call("limited", how="sleep:0").text() == "done"
    await player.close()


@pytest.mark.conformance("I5")
async def test_a_call_that_cannot_be_interrupted_is_answered_without_it(runtime: Runtime) -> None:
    player = await open_session(runtime)
    asleep = player.call("limited", how="sleep:2.5")
    assert (await asleep.fault()).fault == "time_limit"
    assert await player.call("say", text="free").text() == "free"
    await player.close()


@pytest.mark.conformance("I5")
async def test_waiting_for_another_call_does_not_count_as_running(runtime: Runtime, log: Log) -> None:
    player = await open_session(runtime, log=str(log.path))
    held = player.call("first", gate=log.gate("first"))
    await log.has("first+")
    alone = player.call("alone", gate=log.gate("open"))
    log.open("open")
    queued = [player.call("limited_to_a_second", how="sleep:0.2") for _ in range(8)]  # one after the other
    log.open("first")
    for running in (held, alone, *queued):
        await running.text()
    await player.close()


@pytest.mark.parametrize("tool", ["first", "second"])
async def test_a_call_can_be_stopped(runtime: Runtime, log: Log, tool: str) -> None:
    player = await open_session(runtime, log=str(log.path))
    running, queued = (player.call(tool, gate=log.gate(name)) for name in "ab")
    await log.has(f"{tool}+")
    running.stop()
    assert (await running.fault()).fault == "cancelled"
    await log.has(f"{tool}+", 2)
    log.open("b")
    assert await queued.text() == tool
    queued.stop()  # too late, and harmless
    await player.close()


@pytest.mark.conformance("I1")
async def test_synchronous_tools_of_many_sessions_run_at_once(runtime: Runtime, log: Log) -> None:
    players = [await open_session(runtime, log=str(log.path)) for _ in range(100)]
    running = [player.call("first", gate=log.gate("all")) for player in players]
    await log.has("first+", 100)
    log.open("all")
    for each in running:
        assert await each.text() == "first"
    await asyncio.gather(*(player.close() for player in players))


@pytest.mark.conformance("I1")
@pytest.mark.parametrize(
    "name", ["local", "process", "remote", pytest.param("docker", marks=pytest.mark.engine)]
)
async def test_when_all_threads_are_busy_the_call_is_refused_at_once(name: str, log: Log) -> None:
    async with running_runtime(name, threads=2) as runtime:
        player = await open_session(runtime, log=str(log.path))
        held = [player.call(tool, gate=log.gate("held")) for tool in ("first", "free")]
        await log.has("first+")
        await log.has("free+")
        with pytest.raises(Overloaded, match="maximum capacity"):
            await player.call("say", text="no").value()
        log.open("held")
        for each in held:
            await each.text()
        assert await player.call("say", text="yes").text() == "yes"
        await player.close()


# order


async def test_calls_of_one_tool_run_one_after_another(runtime: Runtime, log: Log) -> None:
    player = await open_session(runtime, log=str(log.path))
    one = player.call("first", gate=log.gate("one"))
    await log.has("first+")
    two = player.call("first", gate=log.gate("two"))
    other = player.call("second", gate=log.gate("other"))
    await log.has("second+")  # another tool overlaps
    log.open("other")
    await other.text()
    assert log.count("first+") == 1
    log.open("one")
    await one.text()
    await log.has("first+", 2)
    log.open("two")
    await two.text()
    await player.close()


async def test_a_concurrent_tool_overlaps_with_itself(runtime: Runtime, log: Log) -> None:
    player = await open_session(runtime, log=str(log.path))
    running = [player.call("free", gate=log.gate("free")) for _ in range(5)]
    await log.has("free+", 5)
    log.open("free")
    for each in running:
        await each.text()
    await player.close()


async def test_an_exclusive_tool_waits_for_all_and_goes_before_those_that_came_later(
    runtime: Runtime, log: Log
) -> None:
    player = await open_session(runtime, log=str(log.path))
    one = player.call("first", gate=log.gate("one"))
    await log.has("first+")
    alone = player.call("alone", gate=log.gate("alone"))
    late = player.call("second", gate=log.gate("late"))
    free = player.call("free", gate=log.gate("late"))
    log.open("one")
    log.open("late")
    await log.has("alone+")
    assert not late.ended and not free.ended
    log.open("alone")
    for each in (one, alone, late, free):
        await each.text()
    calls = [line for line in log.lines if line[-1] in "+-"]
    assert calls[:4] == ["first+", "first-", "alone+", "alone-"]
    await player.close()


@pytest.mark.conformance("D4")
async def test_after_the_end_of_the_episode_no_call_runs(runtime: Runtime, log: Log) -> None:
    player = await open_session(runtime, log=str(log.path))
    assert (await player.call("win").value()).finished
    for name in ("add", "win", "switch"):
        assert await player.call(name).reason() == "episode_finished"
    assert await player.call("nope").reason() == "not_found"
    assert "add" not in log.lines
    await player.close()


@pytest.mark.conformance("D4")
async def test_calls_that_run_or_wait_when_the_episode_ends_are_refused(runtime: Runtime, log: Log) -> None:
    player = await open_session(runtime, log=str(log.path))
    beside = player.call("first", gate=log.gate("beside"))
    ending = player.call("end_with", gate=log.gate("end"))
    await log.has("first+")
    await log.has("end_with+")
    behind = player.call("end_with", gate=log.gate("end"))
    log.open("end")
    assert (await ending.result())["output"]["finished"] is True
    log.open("beside")
    assert await behind.reason() == "episode_finished"
    assert await beside.reason() == "episode_finished"
    assert log.count("end_with+") == 1
    await player.close()


async def test_a_terminal_tool_runs_alone(runtime: Runtime, log: Log) -> None:
    player = await open_session(runtime, log=str(log.path))
    running = player.call("first", gate=log.gate("one"))
    await log.has("first+")
    answer = player.call("answer", text="42")
    later = player.call("add")
    log.open("one")
    assert await running.text() == "first"
    assert (await answer.result())["output"]["reward"] == 0.5
    assert await later.reason() == "episode_finished"
    assert "add" not in log.lines
    await player.close()


async def test_sessions_do_not_share_locks_or_ends(runtime: Runtime, log: Log) -> None:
    one, two = [await open_session(runtime, log=str(log.path)) for _ in range(2)]
    held = one.call("alone", gate=log.gate("one"))
    await log.has("alone+")
    assert (await two.call("win").value()).finished
    log.open("one")
    await held.text()
    assert await one.call("say", text="on").text() == "on"
    await one.close()
    await two.close()


async def test_many_calls_at_once_are_each_answered_once(runtime: Runtime) -> None:
    player = await open_session(runtime)
    running = [player.call("add") for _ in range(200)]
    counts = sorted([json.loads(await each.text()) for each in running])
    assert counts == list(range(1, 201))
    await player.close()
    await until(lambda: all(len(each.answers) == 1 for each in running))
