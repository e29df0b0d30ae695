"""Tool calls: results, refusals, terminal tools, the end of an episode, group scores, long texts."""

from __future__ import annotations

import time
from typing import Any

from orsay.conformance.check import standard
from orsay.conformance.concurrent import at_once
from orsay.conformance.echo import require
from orsay.conformance.failures import Failed, NotSupported, expect
from orsay.conformance.inputs import fitting, unfitting
from orsay.conformance.target import Reply, Target, TargetSession

from .sessions import _blocks_in_shape


@standard("call-result", "4", "A result has ok, and an output with blocks, metadata, reward and finished.")
async def call_result(target: Target) -> None:
    await target.probe.working()
    for name, reply in (await target.probe.replies()).items():
        if reply.raised is not None:
            continue
        result = reply.result
        expect(isinstance(result.get("ok"), bool), f"{name}: ok is {result.get('ok')!r}: {result}")
        if result["ok"]:
            _output_in_shape(name, result["output"])


def _output_in_shape(name: str, output: dict[str, Any]) -> None:
    missing = {"blocks", "metadata", "reward", "finished"} - set(output)
    expect(not missing, f"the output of {name} lacks {sorted(missing)}, which clients index")
    _blocks_in_shape(output["blocks"], f"the output of {name}")
    reward, metadata = output["reward"], output["metadata"]
    number = isinstance(reward, int | float) and not isinstance(reward, bool)
    expect(reward is None or number, f"{name}: the reward is {reward!r}")
    expect(metadata is None or isinstance(metadata, dict), f"{name}: the metadata is {metadata!r}")
    expect(isinstance(output["finished"], bool), f"{name}: finished is {output['finished']!r}")


@standard("call-once", "9", "Each call runs once: a tool that counts its calls counts every one, once.")
async def call_once(target: Target) -> None:
    counter = await target.probe.counter()
    async with target.session() as session, target.session() as other:
        ids = set()
        for wanted in (1, 2, 3):
            for each in (session, other):
                reply = await each.call(counter.tool, counter.value)
                counter.expect_runs(reply, wanted, f"after {wanted} calls")
                ids.add(reply.task_id)
        expect(len(ids) == 6, "two calls share a task id")


def _refused(reply: Reply, reason: str) -> None:
    result = reply.result
    expect(result.get("ok") is False, f"ok is {result.get('ok')!r}: {result}")
    expect(isinstance(result.get("error"), str) and result["error"], f"the error is {result.get('error')!r}")
    found = result.get("reason")
    expect(found in (None, reason), f"the reason is {found!r}, not {reason!r}")


@standard(
    "call-unknown-tool", "9", "A call of an unknown tool is refused in the stream with reason not_found."
)
async def call_unknown_tool(target: Target) -> None:
    async with target.session() as session:
        _refused(await session.call("no such tool", {}), "not_found")


def private_names(target: Target) -> list[str]:
    """Names of Python methods behind tools; no tool has such a name."""
    usual = ("answer", "check", "finish", "grade", "reset", "reward", "run", "score", "state", "step")
    return [f"_{name}" for name in (*usual, *(spec["name"] for spec in target.tool_specs()))]


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
            *private_names(target),
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
    raise NotSupported("no tool of this environment has a required argument")


@standard("call-after-refusal", "9", "A refused call changes nothing: the next call works.")
async def call_after_refusal(target: Target) -> None:
    name, value = await target.probe.working()
    async with target.session() as session:
        await session.call("no such tool", {})
        expect((await session.call(name, value)).result.get("ok") is True, "the call after it is refused")
    counter = await target.probe.counter_if_any()
    if counter is None:
        return
    async with target.session() as session:
        await session.call("no such tool", {})
        for spec in target.tool_specs():
            wrong = unfitting(spec["input_schema"])
            if wrong is not None:
                _refused(await session.call(spec["name"], wrong), "input_validation")
        reply = await session.call(counter.tool, counter.value)
        counter.expect_runs(reply, 1, "after refused calls and one that is not")


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
                if reply.raised is not None:
                    raise NotSupported(f"{spec['name']} raises: {reply.raised[:100]}")
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
        replies = await at_once(*(session.call("no such tool", {}) for _ in range(8)))
        expect(all(reply.result.get("ok") is False for reply in replies), "a call was not answered")
        expect(len({reply.task_id for reply in replies}) == 8, "two calls share a task id")
    try:
        echo = await target.probe.echo()
    except (NotSupported, Failed):  # other checks report which
        return
    if echo.ends:
        return
    async with target.session() as session:
        texts = [f"text number {number} of eight" for number in range(8)]
        replies = await at_once(*(session.call(echo.tool, {echo.field: text}) for text in texts))
        for text, reply in zip(texts, replies, strict=True):
            require(text, reply)


@standard("call-again", "9", "The same call once more runs once more.")
async def call_again(target: Target) -> None:
    waiting = await target.probe.waiting()
    async with target.session() as session:
        for _ in range(2):
            begun = time.monotonic()
            reply = await session.call(waiting.tool, waiting.value)
            seconds = time.monotonic() - begun
            expect(reply.result.get("ok") is True, f"it is refused: {reply.result!r:.200}")
            wanted = waiting.value[waiting.field]
            expect(seconds >= wanted, f"{waiting.tool} of {wanted} s was answered after {seconds:.2f} s")


@standard("sessions-at-once", "9", "Calls of many sessions at the same time all come back.")
async def sessions_at_once(target: Target) -> None:
    name, value = await target.probe.working()

    async def one() -> bool:
        async with target.session() as session:
            return bool((await session.call(name, value)).result.get("ok"))

    good = await at_once(*(one() for _ in range(8)))
    expect(all(good), f"{good.count(False)} of 8 calls were refused")


@standard(
    "episode-finished", "9", "After finished is true, later calls are refused with reason episode_finished."
)
async def episode_finished(target: Target) -> None:
    name, value = await target.probe.finishing()
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
        if reply.raised is not None:
            raise NotSupported(f"{spec['name']} raises: {reply.raised[:100]}")
        expect(reply.result.get("ok") is True, f"it answered {reply.result}")


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
        if reply.raised is not None:
            raise NotSupported(f"score_group raises: {reply.raised[:100]}")
        scores = reply.result["scores"]
        expect(len(scores) == 2, f"{len(scores)} scores for 2 candidates")
        expect(all(set(score) == {"reward", "metadata"} for score in scores), f"the scores are {scores}")
        numbers = [score["reward"] for score in scores]
        good = all(isinstance(each, int | float) and not isinstance(each, bool) for each in numbers)
        expect(good, f"the rewards are {numbers}")


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
    "tool-raises", "9", "A tool that raises ends its stream with an error event, and the server continues."
)
async def tool_raises(target: Target) -> None:
    for name, reply in (await target.probe.replies()).items():
        if reply.raised is None:
            continue
        expect(reply.kinds == ["task_id", "error"], f"the events are {reply.kinds}")
        async with target.session() as session:
            spec = next((each for each in target.tool_specs() if each["name"] == name), None)
            await session.call(name, fitting(spec and spec["input_schema"]))
            expect((await session.post("/ping")).status_code == 200, "the session is gone afterwards")
        return
    raise NotSupported("no tool of this environment raises on an input made from its schema")


@standard("long-text", "5.3", "A long text comes back whole, in pieces.")
async def long_text(target: Target) -> None:
    echo = await target.probe.echo()
    text = echo.cut("".join(f'{i} é ☃ 😀 \\ " ' for i in range(6_000)))
    async with target.session() as session:
        require(text, await session.call(echo.tool, {echo.field: text}))


@standard("long-texts-apart", "1", "Long texts of sessions at the same time come back to their own session.")
async def long_texts_apart(target: Target) -> None:
    echo = await target.probe.echo()

    async def one(session: TargetSession, letter: str) -> None:
        text = echo.cut(f"{letter}:" + f"{letter} {letter.upper()} " * 9_000)
        require(text, await session.call(echo.tool, {echo.field: text}))

    async with target.session() as a, target.session() as b, target.session() as c:
        sessions = dict(zip("qwz", (a, b, c), strict=True))
        await at_once(*(one(session, letter) for letter, session in sessions.items()))


@standard("raw-utf8", "4", "Letters beyond ASCII are written as UTF-8, not escaped.")
async def raw_utf8(target: Target) -> None:
    echo = await target.probe.echo()
    async with target.session() as session:
        reply = await session.call(echo.tool, {echo.field: "é☃"})
        expect("é☃".encode() in reply.body, f"the stream is {reply.body[:300]!r}")
