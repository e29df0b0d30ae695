"""The living sandboxes of a server: by id and owner, with limits, ended when nobody uses them."""

from __future__ import annotations

import asyncio
import shlex
import time
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

from ..errors import OrsayError, SandboxError, SessionGone, Starting, UnknownSession
from ..logs import get_logger
from .base import Sandboxes, SandboxSpec
from .events import (
    CommandEnded,
    EndReason,
    FileUsed,
    OnSandboxEvent,
    SandboxEnded,
    SandboxEvent,
    SandboxMade,
    Tenant,
)
from .keys import without_keys, without_keys_in
from .runs import Runs
from .sandbox import RunResult, Sandbox
from .snapshots import KeptSnapshots
from .spares import KnowsImages, Spares

__all__ = ["SANDBOX_PREFIX", "TOLD_BYTES", "HostedSandbox", "SandboxLimits", "SandboxService"]

SANDBOX_PREFIX = "sb-"
"""Begins the ids of all sandboxes; those of sessions never begin so."""
_LOOKS = 4  # for idle sandboxes, within the time limit
_REMEMBERED = 10_000
TOLD_BYTES = 64 * 1024
"""Of a command and of its output, in events: more than is kept, for secrets to be whole."""
_log = get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class SandboxLimits:
    """Limits of a service; None: no limit."""

    sandboxes: int = 64
    sandboxes_per_owner: int | None = None
    idle_s: float = 120
    gone_memory_s: float = 900
    snapshots_per_owner: int = 64
    warm: int = 0
    """Sandboxes of a kind to make ahead of demand, at most."""
    warm_s: float = 300
    """Time for which there are spares of a kind that nobody asks for."""
    stored_bytes: int = 64 << 20
    """Results of commands that are kept for each sandbox, for clients that ask again."""
    stored_bytes_per_owner: int = 256 << 20
    """The same for all sandboxes of an owner."""


class HostedSandbox:
    """A sandbox of the service, from the first moment of its creation."""

    def __init__(
        self,
        sandbox_id: str,
        spec: SandboxSpec,
        owner: str,
        creating: asyncio.Task[Sandbox],
        runs: Runs,
        *,
        stays: bool = False,
        beside: str = "",
        tenant: Tenant | None = None,
        tell: Callable[[SandboxEvent, str | None], None] = lambda event, call: None,
    ) -> None:
        self.id = sandbox_id
        self.stays = stays
        """True where it ends with its owner alone, however long nobody uses it."""
        self.beside = beside
        """The sandbox in whose place it is counted; "" for one with a place of its own."""
        self.spec = spec
        self.owner = owner
        self.tenant = tenant
        """The session that made it, if one did."""
        self.creating = creating
        self.started_at = time.time()
        self.commands = 0
        self.running = 0
        """Commands that run."""
        self.files = 0
        self._tell = tell
        self.runs = runs
        self.parts: dict[str, str] = {}
        """Temporary files, by the paths that they will have."""
        self.committed: dict[str, int] = {}
        """Sizes of files that were written, by their paths."""
        self.used_at = time.monotonic()
        self.readers = 0

    def touch(self) -> None:
        """Note a sign of life from its client."""
        self.used_at = time.monotonic()

    @property
    def lost(self) -> str | None:
        """Why a sandbox that was made can no longer be used; None while it can."""
        if not self.creating.done() or self.creating.cancelled() or self.creating.exception() is not None:
            return None
        gone = self.creating.result().gone
        return None if gone is None else str(gone)

    async def sandbox(self) -> Sandbox:
        """The sandbox, once it is made. Raises what its creation raised, and SandboxGone."""
        sandbox = await asyncio.shield(self.creating)
        if sandbox.gone is not None:
            raise sandbox.gone
        return sandbox

    async def run(self, command: str | Sequence[str], **options: Any) -> RunResult:
        """``Sandbox.run``, which is told of. Raises as that does, and as ``sandbox``."""
        sandbox = await self.sandbox()
        call = None if self.tenant is None else self.tenant.running_call
        text = command if isinstance(command, str) else shlex.join(command)
        tell = partial(
            CommandEnded, sandbox=self.id, started_at=time.time(), command=without_keys(text[:TOLD_BYTES])
        )
        began = time.monotonic()
        self.commands += 1
        self.running += 1
        try:
            result = await sandbox.run(command, **options)
        except ValueError:  # no command at all
            self.commands -= 1
            raise
        except BaseException:
            cut_off = tell(
                output=b"",
                size_bytes=0,
                return_code=None,
                timed_out=False,
                duration_s=time.monotonic() - began,
            )
            self._tell(cut_off, call)
            raise
        finally:
            self.running -= 1
        ended = tell(
            output=without_keys_in(result.output[:TOLD_BYTES]),
            size_bytes=max(result.output_bytes, len(result.output)),
            return_code=result.return_code,
            timed_out=result.timed_out,
            duration_s=result.duration_s,
            limit=result.limit,
        )
        self._tell(ended, call)
        return result

    def file_used(self, kind: Literal["read", "write"], path: str, size_bytes: int) -> None:
        """Tell of a file of that size that was read from the sandbox, or written into it."""
        self.files += 1
        path = path.encode("utf-8", "backslashreplace").decode()  # of any bytes
        call = None if self.tenant is None else self.tenant.running_call
        event = FileUsed(
            sandbox=self.id,
            started_at=time.time(),
            kind=kind,
            path=without_keys(path),
            size_bytes=size_bytes,
        )
        self._tell(event, call)


class SandboxService:
    """Sandboxes over a back end that ``connect`` opens with the first of them.

    ``tenant_of`` gives the session of an owner; it and ``listeners`` are told what happens.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Sandboxes]],
        limits: SandboxLimits,
        *,
        tenant_of: Callable[[str], Tenant | None] = lambda owner: None,
    ) -> None:
        self.listeners: list[OnSandboxEvent] = []
        self._tenant_of = tenant_of
        self._connect = connect
        self._limits = limits
        self._backend: asyncio.Task[Sandboxes] | None = None
        self._spares: Spares | None = None
        self._snapshots = KeptSnapshots(limits.snapshots_per_owner)
        self._living: dict[str, HostedSandbox] = {}
        self._gone: OrderedDict[str, tuple[str, str, float]] = OrderedDict()
        self._ending: set[asyncio.Task[None]] = set()
        self._looking: asyncio.TimerHandle | None = None
        self._closed = False

    def create(
        self, spec: SandboxSpec, owner: str, *, stays: bool = False, beside: str = ""
    ) -> HostedSandbox:
        """Begin to make a sandbox; one that ``stays`` ends with its owner alone.

        ``beside``: a sandbox of that owner in whose place it is counted, as a grader of its own: there may be
        one, and it is made on a full server too, or all who want to be graded would wait for each other.

        Raises Starting where the machine or the owner has no room for one, BadRequest where the owner has no
        such snapshot, and as ``get`` for ``beside``.
        """
        if self._closed:
            raise Starting("the server is shutting down")
        if spec.snapshot:
            self._snapshots.check(spec.snapshot, owner)
        if beside and not self._is_free_beside(self.get(beside, owner)):
            beside = ""
        placed = [each for each in self._living.values() if each.beside not in self._living]
        own = sum(each.owner == owner for each in placed)
        per_owner = self._limits.sandboxes_per_owner
        if not beside and per_owner is not None and own >= per_owner:
            raise Starting(f"all {per_owner} sandboxes of this key are in use: end one, or try again later")
        if not beside and len(placed) >= self._limits.sandboxes:
            raise Starting(
                f"all {self._limits.sandboxes} sandboxes of this server are in use; try again later"
            )
        spare = "" if self._spares is None else self._spares.reserve(spec)
        sandbox_id = spare or f"{SANDBOX_PREFIX}{uuid.uuid4().hex}"
        creating = asyncio.create_task(self._make(spec, sandbox_id))
        tenant = self._tenant_of(owner)
        hosted = HostedSandbox(
            sandbox_id,
            spec,
            owner,
            creating,
            Runs(self._limits.stored_bytes, lambda: self._room_for_results(owner)),
            tenant=tenant,
            tell=partial(self._tell, tenant),
            stays=stays,
            beside=beside,
        )
        self._living[sandbox_id] = hosted
        if self._spares is not None:
            self._spares.fit()
        creating.add_done_callback(lambda _: self._made(hosted))
        if self._looking is None:
            self._look_later()
        return hosted

    def _is_free_beside(self, hosted: HostedSandbox) -> bool:
        """Whether a sandbox can be made in its place, besides itself."""
        return not hosted.beside and all(each.beside != hosted.id for each in self._living.values())

    async def _make(self, spec: SandboxSpec, sandbox_id: str) -> Sandbox:
        return await (await self._connected()).create(spec, sandbox_id=sandbox_id)

    async def _connected(self) -> Sandboxes:
        if self._backend is None or (self._backend.done() and self._backend.exception() is not None):
            self._backend = asyncio.ensure_future(self._open())
        return await asyncio.shield(self._backend)

    async def _open(self) -> Sandboxes:
        backend = await self._connect()
        limits = self._limits
        if not limits.warm or not isinstance(backend, KnowsImages):
            return backend
        self._spares = Spares(
            backend,
            backend,
            per_kind=limits.warm,
            room=self._room_for_spares,
            kept_s=limits.warm_s,
        )
        return self._spares

    def _room_for_spares(self) -> int:
        """How many more there may be; negative where there are too many."""
        spares = 0 if self._spares is None else self._spares.count
        return self._limits.sandboxes - len(self._living) - spares

    def _room_for_results(self, owner: str) -> int:
        """Bytes that an owner's results may still take; negative where they take too many."""
        stored = sum(each.runs.size for each in self._living.values() if each.owner == owner)
        return self._limits.stored_bytes_per_owner - stored

    def _made(self, hosted: HostedSandbox) -> None:
        hosted.touch()
        if hosted.creating.cancelled():
            if self._spares is not None:
                self._spares.release(hosted.id)
            self._forget(hosted, "deleted", "it was ended while it was made")
        elif (error := hosted.creating.exception()) is not None:
            self._forget(hosted, "failed", f"it could not be made: {error}")
            if not isinstance(error, OrsayError):
                _log.error("sandbox_failed", sandbox=hosted.id, error=repr(error))
        else:
            _log.info("sandbox_started", sandbox=hosted.id, image=hosted.spec.image)
            tenant = hosted.tenant
            made = SandboxMade(
                sandbox=hosted.id,
                started_at=hosted.started_at,
                spec=hosted.spec,
                warm=bool(getattr(hosted.creating.result(), "warm", False)),
                duration_s=time.time() - hosted.started_at,
            )
            self._tell(tenant, made, None if tenant is None else tenant.running_call)

    def _tell(self, tenant: Tenant | None, event: SandboxEvent, call: str | None) -> None:
        """Tell all who listen; what they do wrong must not end what they are told of."""
        try:
            for listener in self.listeners:
                listener(event)
            if tenant is not None:
                tenant.sandbox_used(event, call)
        except Exception:
            _log.exception("sandbox_not_noted", sandbox=event.sandbox)

    @property
    def living(self) -> Mapping[str, HostedSandbox]:
        """The sandboxes by their ids, the oldest first, those among them that are being made; a view."""
        return MappingProxyType(self._living)

    def get(self, sandbox_id: str, owner: str) -> HostedSandbox:
        """A sandbox of that owner. Raises SessionGone with the reason, and UnknownSession."""
        hosted = self._living.get(sandbox_id)
        if hosted is not None and hosted.owner == owner:
            if (lost := hosted.lost) is not None:
                self._end(hosted, "lost", lost)
            else:
                hosted.touch()
                return hosted
        gone = self._gone.get(sandbox_id)
        if gone is not None and gone[0] == owner:
            raise SessionGone(f"sandbox {sandbox_id} is gone: {gone[1]}")
        raise UnknownSession(f"there is no sandbox {sandbox_id}")

    async def delete(self, sandbox_id: str, owner: str) -> None:
        """End a sandbox, also one that is still being made. Raises as ``get``."""
        hosted = self.get(sandbox_id, owner)
        await asyncio.shield(self._end(hosted, "deleted", "it was deleted"))

    async def end(self, hosted: HostedSandbox, detail: str) -> None:
        """End it for that reason, in words; returns when it is gone."""
        await asyncio.shield(self._end(hosted, "deleted", detail))

    async def snapshot(self, sandbox_id: str, owner: str) -> str:
        """Keep the file system of a sandbox, and return an id for ``SandboxSpec.snapshot``.

        Raises as ``get`` and ``Sandboxes.snapshot``, and BadRequest where the owner has too many.
        """
        hosted = self.get(sandbox_id, owner)
        hosted.readers += 1
        try:
            sandbox = await hosted.sandbox()
            taking = self._snapshots.take(await self._connected(), sandbox, owner)
            return await asyncio.shield(asyncio.ensure_future(taking))
        finally:
            hosted.readers -= 1
            hosted.touch()

    async def drop_snapshot(self, snapshot: str, owner: str) -> None:
        """Keep one no longer. Raises BadRequest where the owner has no such snapshot."""
        self._snapshots.check(snapshot, owner)
        await self._snapshots.drop(await self._connected(), snapshot, owner)

    async def end_owner(self, owner: str) -> None:
        """End all sandboxes and snapshots of that owner."""
        own = [each for each in self._living.values() if each.owner == owner]
        await asyncio.gather(*(self._end(each, "session_ended", "its session has ended") for each in own))
        if self._snapshots.has_some(owner):
            await self._snapshots.end_owner(await self._connected(), owner)

    def _end(self, hosted: HostedSandbox, reason: EndReason, detail: str) -> asyncio.Task[None]:
        self._forget(hosted, reason, detail)
        _log.info("sandbox_ended", sandbox=hosted.id, reason=detail)
        ending = asyncio.create_task(self._ended(hosted))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        return ending

    async def _ended(self, hosted: HostedSandbox) -> None:
        hosted.creating.cancel()
        done, _ = await asyncio.wait([hosted.creating])
        try:
            for task in done:
                if not task.cancelled() and task.exception() is None:
                    await task.result().close()
        except OrsayError as exc:
            _log.warning("sandbox_not_removed", sandbox=hosted.id, error=str(exc))
        finally:
            hosted.runs.close()

    def _forget(self, hosted: HostedSandbox, reason: EndReason, detail: str) -> None:
        if self._living.pop(hosted.id, None) is not None:
            self._gone[hosted.id] = (hosted.owner, detail, time.monotonic())
            while len(self._gone) > _REMEMBERED:
                self._gone.popitem(last=False)
            ended = SandboxEnded(
                sandbox=hosted.id,
                started_at=hosted.started_at,
                spec=hosted.spec,
                reason=reason,
                detail=without_keys(detail),
                duration_s=max(0.0, time.time() - hosted.started_at),
                commands=hosted.commands,
                files=hosted.files,
            )
            self._tell(hosted.tenant, ended, None)

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._looking = loop.call_later(self._limits.idle_s / _LOOKS, self._look)

    def _look(self) -> None:
        now = time.monotonic()
        for hosted in [*self._living.values()]:
            if not hosted.creating.done():
                continue
            hosted.runs.sweep()
            if (lost := hosted.lost) is not None:
                self._end(hosted, "lost", lost)
            elif not (hosted.stays or hosted.readers) and now - hosted.used_at > self._limits.idle_s:
                self._end(hosted, "idle", f"nobody used it for {self._limits.idle_s:g} s")
        while self._gone and now - next(iter(self._gone.values()))[2] > self._limits.gone_memory_s:
            self._gone.popitem(last=False)
        if self._living or self._gone:
            self._look_later()
        else:
            self._looking = None

    async def close(self) -> None:
        """End all sandboxes; safe to call twice."""
        self._closed = True
        if self._looking is not None:
            self._looking.cancel()
        endings = [self._end(each, "shutdown", "the server was stopped") for each in [*self._living.values()]]
        await asyncio.gather(*endings, *self._ending, return_exceptions=True)
        if self._backend is not None:
            try:
                await (await self._backend).close()
            except (SandboxError, OrsayError) as exc:
                _log.warning("sandboxes_not_closed", error=str(exc))
