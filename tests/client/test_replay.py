"""Calls of a lost session, made again on a fresh one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from orsay_client import errors
from orsay_client.replay import AnsweredCall, answer, replay, require_same_prompt
from orsay_protocol import ImageBlock, TextBlock, ToolOutput


def output(
    text: str = "seen", reward: float | None = None, finished: bool = False, **more: Any
) -> ToolOutput:
    return ToolOutput(blocks=[TextBlock(text=text)], reward=reward, finished=finished, **more)


class Scripted:
    """A session with scripted answers, call by call."""

    def __init__(self, *answers: ToolOutput | Exception) -> None:
        self.answers = list(answers)
        self.made: list[tuple[str, Any, float | None]] = []

    async def call(self, name: str, input: Any = None, *, timeout_s: float | None = None) -> ToolOutput:
        self.made.append((name, input, timeout_s))
        found = self.answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


def answered(*answers: ToolOutput | Exception) -> list[AnsweredCall]:
    session = Scripted(*answers)

    async def play() -> list[AnsweredCall]:
        return [await answer(session, "look", {"at": at}, timeout_s=None) for at in range(len(answers))]

    return asyncio.run(play())


def test_the_calls_are_made_again_in_their_order_and_within_the_limit() -> None:
    refused = errors.ToolRefused("no such door")
    past = answered(output("a", 0.5), refused, output("c", finished=True))
    fresh = Scripted(output("a", 0.5), errors.ToolRefused("no such door"), output("c", finished=True))
    asyncio.run(replay(fresh, past, timeout_s=3.0))
    assert fresh.made == [("look", {"at": at}, 3.0) for at in range(3)]


IMAGE = ImageBlock(data="aGVsbG8=", mimeType="image/png")


@pytest.mark.parametrize(
    "other",
    [
        output("other", 0.5),
        output("a", 1.0),
        output("a", 0.5, finished=True),
        errors.ToolRefused("a"),
        ToolOutput(blocks=[TextBlock(text="a"), IMAGE], reward=0.5, finished=False),
    ],
    ids=["text", "reward", "end", "refusal", "image"],
)
def test_another_answer_is_reported_and_nothing_more_is_called(other: ToolOutput | Exception) -> None:
    fresh = Scripted(other, output("b"))
    with pytest.raises(errors.Diverged, match="'look' otherwise") as diverged:
        asyncio.run(replay(fresh, answered(output("a", 0.5), output("b")), timeout_s=None))
    assert (diverged.value.fault_class, diverged.value.retryable) == ("diverged", False)
    assert len(fresh.made) == 1


def test_another_refusal_is_another_answer() -> None:
    fresh = Scripted(errors.ToolRefused("closed"))
    with pytest.raises(errors.Diverged):
        asyncio.run(replay(fresh, answered(errors.ToolRefused("locked")), timeout_s=None))


def test_metadata_may_differ() -> None:
    fresh = Scripted(output("a", metadata={"took_s": 2}))
    asyncio.run(replay(fresh, answered(output("a", metadata={"took_s": 1})), timeout_s=None))
    assert fresh.answers == []


def test_a_call_over_its_limit_is_a_fault_and_a_fault_stays_one() -> None:
    with pytest.raises(errors.TimeLimit, match=r"'look' took longer than 0\.5 s"):
        asyncio.run(answer(Scripted(TimeoutError()), "look", {}, timeout_s=0.5))
    with pytest.raises(errors.WorkerLost):
        asyncio.run(replay(Scripted(errors.WorkerLost("gone")), answered(output()), timeout_s=None))


def test_a_session_with_another_prompt_is_another_one() -> None:
    require_same_prompt([TextBlock(text="x")], [TextBlock(text="x")])
    with pytest.raises(errors.Diverged, match="another prompt"):
        require_same_prompt([TextBlock(text="x")], [TextBlock(text="y")])
