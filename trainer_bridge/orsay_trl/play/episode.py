"""One rollout's episode: its session, its calls and their answers, its reward, and its fault.

An answer of the environment, also a refusal, goes to the model. After a fault the episode is replayed on a
fresh session, within a budget; otherwise it is lost and never scored.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orsay_client import errors
from orsay_client.replay import AnsweredCall, answer, replay, require_same_prompt
from orsay_eval.reward import RewardPolicy, reward_of
from orsay_protocol import (
    GroupCandidate,
    GroupScore,
    ImageBlock,
    JSONObject,
    TerminalToolSpec,
    TextBlock,
    ToolOutput,
)
from orsay_protocol.texts import well_formed

from .content import Content, content_of, text_of
from .source import PlayedSession, Source, TaskRef

__all__ = ["LARGEST_REWARD", "Episode", "Reply", "Rules", "Step", "Tools", "common_prompt"]

LARGEST_REWARD = 1e18
"""Bound on rewards: trainers compute a group's variance in float32, where squares of larger values
overflow and make all advantages of the group invalid."""

_log = logging.getLogger("orsay_trl")
_BACKOFF_S = 0.5
_LONGEST_NAME = 200  # characters repeated to the model
_NO_OUTPUT = "(no output)"
_OVER = "The episode is over; this call was not made."
_LOST = "The environment failed; this episode is over and will not be scored."


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules by which episodes of one environment are played and scored; see ``EnvironmentSpec`` for each."""

    reward: RewardPolicy = "last"
    unscored: float | None = 0.0
    images: bool = True
    retries: int = 2
    call_timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools of an environment as a model sees them.

    ``schemas`` are in OpenAI's function format, ``names`` maps the model's name of a tool to the
    environment's, ``terminal`` is the tool that takes a plain message.
    """

    schemas: tuple[Mapping[str, Any], ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    terminal: TerminalToolSpec | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer to a call or to a plain message, for the model."""

    content: Content
    finished: bool = False

    @property
    def text(self) -> str:
        """The text alone, without images."""
        return text_of(self.content)


@dataclass(frozen=True, slots=True)
class Step:
    """One answered call. ``output`` is None for a refusal; ``text`` is the text for the model."""

    tool: str
    input: JSONObject
    output: ToolOutput | None
    text: str
    seconds: float


class Episode:
    """One rollout. Its coroutines run on one event loop, concurrently with other episodes.

    ``id`` is sent with every request as the label ``rollout``, and stands in the server's log and journal; a
    session that takes the place of one that was lost has the label ``attempt`` beside it, from 2.
    """

    def __init__(
        self,
        source: Source,
        task: TaskRef,
        tools: Tools,
        rules: Rules,
        *,
        row: Mapping[str, Any] | None = None,
        labels: Mapping[str, str | int] | None = None,
    ) -> None:
        self.id = uuid.uuid4().hex
        self.row: Mapping[str, Any] = row or {}
        self.task = task
        self.steps: list[Step] = []
        self.finished = False
        self.fault: str | None = None
        self.fault_message = ""
        self.retried: list[str] = []
        self.stop_reason: str | None = None
        self.seconds = 0.0
        self._source = source
        self._tools = tools
        self._rules = rules
        self._labels: dict[str, str | int] = {**(labels or {}), "rollout": self.id}
        self._session: PlayedSession | None = None
        self._answered: list[AnsweredCall] = []
        self._endings: set[asyncio.Task[None]] = set()
        self._prompt: list[TextBlock | ImageBlock] = []
        self._observation: Content = ""
        self._serial = asyncio.Lock()
        self._opened = False
        self._closed = False

    def __repr__(self) -> str:
        state = self.fault or ("finished" if self.finished else "playing")
        task = f"{self.task.split}[{self.task.index}]"
        return f"<Episode {self.id[:8]} of {task}: {state}, {len(self.steps)} calls>"

    @property
    def sid(self) -> str:
        """The session's id on the server, "" before it is open; a retry changes it."""
        return self._session.sid if self._session is not None else ""

    @property
    def trace(self) -> str:
        """The session's trace id, under which its servers log it; "" before it is open."""
        return str(getattr(self._session, "trace", ""))

    @property
    def began(self) -> bool:
        """True once the environment has returned its prompt."""
        return self._opened

    @property
    def tools(self) -> list[dict[str, Any]]:
        """Tools for the chat template: OpenAI's function format, with the environment's whole schemas."""
        return [dict(schema) for schema in self._tools.schemas]

    @property
    def prompt(self) -> list[dict[str, Any]]:
        """The messages to start from, once open: the environment's prompt as one user message."""
        return [{"role": "user", "content": self.observation}]

    @property
    def observation(self) -> Content:
        """The environment's prompt, once open; "" after an earlier fault."""
        return self._observation

    @property
    def rewards(self) -> list[float | None]:
        """One entry for each answered call, None where the environment gave no reward."""
        return [step.output.reward if step.output is not None else None for step in self.steps]

    @property
    def metadata(self) -> list[dict[str, Any] | None]:
        """One entry for each answered call."""
        found = [step.output.metadata if step.output is not None else None for step in self.steps]
        return [dict(metadata) if metadata is not None else None for metadata in found]

    @property
    def last_output(self) -> str:
        """The text of the last answer, "" before the first."""
        return self.steps[-1].text if self.steps else ""

    @property
    def reward(self) -> float | None:
        """Reward so far by the rules; None when a fault ended it.

        If the rules give no valid number, the episode is lost to ``bad_reward``.
        """
        if self.fault is not None:
            return None
        try:
            reward = reward_of(self._rules.reward, self, largest=LARGEST_REWARD)
        except errors.BadReward as bad:
            self.mark_lost(bad.fault_class, bad.message)
            return None
        return self._rules.unscored if reward is None else reward

    async def open(self) -> None:
        """Open the session and read the prompt. Faults are retried, then recorded in ``fault``, not raised.

        Raises RequestError or ProtocolError if the request itself is wrong: training cannot continue.
        """
        async with self._serial:
            await self._within_budget(self._begin)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Reply:
        """Call the tool that the model knows as ``name``; calls of one episode run one after another.

        The answer to a mistake of the model is a text. Raises as ``open``.
        """
        name = str(name)
        tool = self._tools.names.get(name)
        if tool is None:
            known = ", ".join(self._tools.names) or "none"
            return Reply(f"There is no tool {name[:_LONGEST_NAME]!r}. Tools: {known}.")
        return await self._call(tool, dict(arguments) if isinstance(arguments, Mapping) else arguments)

    async def say(self, text: str) -> Reply | None:
        """Pass the model's plain message to the terminal tool, which ends the episode.

        None where the environment has no terminal tool.
        """
        terminal = self._tools.terminal
        if terminal is None:
            return None
        given = {} if terminal.arg is None else {terminal.arg: well_formed(text)}
        reply = await self._call(terminal.name, given)
        self.finished = True
        return Reply(reply.content, finished=True)

    async def score_group(self, candidates: Sequence[GroupCandidate]) -> list[GroupScore]:
        """Scores of rollouts of this task, compared by the environment. Raises Fault or Unsupported."""
        if self._session is None:
            raise errors.ClientClosed("the episode has no session; open it first")
        return await self._session.score_group(candidates)

    def mark_lost(self, fault: str, message: str) -> None:
        """Mark the episode as lost to ``fault``, unless it is lost already: it is never scored."""
        if self.fault is None:
            self.fault, self.fault_message = fault, message
            _log.warning("rollout %s is lost to %s: %s", self.id, fault, message)

    def show(self, observation: Content) -> None:
        """Set the prompt of an episode that has none after a fault, so that a group has one prompt."""
        if not self._opened:
            self._observation = observation

    async def close(self) -> None:
        """End the session on the server; safe to call twice and in any state, never raises a fault."""
        self._closed = True
        self._drop_session()
        if self._endings:
            await asyncio.wait(self._endings)

    async def _call(self, tool: str, arguments: dict[str, Any]) -> Reply:
        async with self._serial:
            if self._is_lost():
                return Reply(_LOST)
            if self.finished:
                return Reply(_OVER, finished=True)
            if self._closed or not self._opened:
                raise errors.ClientClosed("the episode is not open; call reset() or open() first")

            content: Content = ""

            async def attempt() -> None:
                nonlocal content
                limit = self._rules.call_timeout_s
                session = self._session
                if session is None:
                    session = await self._begin()
                    await replay(session, self._answered, timeout_s=limit)
                began = time.perf_counter()
                answered = await answer(session, tool, arguments, timeout_s=limit)
                step = _step(answered, time.perf_counter() - began)
                blocks = step.output.blocks if step.output is not None else [TextBlock(text=step.text)]
                content = content_of(blocks, images=self._rules.images) or _NO_OUTPUT
                self._answered.append(answered)
                self.steps.append(step)
                self.finished = self.finished or (step.output is not None and step.output.finished)

            await self._within_budget(attempt)
            return Reply(_LOST) if self._is_lost() else Reply(content, finished=self.finished)

    def _is_lost(self) -> bool:
        return self.fault is not None

    async def _begin(self) -> PlayedSession:
        labels = self._labels
        if self.retried:
            labels = {**labels, "attempt": len(self.retried) + 1}
        self._session = session = self._source.session(self.task, labels)
        await session.open()
        _log.debug("rollout %s is session %s, trace %s", self.id, session.sid, self.trace or "unknown")
        prompt = await session.prompt()
        if self._opened:
            require_same_prompt(self._prompt, prompt)
        else:
            self._observation = content_of(prompt, images=self._rules.images)
        self._prompt = prompt
        self._opened = True
        if self._closed:
            self._drop_session()
            raise errors.ClientClosed("the episode was closed while its session opened")
        return session

    async def _within_budget(self, attempt: Callable[[], Awaitable[object]]) -> None:
        """Run ``attempt`` until it succeeds, each time on a fresh session, or the budget is used up."""
        began = time.perf_counter()
        try:
            while True:
                try:
                    await attempt()
                    return
                except errors.Fault as fault:
                    self._drop_session()
                    if self._closed:
                        raise errors.ClientClosed("the episode was closed meanwhile") from fault
                    if not fault.retryable or len(self.retried) >= self._rules.retries:
                        self.mark_lost(fault.fault_class, fault.message)
                        return
                    self.retried.append(fault.fault_class)
                    _log.info(
                        "rollout %s plays again after %s: %s", self.id, fault.fault_class, fault.message
                    )
                    await asyncio.sleep(_BACKOFF_S * 2 ** (len(self.retried) - 1))
        finally:
            self.seconds += time.perf_counter() - began

    def _drop_session(self) -> None:
        """End the session in the background, since a failing server may be slow. ``close`` waits for it."""
        session, self._session = self._session, None
        if session is not None:
            ending = asyncio.create_task(_end(session))
            self._endings.add(ending)
            ending.add_done_callback(self._endings.discard)


def common_prompt(group: Sequence[tuple[bool, Content]], task: TaskRef) -> Content:
    """Prompt of a group's episodes, "" if faults left none with a prompt.

    ``group`` has ``began`` and ``observation`` of each. Raises ValueError for different prompts.
    """
    prompts = [observation for began, observation in group if began]
    for prompt in prompts:
        if prompt != prompts[0]:
            raise ValueError(
                f"two sessions of task {task.split}[{task.index}] began with different prompts, and vLLM in "
                "server mode samples a group from one prompt: let the environment take a seed "
                "(EnvironmentSpec(seed_field=…)), or use a rollout function"
            )
    return prompts[0] if prompts else ""


async def _end(session: PlayedSession) -> None:
    try:
        await session.close()
    except errors.OrsayClientError as exc:
        _log.debug("session %s did not close: %s", session.sid, exc)


def _step(call: AnsweredCall, seconds: float) -> Step:
    text = call.refusal.message if call.refusal is not None else ""
    if call.output is not None:
        text = text_of(content_of(call.output.blocks, images=False))
    return Step(call.tool, call.input, call.output, text or _NO_OUTPUT, seconds)
