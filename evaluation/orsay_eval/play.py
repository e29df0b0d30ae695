"""One attempt at one task: a loop of player's moves and environment's answers, up to a stop reason.

A fault is never an answer. After a retryable one, the calls so far are replayed on a fresh session, and the
player continues; it is not asked again, since a second chance would favour tasks that fail often. If the
answers differ, the attempt restarts. A lost attempt is not scored.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from orsay_client import AsyncEnvironment, AsyncSession, errors
from orsay_client.replay import AnsweredCall, answer, replay, require_same_prompt
from orsay_protocol import ImageBlock, Message, TerminalToolSpec, TextBlock
from orsay_protocol.evaluation import EvaluatedEpisode, TokenCounts
from orsay_protocol.redact import Redactor, redactor
from orsay_protocol.texts import well_formed

from .definition import Evaluation
from .errors import ModelFault
from .exact import total
from .moves import Call, Move, Opening, Player, Policy, Result
from .reward import reward_of

__all__ = ["Attempt", "AttemptContext", "Played", "play"]

_T = TypeVar("_T")

_BACKOFF_S = 0.5
_FULL_S = 5.0  # pause while the server is full: nothing ran, and waiting costs no retry
_MOST_WAITS = 20
_LONGEST_WAIT_S = 60.0
_OVER = "The episode is over; this call was not made."
_NUDGE = "Go on: call one of the tools. The task is not finished."


@dataclass(frozen=True, slots=True)
class Attempt:
    """Attempt ``number``, from 0, at the task at ``index``."""

    index: int
    number: int


@dataclass(frozen=True, slots=True)
class AttemptContext:
    """Objects that all attempts of an evaluation share: environment, policy, labels and secrets."""

    environment: AsyncEnvironment
    evaluation: Evaluation
    policy: Policy
    labels: Mapping[str, str | int]
    secrets: Mapping[str, str] | None = None
    specs: Mapping[int, Mapping[str, Any]] | None = None

    hide: Redactor = field(init=False)
    """Redactor of secrets in reports."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "hide", redactor((self.secrets or {}).values()))


@dataclass(frozen=True, slots=True)
class Played:
    """An episode, and how long each answer of the model took, in seconds."""

    episode: EvaluatedEpisode
    latencies: tuple[float, ...]


async def play(context: AttemptContext, attempt: Attempt) -> Played:
    """Play the attempt. Faults are recorded in the episode, not raised.

    Raises errors that would affect every attempt: RequestError, ModelUnusable.
    """
    retried: list[str] = []
    while True:
        game = _Game(context, attempt, retried)
        try:
            await game.run()
            return game.played(None, "")
        except errors.Diverged as diverged:
            if len(retried) > context.evaluation.retries:
                return game.played(diverged.fault_class, diverged.message)
        except errors.Fault as fault:
            return game.played(fault.fault_class, fault.message)
        except errors.ProtocolError as strange:
            return game.played("protocol_error", strange.message)
        except ModelFault as fault:
            return game.played(fault.fault_class, fault.message)
        finally:
            await game.leave()


class _Game:
    """State of one attempt, also the argument of reward policies."""

    def __init__(self, context: AttemptContext, attempt: Attempt, retried: list[str]) -> None:
        self._context, self._evaluation, self._attempt = context, context.evaluation, attempt
        self._retried = retried
        self._session: AsyncSession | None = None
        self._sid = ""
        self._rollout = ""
        self._trace = secrets.token_hex(16)
        self._messages: list[Message] = []
        self._terminal: TerminalToolSpec | None = None
        self._results: list[Result] = []
        self._past: list[AnsweredCall] = []
        self._began = time.perf_counter()
        self._started_at = time.time()
        self._latencies: list[float] = []
        self._tokens = TokenCounts()
        self._stop = ""
        self._turns = 0
        self._waits = 0

    # Interface of reward policies

    @property
    def rewards(self) -> list[float | None]:
        return [result.reward for result in self._made]

    @property
    def metadata(self) -> list[dict[str, Any] | None]:
        return [None if result.metadata is None else dict(result.metadata) for result in self._made]

    @property
    def finished(self) -> bool:
        return any(result.finished for result in self._results)

    @property
    def last_output(self) -> str:
        return self._made[-1].text if self._made else ""

    @property
    def _made(self) -> list[Result]:
        """Results of calls that reached the environment, as in training."""
        return [result for result in self._results if not result.call.broken]

    # Play

    async def run(self) -> None:
        """Play up to a stop reason, which is in ``played``."""
        player = await self._within_budget(self._open)
        results: Sequence[Result] = ()
        note, nudges = "", self._evaluation.nudges
        while True:
            if self._turns >= self._evaluation.max_turns:
                self._stop = "max_turns"
                return
            move = await self._ask(player, results, note)
            results, note = (), ""
            if move.stop:
                self._stop = move.stop
            elif move.calls:
                results = [await self._answered(call) for call in move.calls]
            elif self._terminal is not None:
                arguments = {} if self._terminal.arg is None else {self._terminal.arg: well_formed(move.text)}
                await self._answered(Call(self._terminal.name, arguments))
                self._stop = "finished"
            elif nudges > 0:
                nudges -= 1
                note = _NUDGE
            else:
                self._stop = "no_tool_call"
            if self.finished:
                self._stop = "finished"
            if self._stop:
                return

    async def _ask(self, player: Player, results: Sequence[Result], note: str) -> Move:
        began = time.perf_counter()
        move = await player.move(results, note)
        self._latencies.append(time.perf_counter() - began)
        self._turns += 1
        old, new = self._tokens, move.tokens
        self._tokens = TokenCounts(
            input=old.input + new.input,
            output=old.output + new.output,
            cached=old.cached + new.cached,
            reasoning=old.reasoning + new.reasoning,
        )
        return move

    async def _answered(self, call: Call) -> Result:
        if self.finished:
            return Result(call, [TextBlock(text=_OVER)], error=True)
        if call.broken:
            result = Result(call, [TextBlock(text=well_formed(call.broken))], error=True)
        else:
            result = await self._within_budget(lambda: self._call(call))
        self._results.append(result)
        return result

    async def _call(self, call: Call) -> Result:
        session = self._session or await self._reopen()
        made = await answer(session, call.name, call.input, timeout_s=self._evaluation.call_timeout_s)
        self._past.append(made)
        if made.refusal is not None:
            over = made.refusal.reason == "episode_finished"
            return Result(call, [TextBlock(text=made.refusal.message)], finished=over, error=True)
        assert made.output is not None
        blocks = self._shown(made.output.blocks)
        return Result(call, blocks, made.output.reward, made.output.finished, metadata=made.output.metadata)

    # Sessions

    async def _open(self) -> Player:
        context, at = self._context, self._attempt
        self._session = session = self._new_session()
        await session.open()
        self._sid = session.sid
        self._messages = await session.messages()
        listing = await session.listing()
        self._terminal = listing.terminal_tool
        shown = [
            message.model_copy(update={"blocks": self._shown(message.blocks)}) for message in self._messages
        ]
        return context.policy.player(
            Opening(
                split=self._evaluation.split,
                index=at.index,
                attempt=at.number,
                messages=shown,
                tools=listing.tools,
                terminal=listing.terminal_tool,
                spec=(context.specs or {}).get(at.index),
            )
        )

    async def _reopen(self) -> AsyncSession:
        """A fresh session in the state of the lost one, by replay. Raises Diverged if that fails."""
        self._session = session = self._new_session()
        await session.open()
        self._sid = session.sid
        require_same_prompt(self._messages, await session.messages())
        await replay(session, self._past, timeout_s=self._evaluation.call_timeout_s)
        return session

    def _new_session(self) -> AsyncSession:
        split, at = self._evaluation.split, self._attempt
        tries = len(self._retried)
        self._rollout = f"{split}:{at.index}/{at.number}" + (f"+{tries}" if tries else "")
        return self._context.environment.session(
            split=split,
            index=at.index,
            secrets=self._context.secrets,
            run_labels={**self._context.labels, "rollout": self._rollout, "attempt": at.number},
            traceparent=f"00-{self._trace}-{secrets.token_hex(8)}-01",
        )

    async def _within_budget(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """The result of ``work``, retried on a fresh session after retryable faults."""
        while True:
            try:
                return await work()
            except errors.Overloaded as full:
                await self.leave()
                self._waits += 1
                if self._waits > _MOST_WAITS:
                    raise
                await asyncio.sleep(min(max(_FULL_S, full.retry_after_s or 0.0), _LONGEST_WAIT_S))
            except errors.Diverged as diverged:
                self._retried.append(diverged.fault_class)
                raise
            except errors.Fault as fault:
                await self.leave()
                if not fault.retryable or len(self._retried) >= self._evaluation.retries:
                    raise
                self._retried.append(fault.fault_class)
                await asyncio.sleep(_BACKOFF_S * 2 ** (len(self._retried) - 1))

    async def leave(self) -> None:
        """End the session, if it still exists."""
        session, self._session = self._session, None
        if session is not None:
            try:
                await session.close()
            except errors.OrsayClientError:
                return  # it expires on the server when idle

    def _shown(self, blocks: Sequence[Any]) -> list[Any]:
        if self._evaluation.images:
            return list(blocks)
        return [
            TextBlock(text=f"[image: {block.mimeType}]") if isinstance(block, ImageBlock) else block
            for block in blocks
        ]

    # Results

    def played(self, fault: str | None, message: str) -> Played:
        """The current state of the episode. Raises BadReward if it has no valid reward."""
        evaluation, at = self._evaluation, self._attempt
        reward: float | None = None
        if fault is None:
            reward = reward_of(evaluation.reward, self)
            reward = evaluation.unscored if reward is None else reward
        given = [value for value in self.rewards if value is not None]
        episode = EvaluatedEpisode(
            task=f"{evaluation.split}:{at.index}",
            split=evaluation.split,
            index=at.index,
            attempt=at.number,
            reward=reward,
            reward_sum=_sum(given) if given and fault is None else None,
            rewards=given,
            finished=self.finished,
            success=None if reward is None else reward >= evaluation.success,
            fault=fault,
            fault_message=self._context.hide.plain(well_formed(message)),
            retried=list(self._retried),
            stop="fault" if fault is not None else self._stop,
            turns=self._turns,
            calls=len(self._results),
            refused=sum(result.error for result in self._results),
            tokens=self._tokens,
            seconds=time.perf_counter() - self._began,
            model_seconds=sum(self._latencies),
            started_at=self._started_at,
            sid=self._sid,
            rollout=self._rollout,
            trace=self._trace,
        )
        return Played(episode, tuple(self._latencies))


def _sum(rewards: Sequence[float]) -> float | None:
    """The sum, or None on overflow: optional numbers must not cost an episode its reward."""
    try:
        return total(rewards)
    except OverflowError:
        return None
