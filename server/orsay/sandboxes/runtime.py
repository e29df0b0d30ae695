"""Decorator of a runtime that gives each session a key for sandboxes, and ends these with the session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from orsay_protocol.faults import FaultClass

from ..errors import Faulted, Refused
from ..runtimes.base import (
    ClosesByCallback,
    EnvironmentInfo,
    Handle,
    Listener,
    OnResult,
    OpensByCallback,
    OpenSession,
    Operation,
    Progress,
    Runtime,
    RuntimeDecorator,
    Stop,
)
from .events import Tenanted
from .keys import SandboxKeys

__all__ = ["SandboxedRuntime"]

_API_KEY = "api_key"
"""The secret that code written for ``openreward`` reads."""


class SandboxedRuntime(RuntimeDecorator, OpensByCallback):
    """Wrapper of ``runtime``.

    ``gives_key`` tells of an environment whether its sessions get a key. ``replaces`` tells of a given key
    whether it is one of this server's, which author code need not know; with ``gives_secret`` the session's
    key takes its place, or that of a missing one. ``end`` ends the sandboxes of an owner.
    """

    def __init__(
        self,
        runtime: Runtime,
        keys: SandboxKeys,
        *,
        gives_key: Callable[[EnvironmentInfo], bool],
        replaces: Callable[[str], bool],
        gives_secret: bool,
        end: Callable[[str], Awaitable[None]],
    ) -> None:
        super().__init__(runtime)
        self._keys = keys
        self._gives_key = gives_key
        self._replaces = replaces
        self._gives_secret = gives_secret
        self._end = end
        self._ending: set[asyncio.Task[None]] = set()

    def start_open(
        self, request: OpenSession, listener: Listener, on_result: OnResult
    ) -> ClosesByCallback | None:
        runtime = self._runtime
        if not isinstance(runtime, OpensByCallback) or self._has_key(request.key):
            return None
        return runtime.start_open(request, listener, on_result)

    def _has_key(self, environment: str) -> bool:
        return any(self._gives_key(each) for each in self._runtime.environments if each.key == environment)

    async def open(self, request: OpenSession, listener: Listener) -> Handle:
        if not self._has_key(request.key):
            return await self._runtime.open(request, listener)
        key, owner = self._keys.issue(listener.tenant if isinstance(listener, Tenanted) else None)
        secrets = request.secrets
        given = secrets.get(_API_KEY, "")
        if self._gives_secret and (not given or self._replaces(given)):
            named = {name: key if given and value == given else value for name, value in secrets.items()}
            secrets = {**named, _API_KEY: key}
        rented = _Rented(key, owner, self)
        heard = _SandboxedListener(listener, rented)
        try:
            handle = await self._runtime.open(
                request.model_copy(update={"secrets": secrets, "sandbox_key": key}), heard
            )
        except BaseException:
            rented.give_back()
            raise
        return SandboxedHandle(handle, rented)

    def give_back(self, key: str, owner: str) -> asyncio.Task[None]:
        """End what a session has made, and its key."""
        self._keys.revoke(key)
        task = asyncio.ensure_future(self._end(owner))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task


class _Rented:
    """The sandboxes of one session."""

    __slots__ = ("_key", "_owner", "_runtime", "_task")

    def __init__(self, key: str, owner: str, runtime: SandboxedRuntime) -> None:
        self._key = key
        self._owner = owner
        self._runtime = runtime
        self._task: asyncio.Task[None] | None = None

    def give_back(self) -> asyncio.Task[None]:
        """End them, once."""
        if self._task is None:
            self._task = self._runtime.give_back(self._key, self._owner)
        return self._task


class _SandboxedListener:
    """Listener that ends the sandboxes of a session that was lost."""

    __slots__ = ("_listener", "_rented")

    def __init__(self, listener: Listener, rented: _Rented) -> None:
        self._listener = listener
        self._rented = rented

    def setup_ended(self, error: Faulted | Refused | None) -> None:
        self._listener.setup_ended(error)

    def lost(self, fault: FaultClass, reason: str) -> None:
        self._rented.give_back()
        self._listener.lost(fault, reason)


class SandboxedHandle:
    """An open session with its sandboxes, which end after its teardown."""

    __slots__ = ("_handle", "_rented")

    def __init__(self, handle: Handle, rented: _Rented) -> None:
        self._handle = handle
        self._rented = rented

    def start(
        self,
        operation: Operation,
        body: bytes,
        on_result: OnResult,
        *,
        limit_s: float,
        progress: Progress | None = None,
    ) -> Stop:
        return self._handle.start(operation, body, on_result, limit_s=limit_s, progress=progress)

    async def close(self) -> None:
        try:
            await self._handle.close()
        finally:
            await asyncio.shield(self._rented.give_back())
