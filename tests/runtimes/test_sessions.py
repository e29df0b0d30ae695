"""What every runtime promises: opening, setup, reading and closing of sessions."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import pytest
from orsay.errors import (
    BadTask,
    Faulted,
    InvalidIndex,
    InvalidSplit,
)
from orsay.runtimes.base import OpenSession, Runtime, TaskQuery

from ..support.author_log import Log
from ..support.environments import EXCEPTIONS
from ..support.runtime_session import RuntimeSession, open_session
from ..support.runtimes import is_ours

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]
HOOKS = ("scripted", "asyncscripted")


async def ask(
    runtime: Runtime, ask: str, split: str = "train", key: str = "scripted", **numbers: int | None
) -> object:
    query = TaskQuery.model_validate({"key": key, "split": split, "ask": ask, **numbers})
    found: object = json.loads(await runtime.tasks(query))
    return found


# discovery


async def test_the_runtime_describes_its_environments(runtime: Runtime) -> None:
    scripted, other, plain, bad = runtime.environments
    assert (scripted.name, scripted.key) == ("Scripted", "scripted")
    assert scripted.supports_score_group and not plain.supports_score_group
    assert [split.name for split in scripted.splits] == ["train", "many", "none"]
    assert scripted.tool_time_limits_s == {"limited": 0.3, "limited_async": 0.3, "limited_to_a_second": 1.0}
    assert scripted.detached_tools == {"detached"}
    assert [tool.name for tool in plain.listing.tools] == ["echo"]
    assert (other.name, bad.name) == ("AsyncScripted", "BadTasks")
    assert plain.description == "No hooks at all."


async def test_tasks_are_counted_got_and_listed(runtime: Runtime) -> None:
    assert await ask(runtime, "list") == [{"number": 0}, {"number": 1}, {"number": 2}]
    assert await ask(runtime, "count") == 3
    assert await ask(runtime, "count", "many") == 1000
    assert await ask(runtime, "one", "many", index=999) == {"number": 999}
    assert await ask(runtime, "one", index=-1) == {"number": 2}
    assert await ask(runtime, "range", "many", start=998, stop=None) == [{"number": 998}, {"number": 999}]
    assert await ask(runtime, "list", "none") == []
    assert await ask(runtime, "count", "none") == 0


async def test_an_unknown_split_or_index_is_refused(runtime: Runtime) -> None:
    with pytest.raises(InvalidSplit, match="dusk"):
        await ask(runtime, "count", "dusk")
    for split, index in (("train", 3), ("train", -4), ("many", 1000), ("none", 0), ("train", 10**30)):
        with pytest.raises(InvalidIndex, match="index"):
            await ask(runtime, "one", split, index=index)


@pytest.mark.conformance("I3")
@pytest.mark.parametrize("how", EXCEPTIONS)
async def test_tasks_that_raise_are_a_fault_of_the_environment(runtime: Runtime, how: str) -> None:
    with pytest.raises(Faulted) as caught:
        await ask(runtime, "count", how, key="badtasks")
    assert caught.value.fault == "task_error"
    with pytest.raises(Faulted) as caught:
        await runtime.open(OpenSession(key="badtasks", split=how, index=0), RuntimeSession())
    assert caught.value.fault == "task_error"


async def test_a_task_that_is_no_object_is_a_fault_of_the_environment(runtime: Runtime) -> None:
    with pytest.raises(Faulted, match="JSON object") as caught:
        await ask(runtime, "one", key="badtasks", index=0)
    assert caught.value.fault == "task_error"


# opening


async def test_a_session_is_opened_by_its_task(runtime: Runtime) -> None:
    player = await open_session(runtime, number=7)
    assert await player.start("prompt").result() == [{"text": "Task 7", "detail": None, "type": "text"}]
    messages = await player.start("messages").result()
    assert [(m["role"], m["blocks"][0]["text"]) for m in messages] == [("user", "Task 7")]
    await player.close()


async def test_a_session_is_opened_by_split_and_index(runtime: Runtime) -> None:
    player = RuntimeSession()
    player.handle = await runtime.open(OpenSession(key="scripted", split="many", index=-1), player)
    assert await player.ready() is None
    assert (await player.start("prompt").result())[0]["text"] == "Task 999"
    await player.close()


async def test_a_session_may_not_be_opened_outside_its_tasks(runtime: Runtime) -> None:
    for split, index, error in (("dusk", 0, InvalidSplit), ("train", 3, InvalidIndex)):
        with pytest.raises(error):
            await runtime.open(OpenSession(key="scripted", split=split, index=index), RuntimeSession())


async def test_a_session_without_setup_is_ready_at_once(runtime: Runtime) -> None:
    player = RuntimeSession()
    player.handle = await runtime.open(OpenSession(key="plain", split="train", index=0), player)
    assert player.setups == [None]
    result = await player.call("echo", text="hello").result()
    assert result["output"]["reward"] == 1.0 and result["output"]["finished"] is True
    await player.close()


async def test_an_episode_that_changes_its_task_changes_no_other(runtime: Runtime) -> None:
    one, two = [await open_session(runtime, key="plain", ready=True, target="hello") for _ in range(2)]
    for player in (one, two):
        assert (await player.call("echo", text="hello").result())["ok"]
        await player.close()


async def test_a_toolset_that_is_not_there_is_refused_and_what_was_built_is_torn_down(
    runtime: Runtime, log: Log
) -> None:
    request = OpenSession(key="scripted", task_spec={"log": str(log.path)}, toolset_name="nonsense")
    with pytest.raises(BadTask, match="nonsense"):
        await runtime.open(request, RuntimeSession())
    await log.has("gone")
    assert log.count("teardown") == 1


async def test_a_session_has_the_toolset_that_was_asked_for(runtime: Runtime) -> None:
    pytest.importorskip("openreward.toolsets", reason="needs the package openreward")
    player = RuntimeSession()
    request = OpenSession(key="scripted", task_spec={}, toolset_name="web", secrets={"api_key": "a-key"})
    try:
        player.handle = await runtime.open(request, player)
    except BadTask as refusal:
        assert "oolset" in str(refusal)
        return
    tools = (await player.start("task_tools").result())["tools"]
    assert {"web_fetch", "web_search"} <= {tool["name"] for tool in tools}
    await player.close()


@pytest.mark.conformance("I3")
@pytest.mark.parametrize("how", EXCEPTIONS)
async def test_a_constructor_that_raises_leaves_nothing_behind(runtime: Runtime, log: Log, how: str) -> None:
    with pytest.raises(Faulted) as caught:
        await open_session(runtime, log=str(log.path), constructor=how)
    assert caught.value.fault == "setup_error"
    assert log.lines == ["construct"]
    assert await (await open_session(runtime)).call("say", text="still here").text() == "still here"


@pytest.mark.conformance("L2")
async def test_an_open_that_is_given_up_during_the_constructor_is_torn_down(
    runtime: Runtime, log: Log
) -> None:
    gate = log.gate("constructor")
    opening = asyncio.ensure_future(open_session(runtime, log=str(log.path), constructor=f"wait:{gate}"))
    await log.has("construct")
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    log.open("constructor")  # an interrupted constructor never finishes; one that does is torn down
    await quiet(log)
    if is_ours(runtime):  # to another server the word may be on its way still
        assert "setup" not in log.lines
    assert log.count("constructed") == log.count("teardown") == log.count("gone")


async def quiet(log: Log) -> None:
    """What was built is torn down, and nothing more happens for a while."""
    before: list[str] | None = None
    async with asyncio.timeout(20):
        while before != log.lines or log.count("constructed") != log.count("gone"):
            before = log.lines
            await asyncio.sleep(0.3)


@pytest.mark.conformance("L2")
@pytest.mark.parametrize("steps", [range(12), range(0, 120, 2)], ids=["turns", "moments"])
async def test_an_open_that_is_given_up_just_as_it_succeeds_is_torn_down(
    runtime: Runtime, log: Log, steps: range
) -> None:
    for step in steps:
        opening = asyncio.ensure_future(open_session(runtime, ready=False, log=str(log.path)))
        if len(steps) > 12:
            await asyncio.sleep(step / 20_000)  # 0 to 6 ms: an open takes about 1
        else:
            await log.has("constructed", log.count("constructed") + 1)
            for _ in range(step):
                await asyncio.sleep(0)
        opening.cancel()
        with suppress(asyncio.CancelledError):
            await (await opening).close()
    player = await open_session(runtime, log=str(log.path))
    async with asyncio.timeout(10):
        while await player.call("census").text() != "1":  # instances that are left, its own among them
            await asyncio.sleep(0.05)
    assert log.count("teardown") == log.count("gone")
    await player.close()


# setup


@pytest.mark.parametrize("key", HOOKS)
async def test_setup_goes_on_in_the_background(runtime: Runtime, log: Log, key: str) -> None:
    player = await open_session(
        runtime, key, ready=False, log=str(log.path), setup=f"wait:{log.gate('setup')}"
    )
    await log.has("setup")
    assert player.setups == []
    tools = await player.start("task_tools").result()
    assert "say" in {tool["name"] for tool in tools["tools"]}
    log.open("setup")
    assert await player.ready() is None
    await player.close()


@pytest.mark.conformance("I3", "L2")
@pytest.mark.parametrize("how", EXCEPTIONS)
@pytest.mark.parametrize("key", HOOKS)
async def test_a_setup_that_raises_is_reported_and_still_torn_down(
    runtime: Runtime, log: Log, key: str, how: str
) -> None:
    player = await open_session(runtime, key, ready=False, log=str(log.path), setup=how)
    error = await player.ready()
    assert isinstance(error, Faulted) and error.fault == "setup_error"
    await player.close()
    assert log.count("teardown") == log.count("gone") == 1


@pytest.mark.conformance("I3")
@pytest.mark.parametrize("how", EXCEPTIONS)
@pytest.mark.parametrize("key", HOOKS)
async def test_a_hook_that_raises_is_a_fault_of_that_request_only(
    runtime: Runtime, key: str, how: str
) -> None:
    player = await open_session(runtime, key, prompt=how, task_tools=how, score=how)
    for operation, expected in (
        ("prompt", "prompt_error"),
        ("messages", "prompt_error"),
        ("task_tools", "prompt_error"),
    ):
        assert (await player.start(operation).fault()).fault == expected  # type: ignore[arg-type]
    assert (await player.score(2).fault()).fault == "score_error"
    assert await player.call("say", text="fine").text() == "fine"
    await player.close()


# scoring


async def test_groups_are_scored_in_order(runtime: Runtime) -> None:
    player = await open_session(runtime)
    assert await player.score(3).result() == {
        "scores": [{"reward": float(n), "metadata": None} for n in range(3)]
    }
    await player.close()


@pytest.mark.conformance("D3")
@pytest.mark.parametrize("score", ["nan", "inf", "-inf"])
async def test_a_score_that_is_no_number_is_refused(runtime: Runtime, score: str) -> None:
    player = await open_session(runtime, scores=["1", score])
    fault = await player.score(2).fault()
    assert fault.fault == "bad_reward" and "score_group" in fault.message and "candidate 1" in fault.message
    await player.close()


async def test_too_few_scores_are_a_fault(runtime: Runtime) -> None:
    player = await open_session(runtime, scores=["1"])
    assert (await player.score(2).fault()).fault == "score_error"
    await player.close()


# closing


@pytest.mark.conformance("L2")
@pytest.mark.parametrize("key", HOOKS)
async def test_teardown_runs_once_however_often_a_session_is_closed(
    runtime: Runtime, log: Log, key: str
) -> None:
    player = await open_session(runtime, key, log=str(log.path), teardown="sleep:0.05")
    await asyncio.gather(*(player.close() for _ in range(4)))
    assert log.count("teardown") == log.count("gone") == 1


@pytest.mark.conformance("L2")
@pytest.mark.parametrize("key", HOOKS)
async def test_closing_during_setup_stops_it_and_tears_down_once(
    runtime: Runtime, log: Log, key: str
) -> None:
    player = await open_session(runtime, key, ready=False, log=str(log.path), setup="wait:/nowhere")
    await log.has("setup")
    await player.close()
    assert log.lines[-2:] == ["teardown", "gone"]
    assert log.count("teardown") == 1 and "ready" not in log.lines


@pytest.mark.conformance("L2", "I5")
@pytest.mark.parametrize("tool", ["first", "second"])
async def test_closing_stops_running_calls_and_answers_them(runtime: Runtime, log: Log, tool: str) -> None:
    player = await open_session(runtime, log=str(log.path))
    running = player.call(tool, gate=log.gate("never"))
    queued = player.call(tool, gate=log.gate("never"))
    await log.has(f"{tool}+")
    await player.close()
    assert (await running.fault()).fault == "cancelled"
    assert (await queued.fault()).fault == "cancelled"
    assert log.count("teardown") == 1 and log.count(f"{tool}+") == 1


@pytest.mark.conformance("L2")
async def test_closing_does_not_wait_for_a_call_that_will_not_stop(runtime: Runtime, log: Log) -> None:
    player = await open_session(runtime, log=str(log.path))
    asleep = player.call("do", how="sleep:2.5")
    stubborn = player.call("do_async", how=f"stubborn:{log.gate('mercy')}")
    await player.call("say", text="both run").text()
    await player.close()
    assert (await asleep.fault()).fault == "cancelled"
    assert (await stubborn.fault()).fault == "cancelled"
    assert log.count("teardown") == 1
    log.open("mercy")


@pytest.mark.conformance("I3")
@pytest.mark.parametrize("how", EXCEPTIONS)
@pytest.mark.parametrize("key", HOOKS)
async def test_a_teardown_that_raises_is_reported_to_who_closes(
    runtime: Runtime, log: Log, key: str, how: str
) -> None:
    player = await open_session(runtime, key, log=str(log.path), teardown=how)
    with pytest.raises(Faulted):
        await player.close()
    assert log.count("teardown") == 1
    assert await (await open_session(runtime)).call("say", text="still here").text() == "still here"


@pytest.mark.conformance("L2")
async def test_a_teardown_that_hangs_is_given_up_at_its_limit(runtime: Runtime, log: Log) -> None:
    players = [await open_session(runtime, key, log=str(log.path), teardown="wait:/nowhere") for key in HOOKS]
    ends = await asyncio.gather(*(player.close() for player in players), return_exceptions=True)
    faults = [end.fault for end in ends if isinstance(end, Faulted)]
    assert faults == ["time_limit"] * len(HOOKS), ends


@pytest.mark.conformance("L2")
async def test_cancelling_the_one_who_closes_does_not_cut_teardown_short(runtime: Runtime, log: Log) -> None:
    player = await open_session(runtime, log=str(log.path), teardown=f"wait:{log.gate('teardown')}")
    closing = asyncio.ensure_future(player.close())
    await log.has("teardown")
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    log.open("teardown")
    await log.has("gone")
    assert log.count("teardown") == 1
