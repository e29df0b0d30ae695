"""Promises about calls: results are intact and private, and no call runs twice."""

from __future__ import annotations

import json
import math
import uuid
from typing import Any

from orsay_protocol.headers import IDEMPOTENCY_KEY

from orsay.conformance.check import promise
from orsay.conformance.concurrent import at_once
from orsay.conformance.counting import Counter
from orsay.conformance.echo import require
from orsay.conformance.failures import expect
from orsay.conformance.target import Target, TargetSession, fresh_sid

from .running import expect_one_run

_WHITE_SPACE = " \t\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000"


@promise(
    "D1",
    "no-leading-space",
    "No data value of a stream starts with white space, which released clients strip.",
)
async def no_leading_space(target: Target) -> None:
    echo = await target.probe.echo()
    texts = [
        echo.cut("x" * phase + space * 30_000 + (space + "ab") * 12_000)
        for space in _WHITE_SPACE
        for phase in range(3)
    ]
    # A tool that ends the episode can be called once in a session.
    size = 1 if echo.ends else len(texts)
    for first in range(0, len(texts), size):
        async with target.session() as session:
            for text in texts[first : first + size]:
                reply = await session.call(echo.tool, {echo.field: text})
                require(text, reply)
                stripped = [value for value in reply.pieces if value != value.lstrip()]
                expect(not stripped, f"a data value starts with {stripped[:1]!r:.20}")


@promise(
    "D1", "read-again", "A long text is the same, to the letter, however often and by whomever it is read."
)
async def read_again(target: Target) -> None:
    echo = await target.probe.echo()
    text = echo.cut("".join(f" {number:05d}\t\u2003é☃😀\r\n" for number in range(9_000)))
    async with target.session() as session:
        first = await session.call(echo.tool, {echo.field: text})
        readers = [session.call(echo.tool, {echo.field: ""}, task_id=first.task_id) for _ in range(3)]
        for reply in (first, *await at_once(*readers)):
            require(text, reply)
            expect(reply.result == first.result, "a reader got another result")


def _key(key: str | None = None) -> dict[str, str]:
    return {IDEMPOTENCY_KEY: key or uuid.uuid4().hex}


@promise("D2", "runs-once", "A call runs once, with an Idempotency-Key and without, and counts as one.")
async def runs_once(target: Target) -> None:
    counter = await target.probe.counter()
    async with target.session() as session:
        for wanted, headers in enumerate((None, _key(), None), 1):
            reply = await session.call(counter.tool, counter.value, headers=headers)
            counter.expect_runs(reply, wanted, f"after {wanted} calls")


@promise(
    "D2",
    "idempotency-key",
    "A call sent twice with one Idempotency-Key runs once and answers the same; another body is a 409.",
)
async def idempotency_key(target: Target) -> None:
    counter = await target.probe.counter_if_any()
    name, value = (counter.tool, counter.value) if counter else await target.probe.working()
    async with target.session() as session:
        headers = _key()
        first, second = await at_once(*(session.call(name, value, headers=headers) for _ in range(2)))
        third = await session.call(name, value, headers=headers)
        expect(first.task_id == second.task_id == third.task_id, "the same key got several task ids")
        expect(first.result == second.result == third.result, "the same key got several results")
        status = (await session.call(name, {**value, "another": 1}, headers=headers)).status
        expect(status == 409, f"another body with the same key answered {status}")
        other = await session.call(name, value, headers=_key())
        expect(other.task_id != first.task_id, "another key got the same task id")
        if counter is not None:
            counter.expect_runs(other, 2, "after a call that was sent three times with one key, and another")


@promise("D2", "broken-connection", "A call whose connection broke runs once, also when it is sent again.")
async def broken_connection(target: Target) -> None:
    counter = await target.probe.counter()
    for when in ("at once", "after task_id"):
        async with target.session() as session:
            await session.get(target.path("/prompt"))
            headers = _key()
            await _break(session, counter, headers, after=b"task_id" if when == "after task_id" else None)
            again = await session.call(counter.tool, counter.value, headers=headers)
            counter.expect_runs(again, 1, f"after a call that broke {when} and was sent again")
            after = await session.call(counter.tool, counter.value)
            counter.expect_runs(after, 2, f"after a call that broke {when}, its retry and another call")


async def _break(
    session: TargetSession, counter: Counter, headers: dict[str, str], *, after: bytes | None
) -> None:
    """Send the call and disconnect: at once, or when the answer contains ``after``."""
    async with session.target.raw() as wire:
        await session.send_raw_call(wire, counter.tool, counter.value, headers)
        if after is not None:
            await wire.read_until(after)


@promise(
    "D2",
    "broken-while-running",
    "A call whose connection broke while it ran and that is sent again with its Idempotency-Key runs once.",
)
async def broken_while_running(target: Target) -> None:
    await expect_one_run(target, _key(), attach=False)


@promise("D2", "key-of-session", "An Idempotency-Key means its own session: in another the call runs.")
async def key_of_session(target: Target) -> None:
    counter = await target.probe.counter_if_any()
    name, value = (counter.tool, counter.value) if counter else await target.probe.working()
    headers = _key()
    async with target.session() as session, target.session() as other:
        first = await session.call(name, value, headers=headers)
        foreign = await other.call(name, value, headers=headers)
        expect(first.task_id != foreign.task_id, "another session got the task id of the first")
        if counter is not None:
            counter.expect_runs(await other.call(name, value), 2, "after the same key in another session")
        await session.post("/delete")
        await session.post("/create", target.task_source())
        again = await session.call(name, value, headers=headers)
        expect(first.task_id != again.task_id, "the session made anew got the task id of the old one")


@promise("D3", "finite-rewards", "Every reward is a finite number or null, whichever tool gives it.")
async def finite_rewards(target: Target) -> None:
    replies = await target.probe.replies()
    for name, reply in replies.items():
        if reply.raised is None:
            reward = _reward("".join(reply.pieces))
            expect(_is_reward(reward), f"{name} gives the reward {reward!r:.60}, which is no finite number")
    await target.probe.working()


def _reward(text: str) -> Any:
    """The reward of the output, of any type; None for a text that other checks report."""
    try:
        # Also JSON that is not strict.
        result = json.loads(text)
    except (ValueError, RecursionError):
        return None
    output = result.get("output") if isinstance(result, dict) else None
    return output.get("reward") if isinstance(output, dict) else None


def _is_reward(value: Any) -> bool:
    try:
        return value is None or (type(value) in (int, float) and math.isfinite(value))
    except OverflowError:  # an integer beyond any double
        return False


@promise("D4", "no-call-after-finish", "After finished is true the episode takes no more calls.")
async def no_call_after_finish(target: Target) -> None:
    name, value = await target.probe.finishing()
    async with target.session() as session:
        expect(
            (await session.call(name, value)).output["finished"] is True,
            f"{name} no longer finishes",
        )
        for later in await at_once(*(session.call(name, value) for _ in range(4))):
            expect(later.result.get("reason") == "episode_finished", f"a later call answers {later.result}")
        another = await target.probe.going_on()
        if another is not None:
            later = await session.call(*another)
            reason = later.result.get("reason")
            expect(
                reason == "episode_finished", f"a later call of {another[0]} answers {later.result!r:.200}"
            )


@promise("D5", "own-session-only", "A result is read by task_id within its own session and through no other.")
async def own_session_only(target: Target) -> None:
    name, value = await target.probe.working()
    async with target.session() as session, target.session() as other:
        first = await session.call(name, value)
        expect(
            (await session.call(name, value, task_id=first.task_id)).result == first.result,
            "its own cannot read it",
        )
        candidates = {"candidates": [], "task_id": first.task_id}
        for reader, foreign in (
            ("another session", await other.call(name, value, task_id=first.task_id)),
            ("another session's /score_group", await other.stream("/score_group", candidates)),
            ("its own /score_group", await session.stream("/score_group", candidates)),
        ):
            expect(not {"end", "chunk"} & set(foreign.kinds), f"{reader} reads it: {foreign.body[:200]!r}")
        never = await TargetSession(target, fresh_sid()).call(name, value, task_id=first.task_id)
        expect(never.status == 404, f"a session that never was answers {never.status} to its task id")
        await session.post("/delete")
        late = await other.call(name, value, task_id=first.task_id)
        expect("end" not in late.kinds, "another session reads it after /delete")
        await session.post("/create", target.task_source())
        anew = await session.call(name, value, task_id=first.task_id)
        expect("end" not in anew.kinds, "a new session of the same id reads it")
