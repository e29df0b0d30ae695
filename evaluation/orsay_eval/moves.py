"""Interface between a policy and an environment.

A policy plays many episodes; it makes a player for each, which gets the results of its calls and returns the
next move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from orsay_protocol import (
    ImageBlock,
    JSONObject,
    Message,
    TerminalToolSpec,
    TextBlock,
    ToolSpec,
)
from orsay_protocol.evaluation import TokenCounts

__all__ = ["Call", "Move", "Opening", "Player", "Policy", "Result"]


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call. With ``broken`` it is not made: that text is its result, as an error."""

    name: str
    input: JSONObject = field(default_factory=dict)
    id: str = ""
    broken: str = ""


@dataclass(frozen=True, slots=True)
class Move:
    """One answer: calls to make in order, or else a plain ``text``.

    ``stop`` ends the episode at once, with the reason: ``length``, ``context``, ``filtered``.
    """

    calls: Sequence[Call] = ()
    text: str = ""
    stop: str = ""
    tokens: TokenCounts = field(default_factory=TokenCounts)


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a call. ``error`` is set where the call was refused or not made; ``blocks`` say why."""

    call: Call
    blocks: Sequence[TextBlock | ImageBlock]
    reward: float | None = None
    finished: bool = False
    error: bool = False
    metadata: JSONObject | None = None

    @property
    def text(self) -> str:
        """The text alone."""
        return "\n".join(block.text for block in self.blocks if isinstance(block, TextBlock))


@dataclass(frozen=True, slots=True)
class Opening:
    """Start of an episode. ``spec`` is the task itself, None if the policy does not need it."""

    split: str
    index: int
    attempt: int
    messages: Sequence[Message]
    tools: Sequence[ToolSpec]
    terminal: TerminalToolSpec | None = None
    spec: Mapping[str, Any] | None = None


class Player(Protocol):
    """Plays one episode."""

    async def move(self, results: Sequence[Result], note: str = "") -> Move:
        """The next move after ``results``, in the order of the calls; none at first.

        ``note`` asks a player to continue after a move without calls. Raises ModelFault if there
        is no answer, ModelUnusable if there will never be one.
        """
        ...


class Policy(Protocol):
    """Plays any number of episodes at the same time, on one event loop."""

    @property
    def name(self) -> str:
        """Name in the report: the model's, or the policy's."""
        ...

    @property
    def wants_spec(self) -> bool:
        """True if the policy needs ``Opening.spec``."""
        ...

    def settings(self) -> dict[str, Any]:
        """Settings that change its play, as JSON; no key is among them."""
        ...

    def player(self, opening: Opening) -> Player: ...

    async def aclose(self) -> None:
        """Release connections; the policy can be used again."""
        ...
