"""One rollout: a loop of model turns and environment answers, up to a stop reason."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from .parse import TurnParser
from .sampling import Sample, Sampler
from .tokens import ChatFormat, Message, Transcript

__all__ = ["Dialogue", "Limits", "PlayedEpisode", "Rollout", "StopReason", "play_tools", "text_only"]

_T = TypeVar("_T")

StopReason = Literal["finished", "no_tool_call", "max_turns", "budget", "fault"]
"""``finished``: the environment ended the episode, also upon a plain message to its terminal tool.
``no_tool_call``: the model called no tool, and there is no terminal tool. ``max_turns``: it had its turns.
``budget``: no tokens were left. ``fault``: the environment failed; the rollout does not count."""

_UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one rollout, in tokens but for ``turns``."""

    turns: int
    turn_tokens: int | None
    completion: int
    context: int | None


@dataclass(frozen=True, slots=True)
class Rollout:
    """Result of a rollout. ``transcript.mask`` is 0 throughout where a fault ended it."""

    id: str
    transcript: Transcript
    stop_reason: StopReason
    reward: float | None
    fault: str | None = None
    turns: int = 0
    unreadable_calls: int = 0
    sampling_s: float = 0.0
    environment_s: float = 0.0
    episode: Any = None
    live: Any = None
    extra: dict[str, Any] = field(default_factory=dict)
    """Additional arguments of reward functions, by name."""


class PlayedReply(Protocol):
    """Answer of the environment to a call or a message."""

    @property
    def content(self) -> Any: ...
    @property
    def finished(self) -> bool: ...


class PlayedEpisode(Protocol):
    """Interface of an open ``orsay_trl.Episode`` for rollouts."""

    fault: str | None

    @property
    def tools(self) -> list[dict[str, Any]]: ...
    async def call(self, name: str, arguments: dict[str, Any]) -> PlayedReply: ...
    async def say(self, text: str) -> PlayedReply | None: ...


class Dialogue:
    """Dialogue of one rollout between sampler and environment, as tokens."""

    def __init__(
        self,
        chat: ChatFormat,
        sampler: Sampler,
        limits: Limits,
        messages: Sequence[Message],
        tools: Sequence[Any] = (),
    ) -> None:
        self.transcript = Transcript(chat.prompt(messages, tools))
        self.turns = 0
        self.unreadable_calls = 0
        self.sampling_s = 0.0
        self.environment_s = 0.0
        self.limits = limits
        self._chat = chat
        self._sampler = sampler
        self._last: list[int] = []

    @property
    def room(self) -> int:
        """Tokens that the model may sample next."""
        transcript, limits = self.transcript, self.limits
        left = [limits.completion - len(transcript.completion_ids)]
        if limits.turn_tokens is not None:
            left.append(limits.turn_tokens)
        for context in (limits.context, self._sampler.max_model_len):
            if context is not None:
                left.append(context - len(transcript.prompt_ids) - len(transcript.completion_ids))
        return min(left)

    @property
    def prefix(self) -> list[int]:
        """Tokens before the last turn."""
        ids = self.transcript.ids
        return ids[: len(ids) - len(self._last)]

    async def turn(self) -> Sample | None:
        """Sample one turn of the model; None without room for a single token."""
        room = self.room
        if room < 1:
            return None
        sample = await self._timed("sampling_s", self._sampler.sample(self.transcript.ids, max_tokens=room))
        self.transcript.sampled(sample)
        self._last = sample.token_ids
        self.turns += 1
        return sample

    def reply(self, replies: Sequence[Message]) -> bool:
        """Append the environment's replies to the last turn.

        Returns False, and appends nothing, if the model would have no room to answer.
        """
        between = self._chat.between(self._last, replies)
        kept = len(self.transcript.completion_ids)
        self.transcript.given(between)
        if self.room >= 1:
            return True
        for part in (self.transcript.completion_ids, self.transcript.mask, self.transcript.logprobs):
            del part[kept:]
        return False

    async def wait(self, work: Awaitable[_T]) -> _T:
        """Result of the environment's ``work``; the wait is counted."""
        return await self._timed("environment_s", work)

    async def _timed(self, name: str, work: Awaitable[_T]) -> _T:
        began = time.perf_counter()
        try:
            return await work
        finally:
            setattr(self, name, getattr(self, name) + time.perf_counter() - began)


async def play_tools(episode: PlayedEpisode, dialogue: Dialogue, parser: TurnParser) -> StopReason:
    """Play an open episode by tool calls.

    Calls of one turn are made one after another, up to the one that ends the episode. No tokens are added
    after the end of the episode.
    """
    while True:
        sample = await dialogue.turn()
        if sample is None:
            return "budget"
        turn = parser.parse(sample.token_ids, prefix=dialogue.prefix, tools=episode.tools)
        if sample.finish_reason == "length" and not turn.calls:
            return "budget"  # a truncated turn is neither a plain message nor a malformed call
        if not turn.calls and turn.problem is None:
            taken = await dialogue.wait(episode.say(turn.text))
            if episode.fault is not None:
                return "fault"
            return "no_tool_call" if taken is None else "finished"
        replies = [_unread(turn.problem)] if turn.problem is not None else []
        dialogue.unreadable_calls += len(replies)
        for call in turn.calls:
            reply = await dialogue.wait(episode.call(call.name, call.arguments))
            if episode.fault is not None:
                return "fault"
            if reply.finished:
                return "finished"
            replies.append({"role": "tool", "name": call.name, "content": text_only(reply.content)})
        if dialogue.turns >= dialogue.limits.turns:
            return "max_turns"
        if not dialogue.reply(replies):
            return "budget"


def text_only(content: Any) -> str:
    """Content as text, with names of images, which TRL's rollout functions cannot pass to the model."""
    if isinstance(content, list):
        return "\n".join(str(part["text"]) if part.get("type") == "text" else "[image]" for part in content)
    return str(content)


def _unread(problem: str) -> dict[str, str]:
    return {"role": "tool", "name": _UNREADABLE, "content": problem}
