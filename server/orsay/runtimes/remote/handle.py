"""A session at an upstream."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Coroutine
from typing import Any

from orsay_protocol.blocks import Message
from orsay_protocol.faults import FaultClass
from orsay_protocol.headers import IDEMPOTENCY_KEY
from orsay_protocol.redact import Redactor
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from ...errors import Faulted
from ..base import Listener, OnResult, Operation, Progress, Stop, stop_nothing
from ..execution.runs import Group, Run
from .answers import error_of, fault_of, gone_reason, is_missing_route, is_starting
from .backoff import Backoff
from .call import RemoteCall
from .http import Answer, Broken
from .upstream import Upstream

__all__ = ["RemoteHandle"]

_MESSAGES = TypeAdapter(list[Message])
_EVENTS = {"Accept": "text/event-stream", "Content-Type": "application/json"}
_LIMIT_MARGIN_S = 2.0  # an Orsay server enforces the limit itself, with a better message
_ASK_AGAIN_S = 0.5


class RemoteHandle:
    """Handle of a session at an upstream, made by ``opening.open_session``.

    ``prefix`` is the path of its environment; ``headers`` identify the session; ``hide`` removes secrets from
    the upstream's texts.
    """

    __slots__ = (
        "_closing",
        "_group",
        "_listener",
        "_loss",
        "_runs",
        "headers",
        "hide",
        "prefix",
        "touched_at",
        "upstream",
    )

    def __init__(
        self,
        upstream: Upstream,
        prefix: str,
        headers: dict[str, str],
        hide: Redactor,
        listener: Listener,
    ) -> None:
        self.upstream = upstream
        self.prefix = prefix
        self.headers = headers
        self.touched_at = upstream.now()
        self.hide = hide
        self._listener = listener
        self._group = Group(upstream.runs)
        self._runs: set[Run] = set()
        self._loss: tuple[FaultClass, str] | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def stream_headers(self) -> dict[str, str]:
        """Headers of a request with a stream as answer."""
        return {**self.headers, **_EVENTS}

    # operations

    def start(
        self,
        operation: Operation,
        body: bytes,
        on_result: OnResult,
        *,
        limit_s: float,
        progress: Progress | None = None,
    ) -> Stop:
        if self._loss is not None:
            on_result(None, Faulted(*self._loss))
            return stop_nothing
        self.touched_at = self.upstream.now()
        call = RemoteCall(self, operation, body, progress) if operation in ("call", "score_group") else None
        run: Run

        def work(_: Run) -> Coroutine[Any, Any, Any]:
            return self._show(operation) if call is None else self._carry(call)

        def ended(value: Any, error: Any) -> None:
            self._runs.discard(run)
            for other in self._runs:  # it may have waited for this run
                other.restart_clock()
            if error is not None:
                error.redact(self.hide)
            on_result(value, error)

        run = self.upstream.runs.start(
            work,
            ended,
            limit_s=limit_s + _LIMIT_MARGIN_S if self.upstream.ours else limit_s,
            what="the call" if operation == "call" else operation,
            group=self._group,
            progress=None if self.upstream.ours else progress,
        )
        self._runs.add(run)
        return lambda: run.stop(Faulted("cancelled", "the call was cancelled"))

    async def _carry(self, call: RemoteCall) -> Any:
        try:
            return await call.run()
        except asyncio.CancelledError:
            self.abandon(call.key)
            raise

    def abandon(self, key: str) -> None:
        """Stop a call at the upstream if possible: its result is no longer needed."""
        if self.upstream.ours and self._closing is None and self._loss is None:
            self.upstream.spawn(self._cancel(key))

    async def _cancel(self, key: str) -> None:
        headers = {**self.headers, IDEMPOTENCY_KEY: key}
        # A server without /cancel stops the call once it has no reader.
        with contextlib.suppress(Broken, Faulted):
            await self.upstream.send("POST", "/cancel", headers)

    async def _show(self, operation: Operation) -> bytes:
        answer = await self._get(operation)
        if answer.status == 200:
            return answer.body
        if is_missing_route(answer):
            if operation == "messages":
                return _as_messages(await self._show("prompt"))
            if operation == "task_tools":
                answer = await self.upstream.send("GET", f"{self.prefix}/tools", self.headers)
                if answer.status == 200:
                    return answer.body
        raise await self.gone(answer) or error_of(answer, self.upstream.name, self.hide, fault="prompt_error")

    async def _get(self, operation: str) -> Answer:
        """Send a read-only request, with retries."""
        backoff = Backoff()
        limit_s = self.upstream.options.hook_limit_s
        while True:
            try:
                return await self.upstream.send(
                    "GET", f"{self.prefix}/{operation}", self.headers, silence_s=limit_s
                )
            except Broken as broken:
                delay = backoff.next_s()
                if delay is None:
                    text = f"{self.upstream.name}, which held the session, cannot be reached: {broken}"
                    self.mark_lost("worker_lost", text, left=True)
                    raise Faulted("worker_lost", text) from broken
            await asyncio.sleep(delay)

    # setup

    async def watch_setup(self) -> None:
        """Notify the listener when setup is over.

        A request for an unknown task id waits for setup and runs nothing.
        """
        body = to_json({"name": "setup", "input": {}, "task_id": os.urandom(16).hex()})
        upstream = self.upstream
        give_up_at = upstream.now() + upstream.options.hook_limit_s
        backoff = Backoff()
        while self._loss is None and self._closing is None:
            try:
                answer = await upstream.send(
                    "POST",
                    f"{self.prefix}/call",
                    self.stream_headers,
                    body,
                    silence_s=upstream.options.hook_limit_s,
                )
            except Broken as broken:
                delay = backoff.next_s()
                if delay is None:
                    self.mark_lost("worker_lost", f"{upstream.name} cannot be reached: {broken}", left=True)
                    return
                await asyncio.sleep(delay)
                continue
            except Faulted as fault:
                self._listener.setup_ended(fault)
                return
            if is_starting(answer) and upstream.now() < give_up_at:
                await asyncio.sleep(_ASK_AGAIN_S)
            elif answer.status == 200:
                self._listener.setup_ended(None)
                return
            elif await self.gone(answer) is not None:
                return
            else:
                error = error_of(answer, upstream.name, self.hide, fault="setup_error")
                self._listener.setup_ended(error)
                return

    # loss

    async def gone(self, answer: Answer, *, sure: bool = True) -> Faulted | None:
        """The fault if ``answer`` reports that the upstream lost the session; marks it lost here too.

        An ambiguous 404 is resolved by a ping; not ``sure``: a 404 may have another meaning.
        """
        found = gone_reason(answer, self.hide)
        if found is None and answer.status == 404 and sure and not is_missing_route(answer):
            with contextlib.suppress(Broken, Faulted):
                found = gone_reason(await self.upstream.send("POST", "/ping", self.headers), self.hide)
        if found is None:
            return None
        self.mark_lost(*found)
        return Faulted(*found)

    def mark_lost(self, fault: FaultClass, reason: str, *, left: bool = False) -> None:
        """Fail running operations, then notify the listener.

        ``left``: the upstream may still have the session, and should delete it if reachable.
        """
        if self._loss is None and self._closing is None:
            self._loss = fault, reason
            self.upstream.forget(self)
            self.upstream.spawn(self._report_lost(fault, reason, left=left))

    async def _report_lost(self, fault: FaultClass, reason: str, *, left: bool) -> None:
        await self._group.stop(Faulted(fault, reason))
        self._listener.lost(fault, reason)
        if left:
            with contextlib.suppress(Broken, Faulted):
                await self.upstream.delete(self.headers)

    async def ping(self) -> None:
        """Keep the session alive at the upstream, and notice when it is not."""
        self.touched_at = self.upstream.now()
        try:
            answer = await self.upstream.send("POST", "/ping", self.headers)
        except (Broken, Faulted):
            return  # the upstream's health checks handle it
        found = gone_reason(answer, self.hide)
        if found is None and answer.status == 404:
            found = "worker_lost", f"{self.upstream.name} does not have the session any more"
        if found is not None:
            self.mark_lost(*found)

    # closing

    async def close(self) -> None:
        if self._loss is not None:
            return
        if self._closing is None:
            self._closing = self.upstream.spawn(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._group.stop(Faulted("cancelled", "the session was closed while this ran"))
        try:
            answer = await self.upstream.delete(self.headers)
        except Broken as broken:
            text = f"{self.upstream.name} did not confirm the end of the session: {broken}"
            raise Faulted("worker_lost", text) from broken
        finally:
            self.upstream.forget(self)
        body = answer.json()
        if isinstance(body, dict) and body.get("fault") is not None:
            raise fault_of(body["fault"], self.upstream.name, self.hide) or self.upstream.deviates(
                "failed to end a session"
            )


def _as_messages(prompt: bytes) -> bytes:
    """The prompt of a server without messages, as one user message."""
    try:
        return _MESSAGES.dump_json(_MESSAGES.validate_json(b'[{"role":"user","blocks":' + prompt + b"}]"))
    except ValidationError as exc:
        raise Faulted(
            "prompt_error", f"the prompt is no list of blocks: {exc.error_count()} problems"
        ) from exc
