"""State of an episode, observed by a tool that counts calls: only calls change it, one step each."""

from __future__ import annotations

from orsay.conformance.check import standard
from orsay.conformance.concurrent import at_once
from orsay.conformance.failures import Failed, NotSupported, expect
from orsay.conformance.target import Target

_AT_ONCE = 3


@standard(
    "reading-changes-nothing",
    "3.2",
    "Reading prompt, messages and tools, and /ping, leave the state of an episode as it is.",
)
async def reading_changes_nothing(target: Target) -> None:
    counter = await target.probe.counter()
    async with target.session() as session:
        for wanted, path in enumerate((None, "/prompt", "/messages", "/task_tools"), 1):
            if path is not None:
                await session.get(target.path(path))
                await session.post("/ping")
            reply = await session.call(counter.tool, counter.value)
            counter.expect_runs(reply, wanted, f"after {wanted} calls and GET {path or 'nothing'}")


@standard("raising-loses-nothing", "9", "A tool that raises runs once, and its session continues from there.")
async def raising_loses_nothing(target: Target) -> None:
    counter = await target.probe.counter()
    name, value = await target.probe.raising()
    async with target.session() as session:
        for wanted in (1, 2):
            before = await session.call(counter.tool, counter.value)
            counter.expect_runs(before, wanted, f"after {wanted} calls")
        raised = await session.call(name, value)
        if raised.raised is None:
            raise NotSupported(f"{name} raises in a new session, but not later")
        after = await session.call(counter.tool, counter.value)
    if not counter.alike(before, after):
        raise NotSupported(f"{counter.tool} shows other numbers after {name} has raised")
    try:
        runs = counter.runs(after)
    except Failed as exc:
        raise NotSupported(f"{name} moves the number of {counter.tool} itself: {exc}") from exc
    words = f"after 2 calls, {name}, which raises, and another call, {counter.tool} counts {runs}"
    expect(runs != 1, f"{words}: the state of the session is lost")
    if runs < 3:
        raise NotSupported(f"{words}: {name} takes back a call")
    # The number may count calls of every tool, including those that raise.
    expect(runs <= 4, f"{words}, not 3 or 4: {name} ran several times")


@standard(
    "counts-at-once", "9", "Calls of one tool at the same time run one after the other: each one counts."
)
async def counts_at_once(target: Target) -> None:
    counter = await target.probe.counter()
    async with target.session() as session:
        calls = (session.call(counter.tool, counter.value) for _ in range(_AT_ONCE))
        replies = await at_once(*calls)
        after = await session.call(counter.tool, counter.value)
    expect(len({reply.task_id for reply in replies}) == _AT_ONCE, "two calls at once share a task id")
    counts, last = sorted(counter.runs(reply) for reply in replies), counter.runs(after)
    if (counts, last) == ([*range(1, _AT_ONCE + 1)], _AT_ONCE + 1):
        return
    words = f"{_AT_ONCE} calls of {counter.tool} at once count {counts}, and the next one {last}"
    if "message_block_types" not in target.tools:
        raise NotSupported(f"servers before openreward 0.1.157 and ors-sdk do not queue calls: {words}")
    if last == _AT_ONCE + 1:
        raise NotSupported(f"{words}: none is lost, and they overlap, as those of a concurrent tool may")
    raise Failed(words)
