"""Tool calls: results, refusals, terminal tools, the end of an episode, attaching, group scores."""

from __future__ import annotations

import asyncio
from typing import Any

from orsay.contract.inputs import fitting, unfitting
from orsay.contract.model import Failed, NotSupported, expect, standard
from orsay.contract.target import Reply, Target

from .sessions import _blocks_in_shape


@standard("call-result", "4", "A result has ok, and an output with blocks, metadata, reward and finished.")
async def call_result(target: Target) -> None:
    name, value = await target.working()
    async with target.session() as session:
        result = (await session.call(name, value)).result
        expect(result.get("ok") is True, f"ok is {result.get('ok')!r}: {result}")
        missing = {"blocks", "metadata", "reward", "finished"} - set(result["output"])
        expect(not missing, f"the output lacks {sorted(missing)}, which clients index")
        _blocks_in_shape(result["output"]["blocks"], "the output")
        reward, finished = result["output"]["reward"], result["output"]["finished"]
        expect(reward is None or isinstance(reward, int | float), f"the reward is {reward!r}")
        expect(isinstance(finished, bool), f"finished is {finished!r}")


def _refused(reply: Reply, reason: str) -> None:
    result = reply.result
    expect(result.get("ok") is False, f"ok is {result.get('ok')!r}: {result}")
    expect(isinstance(result.get("error"), str) and result["error"], f"the error is {result.get('error')!r}")
    told = result.get("reason")
    expect(told in (None, reason), f"the reason is {told!r}, not {reason!r}")


@standard(
    "call-unknown-tool", "9", "A call of an unknown tool is refused in the stream with reason not_found."
)
async def call_unknown_tool(target: Target) -> None:
    async with target.session() as session:
        _refused(await session.call("no such tool", {}), "not_found")


@standard("call-attributes", "8", "Methods and attributes that are no tools cannot be called.")
async def call_attributes(target: Target) -> None:
    async with target.session() as session:
        for name in (
            "__init__",
            "__class__",
            "setup",
            "teardown",
            "get_prompt",
            "task_spec",
            "list_tasks",
            "",
        ):
            _refused(await session.call(name, {}), "not_found")
        expect((await session.post("/ping")).status_code == 200, "the session is gone afterwards")


@standard(
    "call-bad-input", "9", "An input that does not fit the schema is refused with reason input_validation."
)
async def call_bad_input(target: Target) -> None:
    for spec in target.tool_specs():
        wrong = unfitting(spec["input_schema"])
        if wrong is not None:
            async with target.session() as session:
                _refused(await session.call(spec["name"], wrong), "input_validation")
            return
    raise NotSupported("no tool of this environment requires anything")


@standard("call-after-refusal", "9", "A refused call changes nothing: the next call works.")
async def call_after_refusal(target: Target) -> None:
    name, value = await target.working()
    async with target.session() as session:
        await session.call("no such tool", {})
        expect((await session.call(name, value)).result.get("ok") is True, "the call after it is refused")


@standard("call-body", "3.2", "A call without a name, or whose input is no object, answers 422.")
async def call_body(target: Target) -> None:
    async with target.session() as session:
        wrong: list[Any] = [{"input": {}}, {"name": "a"}, {"name": "a", "input": []}]
        wrong += [{"name": "a", "input": None}, []]
        for body in wrong:
            answer = await session.post(target.path("/call"), body)
            expect(answer.status_code == 422, f"{body!r} answered {answer.status_code}")


@standard("call-no-argument", "8", "A tool without arguments takes an empty object as input.")
async def call_no_argument(target: Target) -> None:
    for spec in target.tool_specs():
        if spec["input_schema"] is None:
            async with target.session() as session:
                reply = await session.call(spec["name"], {})
                if reply.events[-1].event == "error":
                    raise NotSupported(f"{spec['name']} raises: {reply.events[-1].data[:100]}")
                expect(reply.result.get("ok") is True, f"{spec['name']} answered {reply.result}")
            return
    raise NotSupported("every tool of this environment takes arguments")


@standard("call-path-case", "7", "A call reaches its session in any letter case of the environment.")
async def call_path_case(target: Target) -> None:
    async with target.session() as session:
        answer = await session.post(f"/{target.env.upper()}/call", {"name": "no such tool", "input": {}})
        expect(answer.status_code == 200, f"answered {answer.status_code}")


@standard(
    "calls-at-once", "9", "Calls of one session at the same time all come back, each with its own task id."
)
async def calls_at_once(target: Target) -> None:
    async with target.session() as session:
        replies = await asyncio.gather(*(session.call("no such tool", {}) for _ in range(8)))
        expect(all(reply.result.get("ok") is False for reply in replies), "a call was not answered")
        expect(len({reply.task_id for reply in replies}) == 8, "two calls share a task id")


@standard("sessions-at-once", "9", "Calls of many sessions at the same time all come back.")
async def sessions_at_once(target: Target) -> None:
    name, value = await target.working()

    async def one() -> bool:
        async with target.session() as session:
            return bool((await session.call(name, value)).result.get("ok"))

    good = await asyncio.gather(*(one() for _ in range(8)))
    expect(all(good), f"{good.count(False)} of 8 calls were refused")


@standard(
    "episode-finished", "9", "After finished is true, later calls are refused with reason episode_finished."
)
async def episode_finished(target: Target) -> None:
    probe = await target.probe()
    if probe.finishing is None:
        raise NotSupported("no tool of this environment ends the episode with an input made from its schema")
    name, value = probe.finishing
    async with target.session() as session:
        expect(
            (await session.call(name, value)).result["output"]["finished"] is True,
            f"{name} no longer finishes",
        )
        later = (await session.call(name, value)).result
        if later.get("ok") is True:
            raise NotSupported("servers before openreward 0.1.157 and ors-sdk go on after the end")
        expect(later.get("reason") == "episode_finished", f"the reason is {later.get('reason')!r}")


@standard("terminal-tool", "8", "A terminal tool is hidden from the list, described beside it, and callable.")
async def terminal_tool(target: Target) -> None:
    spec = target.tools.get("terminal_tool")
    if spec is None:
        raise NotSupported("this environment has no terminal tool, or the server does not know of them")
    expect(set(spec) == {"name", "arg", "description"}, f"it has the keys {sorted(spec)}")
    listed = [tool["name"] for tool in target.tool_specs()]
    expect(spec["name"] not in listed, f"{spec['name']} is among the tools that a model sees")
    async with target.session() as session:
        value = {} if spec["arg"] is None else {spec["arg"]: "some last words"}
        reply = await session.call(spec["name"], value)
        if reply.events[-1].event == "error":
            raise NotSupported(f"{spec['name']} raises: {reply.events[-1].data[:100]}")
        expect(reply.result.get("ok") is True, f"it answered {reply.result}")


@standard(
    "attach-done",
    "10",
    "A call sent again with its task_id gives the same result, as often as asked, and runs once.",
)
async def attach_done(target: Target) -> None:
    name, value = await target.working()
    async with target.session() as session:
        first = await session.call(name, value)
        for _ in range(3):
            again = await session.call(name, value, task_id=first.task_id)
            expect(again.task_id == first.task_id, "the stream names another task id")
            expect(again.result == first.result, f"the result is {again.result}, it was {first.result}")


@standard("attach-ignores", "10", "With a task_id, name and input are ignored.")
async def attach_ignores(target: Target) -> None:
    name, value = await target.working()
    async with target.session() as session:
        first = await session.call(name, value)
        again = await session.call("no such tool", {"other": 1}, task_id=first.task_id)
        expect(again.result == first.result, f"the result is {again.result}, it was {first.result}")


@standard("attach-together", "10", "Several readers may attach to one call at once.")
async def attach_together(target: Target) -> None:
    name, value = await target.working()
    async with target.session() as session:
        first = await session.call(name, value)
        again = await asyncio.gather(*(session.call(name, value, task_id=first.task_id) for _ in range(4)))
        expect(all(reply.result == first.result for reply in again), "a reader got another result")


@standard(
    "attach-unknown",
    "10",
    "An unknown or empty task_id answers 200 with a single error event: unknown task_id.",
)
async def attach_unknown(target: Target) -> None:
    name, value = await target.working()
    async with target.session() as session:
        for task_id in ("0" * 32, "no such task", ""):
            reply = await session.call(name, value, task_id=task_id)
            expect(reply.status == 200, f"{task_id!r} answered {reply.status}")
            kinds = [
                event.event for event in reply.events if event.event in ("task_id", "chunk", "end", "error")
            ]
            expect(kinds == ["error"], f"{task_id!r} gives the events {kinds}")
            told = next(event.data for event in reply.events if event.event == "error")
            expect("unknown task_id" in told, f"the error is {told!r}")


@standard("attach-after-delete", "10", "After /delete a task_id can no longer be read through its session.")
async def attach_after_delete(target: Target) -> None:
    name, value = await target.working()
    async with target.session() as session:
        first = await session.call(name, value)
        await session.post("/delete")
        reply = await session.call(name, value, task_id=first.task_id)
        expect(reply.status in (404, 410), f"answered {reply.status}")


_CANDIDATE = {"messages": [{"role": "assistant", "blocks": [{"type": "text", "text": "an answer"}]}]}


@standard(
    "score-group",
    "3.2",
    "POST /{env}/score_group gives one score for each candidate, or 404 where there is none.",
)
async def score_group(target: Target) -> None:
    supported = target.tools.get("supports_score_group")
    async with target.session() as session:
        reply = await session.stream("/score_group", {"candidates": [_CANDIDATE, _CANDIDATE]})
        if not supported:
            expect(reply.status in (404, 405), f"not supported, and yet it answers {reply.status}")
            raise NotSupported("this environment does not score groups")
        if reply.events[-1].event == "error":
            raise NotSupported(f"score_group raises: {reply.events[-1].data[:100]}")
        scores = reply.result["scores"]
        expect(len(scores) == 2, f"{len(scores)} scores for 2 candidates")
        expect(all(set(score) == {"reward", "metadata"} for score in scores), f"the scores are {scores}")


@standard("score-group-messages", "4", "A candidate with a block that its role may not hold answers 422.")
async def score_group_messages(target: Target) -> None:
    if not target.tools.get("supports_score_group"):
        raise NotSupported("this environment does not score groups")
    block = {"type": "tool_result", "tool_call_id": "1", "blocks": [], "is_error": False}
    wrong = {"messages": [{"role": "assistant", "blocks": [block]}]}
    async with target.session() as session:
        answer = await session.post(target.path("/score_group"), {"candidates": [wrong]})
        expect(answer.status_code == 422, f"answered {answer.status_code}: {answer.text[:200]}")


@standard(
    "tool-raises", "9", "A tool that raises ends its stream with an error event, and the server goes on."
)
async def tool_raises(target: Target) -> None:
    for spec in target.tool_specs():
        async with target.session() as session:
            reply = await session.call(spec["name"], fitting(spec["input_schema"]))
            if not reply.events or reply.events[-1].event != "error":
                continue
            kinds = [
                event.event for event in reply.events if event.event in ("task_id", "chunk", "end", "error")
            ]
            expect(kinds == ["task_id", "error"], f"the events are {kinds}")
            expect((await session.post("/ping")).status_code == 200, "the session is gone afterwards")
            return
    raise NotSupported("no tool of this environment raises on an input made from its schema")


@standard("long-text", "5.3", "A long text comes back whole, in pieces.")
async def long_text(target: Target) -> None:
    name, field = await target.repeating()
    text = "".join(f'{i} é ☃ 😀 \\ " ' for i in range(6_000))
    async with target.session() as session:
        result = (await session.call(name, {field: text})).result
        got = "".join(block.get("text", "") for block in result["output"]["blocks"])
        if text not in got:
            raise Failed(f"{len(text)} characters sent, {len(got)} came back")


@standard("raw-utf8", "4", "Letters beyond ASCII are written as UTF-8, not escaped.")
async def raw_utf8(target: Target) -> None:
    name, field = await target.repeating()
    async with target.session() as session:
        reply = await session.call(name, {field: "é☃"})
        expect("é☃".encode() in reply.body, f"the stream is {reply.body[:300]!r}")
