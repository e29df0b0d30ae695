"""One episode: an environment instance, and the rules by which its code runs.

It runs in the process of the author's code: a worker, or the server itself with the ``local`` runtime. Every
exception of author code, SystemExit included, becomes a fault here.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from orsay_protocol.blocks import ImageBlock, Message, TextBlock
from orsay_protocol.faults import FaultClass
from orsay_protocol.requests import ScoreGroup, ScoreGroupOutput
from orsay_protocol.sse import encode_result
from orsay_protocol.tools import ToolOutput
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from ...authoring import hosted as convert
from ...authoring.hosted import HostedEnvironment
from ...authoring.tools import ToolRow
from ...errors import BadTask, Faulted
from ...tracing import Origin, current
from ..base import OnResult, Operation, Progress
from ..outcome import Outcome, episode_finished, refusal
from .guard import author_fault, cause, fault_of, guard_author, guard_now, run_author, run_here
from .runs import Group, Run, Runs
from .threads import Threads
from .tool_lock import ToolLock

__all__ = ["Episode", "ExecutionContext", "Limits"]

T = TypeVar("T")
_BLOCKS = TypeAdapter(list[TextBlock | ImageBlock])
_MESSAGES = TypeAdapter(list[Message])
_OUTPUT = ToolOutput.__pydantic_serializer__


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on author code, in seconds and bytes."""

    call_time_limit_s: float
    setup_time_limit_s: float
    teardown_time_limit_s: float
    max_result_bytes: int
    slow_after_s: float = 0.02


@dataclass(frozen=True, slots=True)
class ExecutionContext:
    """Threads, runs and limits of one event loop, shared by its episodes."""

    threads: Threads
    runs: Runs
    limits: Limits


class Episode:
    """An environment instance with its calls, made by ``open``. ``close`` works in any state, also twice."""

    __slots__ = (
        "_closing",
        "_context",
        "_finished",
        "_instance",
        "_runs",
        "_tool_lock",
        "_tools",
        "_toolset",
        "_toolsets",
        "hide",
        "hosted",
        "origin",
    )

    def __init__(
        self, hosted: HostedEnvironment, context: ExecutionContext, origin: Origin, instance: object
    ) -> None:
        self.hosted = hosted
        self._context = context
        self._instance: object | None = instance
        self.origin = origin
        self.hide = origin.hide
        self._toolset: object | None = None
        self._tools: Mapping[str, ToolRow] = hosted.tools
        self._toolsets: dict[type, asyncio.Future[object]] | None = None
        self._tool_lock: ToolLock | None = None
        self._finished = False
        self._runs = Group(context.runs)
        self._closing: asyncio.Future[None] | None = None

    @classmethod
    async def open(
        cls,
        hosted: HostedEnvironment,
        context: ExecutionContext,
        origin: Origin,
        *,
        task_spec: Mapping[str, Any],
        secrets: dict[str, str],
        toolset_name: str | None = None,
    ) -> Episode:
        """Run the constructor. Raises Faulted (setup_error) or BadTask, without leaving an instance."""
        hide = origin.hide
        made: list[object] = []

        def construct() -> None:
            made.append(hosted.construct(dict(task_spec), secrets))

        try:
            what = f"the constructor of {hosted.name!r}"
            if hosted.plain_constructor:
                guard_now("setup_error", what, construct, hide=hide)
            else:
                await guard_author("setup_error", what, context.threads.run(construct), hide=hide)
            episode = cls(hosted, context, origin, made[0])
            if toolset_name is not None:
                # on a thread: the package with the toolsets takes seconds to import
                binding = context.threads.run(episode._bind_toolset, toolset_name)
                await guard_author("setup_error", f"the toolset {toolset_name!r}", binding, hide=hide)
        except BaseException:
            if made:  # stopped too late, or a bad toolset: tear the instance down
                await cls(hosted, context, origin, made[0]).close()
            raise
        return episode

    def _bind_toolset(self, name: str) -> None:
        toolset_class = convert.builtin_toolset(name)
        try:
            self._toolset = toolset_class(self._instance)
        except ValueError as exc:
            raise BadTask(self.hide.plain(str(exc)).encode(errors="backslashreplace").decode()) from None
        self._tools = {**self.hosted.tools, **convert.session_toolset_table(self._toolset)}

    @property
    def needs_setup(self) -> bool:
        """False if the class inherits the empty ``setup``."""
        return not self.hosted.plain_setup

    # operations: each calls ``on_result`` exactly once

    def start_setup(self, on_result: OnResult) -> Run:
        """Run ``setup``. Faults: setup_error, time_limit."""
        limit = self.hosted.setup_time_limit_s or self._context.limits.setup_time_limit_s
        return self._start(lambda _: self._author("setup_error", "setup"), on_result, limit, "setup")

    def start(
        self, operation: Operation, body: bytes, on_result: OnResult, progress: Progress | None
    ) -> Run | None:
        """Start ``operation``, as part of the session's trace; returns None if it ended at once.

        ``body`` is a valid CallTool or ScoreGroup, with an Outcome as result. Other operations have no body,
        and JSON bytes as result.
        """
        limit_s = self.hosted.call_time_limit_s or self._context.limits.call_time_limit_s
        token = current.set(self.origin)
        try:
            match operation:
                case "call":
                    return self._start_call(body, on_result, limit_s, progress)
                case "prompt":
                    return self._start(lambda _: self._prompt(), on_result, limit_s, "get_prompt")
                case "messages":
                    return self._start(lambda _: self._messages(), on_result, limit_s, "get_messages")
                case "task_tools":  # does not need setup
                    return self._start(lambda _: self._task_tools(), on_result, limit_s, "list_task_tools")
                case "score_group":
                    return self._start(
                        lambda _: self._score(body), on_result, limit_s, "score_group", progress
                    )
        finally:
            current.reset(token)

    def _start_call(
        self, body: bytes, on_result: OnResult, limit_s: float, progress: Progress | None
    ) -> Run | None:
        request = from_json(body)
        name: str = request["name"]
        row = self._tools.get(name)
        if row is None:
            text = f"{name!r} is not a tool of {self.hosted.name!r}"
            on_result(refusal("not_found", self.hide.plain(text)), None)
            return None
        if row.collision:
            text = f"{name!r} names a tool of the environment and one of its toolsets: rename one of them"
            on_result(refusal("name_collision", text), None)
            return None
        if self._finished:
            on_result(episode_finished(name), None)
            return None
        try:
            args, kwargs = row.bind(request["input"])
        except ValidationError as exc:
            text = f"Tool input validation error for {name!r}: {_problems(exc)}"
            on_result(refusal("input_validation", self.hide.plain(text)), None)
            return None
        except BaseException as exc:  # an author's validator raised what pydantic does not catch
            on_result(None, author_fault("tool_error", exc, self.hide, f"validating the input of {name!r}"))
            return None
        return self._context.runs.start(
            partial(self._call, row, args, kwargs),
            on_result,
            limit_s=row.time_limit_s or limit_s,
            what=f"tool {name!r}",
            group=self._runs,
            progress=progress,
        )

    def _start(
        self,
        body: Callable[[Run], Coroutine[Any, Any, Any]],
        on_result: OnResult,
        limit_s: float,
        what: str,
        progress: Progress | None = None,
    ) -> Run:
        return self._context.runs.start(
            body, on_result, limit_s=limit_s, what=what, group=self._runs, progress=progress
        )

    # calls

    async def _call(self, row: ToolRow, args: tuple[Any, ...], kwargs: dict[str, Any], run: Run) -> Outcome:
        lock = self._tool_lock
        if lock is None:
            lock = self._tool_lock = ToolLock()
        now = time.monotonic  # finer than the clock of the loop
        entered = came = now()
        if not lock.try_enter(row):
            run.stop_clock()
            await lock.enter(row)
            run.restart_clock()
            entered = now()
        try:
            if self._finished:
                return episode_finished(row.name)
            try:
                owner = self._instance if row.owner is None else await self._toolset_of(row, row.owner)
                if row.is_async:
                    value = await row.function(owner, *args, **kwargs)
                else:
                    value = await self._context.threads.run(row.function, owner, *args, **kwargs)
                if not isinstance(value, ToolOutput):
                    if not row.is_async and inspect.isawaitable(value):
                        value = await value
                    value = convert.to_output(value, row.name)
            except BaseException as exc:
                raise fault_of("tool_error", f"tool {row.name!r}", exc, self.hide)  # noqa: B904  # it has its cause
            outcome = self._outcome(row, value)
            outcome.queue_s, outcome.run_s = entered - came, now() - entered
            return outcome
        finally:
            lock.leave(row)

    def _outcome(self, row: ToolRow, output: ToolOutput) -> Outcome:
        reward = output.reward
        if reward is not None and not math.isfinite(reward):
            text = f"tool {row.name!r} returned the reward {reward}: a reward is a finite number or None"
            raise Faulted("bad_reward", text)
        try:
            data = b'{"ok":true,"output":' + _OUTPUT.to_json(output) + b"}"
        except Exception as exc:
            what = f"the result of tool {row.name!r}"
            raise author_fault("tool_error", exc, self.hide, what) from cause(exc, self.hide)
        if len(data) > self._context.limits.max_result_bytes:
            raise self._too_large(data, f"tool {row.name!r}")
        if self._finished:
            refused = episode_finished(row.name)
            refused.discarded = encode_result(data)
            return refused
        if output.finished:
            self._finished = True
        return Outcome(encode_result(data), reward, output.finished)

    async def _toolset_of(self, row: ToolRow, cls: type) -> object:
        """The toolset that has the tool: the one bound to this session, or its instance of a declared one.

        The constructor of a declared one runs on a thread, since it may take long.
        """
        if self.hosted.tools.get(row.name) is not row:
            return self._toolset
        if self._toolsets is None:
            self._toolsets = {}
        making = self._toolsets.get(cls)
        if making is None:
            work = self._context.threads.run(convert.new_toolset, cls, self._instance)
            making = self._toolsets[cls] = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(making)
        except BaseException:
            if making.done():  # it failed: the next call may try again
                self._toolsets.pop(cls, None)
            raise

    # the other hooks

    async def _prompt(self) -> bytes:
        value = await self._author("prompt_error", "get_prompt")
        return self._convert(
            "prompt_error", "get_prompt", lambda: _BLOCKS.dump_json(convert.to_blocks(value))
        )

    async def _messages(self) -> bytes:
        if not hasattr(self.hosted.cls, "get_messages"):  # a class of a package without messages
            blocks = await self._author("prompt_error", "get_prompt")
            return self._convert(
                "prompt_error",
                "get_prompt",
                lambda: _MESSAGES.dump_json([Message(role="user", blocks=convert.to_blocks(blocks))]),
            )
        value = await self._author("prompt_error", "get_messages")
        return self._convert(
            "prompt_error", "get_messages", lambda: _MESSAGES.dump_json(convert.to_messages(value))
        )

    async def _task_tools(self) -> bytes:
        extra = None
        if not self.hosted.plain_task_tools:
            extra = await self._author("prompt_error", "list_task_tools")
        return self._convert(
            "prompt_error",
            "list_task_tools",
            lambda: convert.session_listing(self.hosted, extra, self._toolset).model_dump_json().encode(),
        )

    async def _score(self, body: bytes) -> Outcome:
        candidates = convert.to_candidates(self.hosted, ScoreGroup.model_validate_json(body).candidates)
        value = await self._author("score_error", "score_group", candidates)
        scores = self._convert(
            "score_error", "score_group", lambda: convert.to_scores(value, len(candidates))
        )
        for number, score in enumerate(scores):
            if not math.isfinite(score.reward):
                raise Faulted("bad_reward", f"score_group returned {score.reward} for candidate {number}")
        data = self._convert(
            "score_error", "score_group", lambda: ScoreGroupOutput(scores=scores).model_dump_json().encode()
        )
        return Outcome(encode_result(data))

    async def _author(self, fault: FaultClass, hook: str, *args: Any) -> Any:
        method = getattr(self._instance, hook)
        if hook in self.hosted.waiting_hooks:
            running = run_here(method)
        else:
            running = run_author(self._context.threads, method, *args)
        return await guard_author(fault, hook, running, hide=self.hide)

    def _convert(self, fault: FaultClass, hook: str, convert_value: Callable[[], T]) -> T:
        value: T = guard_now(fault, f"what {hook} returned", convert_value, hide=self.hide)
        if isinstance(value, bytes) and len(value) > self._context.limits.max_result_bytes:
            raise self._too_large(value, hook)
        return value

    def _too_large(self, data: bytes, what: str) -> Faulted:
        limit = self._context.limits.max_result_bytes
        return Faulted("result_too_large", f"{what} returned {len(data)} bytes; the limit is {limit}")

    # closing

    def close_at_once(self) -> bool:
        """Close if nothing runs and the class has no teardown; True if closed."""
        if self._closing is not None or self._runs.running or not self.hosted.plain_teardown:
            return False
        if self.origin.sandboxes is not None and self.origin.sandboxes.is_used:
            return False
        self._release()
        return True

    async def close(self) -> None:
        """Stop setup and calls, then tear down once. Raises Faulted when teardown failed."""
        if self.close_at_once():
            return
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._runs.stop(Faulted("cancelled", "the session was closed while this ran"))
        try:
            if not self.hosted.plain_teardown:
                limit = self._context.limits.teardown_time_limit_s
                await self._context.runs.run(
                    lambda _: self._author("setup_error", "teardown"), limit_s=limit, what="teardown"
                )
        finally:
            self._release()
            if self.origin.sandboxes is not None:
                await self.origin.sandboxes.close()

    def _release(self) -> None:
        self._instance = self._toolset = self._toolsets = None


def _problems(exc: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(str(part) for part in error['loc']) or 'input'}: {error['msg']}" for error in exc.errors()
    )
