"""Sandboxes made ahead: who asks for one of a kind that was asked for lately gets one that is ready.

One that was handed out is never used again, so nothing of one owner reaches another.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from ..errors import OrsayError, SandboxError
from ..logs import get_logger
from .base import Sandboxes, SandboxSpec
from .sandbox import Sandbox

__all__ = ["KnowsImages", "Spares"]

_KINDS = 4
"""Kinds that have spares at once: those asked for last."""
_LOOKS = 5  # for old spares, within the time that they are kept
_log = get_logger(__name__)


@runtime_checkable
class KnowsImages(Protocol):
    """A back end whose sandboxes are worth making ahead."""

    async def image_id(self, image: str) -> str:
        """What an image's name stands for now. Raises ImageMissing, EngineError."""
        ...


@dataclass(frozen=True, eq=False)
class _Spare:
    sandbox: Sandbox
    image_id: str


@dataclass(eq=False)
class _Kind:
    spec: SandboxSpec
    ready: deque[_Spare] = field(default_factory=deque)
    asked_at: deque[float] = field(default_factory=deque)
    """Times of the last creations, ``per_kind`` of them at most."""


class Spares:
    """Decorator of a back end, which it closes.

    Of each kind there are as many spares as sandboxes were asked for within ``kept_s``, ``per_kind`` at most,
    and not more than ``room`` tells. Variables are no part of a kind, since they are given to commands;
    sandboxes with folders or a snapshot have no spares.
    """

    def __init__(
        self,
        backend: Sandboxes,
        images: KnowsImages,
        *,
        per_kind: int,
        room: Callable[[], int],
        kept_s: float = 300,
    ) -> None:
        self._backend = backend
        self._images = images
        self._per_kind = per_kind
        self._room = room
        self._kept_s = kept_s
        self._kinds: dict[Hashable, _Kind] = {}
        self._reserved: dict[str, _Spare] = {}
        self._creating = 0
        self._filling: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._look: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def count(self) -> int:
        """Sandboxes that wait for somebody."""
        return sum(len(kind.ready) for kind in self._kinds.values())

    def reserve(self, spec: SandboxSpec) -> str:
        """Set a spare aside for the ``create`` or ``release`` of its id; "" where there is none."""
        kind = self._kinds.get(_kind_of(spec))
        while kind is not None and kind.ready:
            spare = kind.ready.popleft()
            if spare.sandbox.gone is None:
                self._reserved[spare.sandbox.id] = spare
                return spare.sandbox.id
            self._end(spare)
        return ""

    def release(self, sandbox_id: str) -> None:
        """End the spare of that id, if nobody has taken it."""
        spare = self._reserved.pop(sandbox_id, None)
        if spare is not None:
            self._end(spare)

    async def create(self, spec: SandboxSpec, *, sandbox_id: str = "") -> Sandbox:
        """The spare that was reserved under that id, else a new sandbox. Raises as the back end's."""
        spare = self._reserved.pop(sandbox_id, None)
        self._note(spec)
        self._creating += 1
        try:
            if spare is not None and await self._is_good(spare, spec):
                spare.sandbox.variables.update(spec.variables)
                return spare.sandbox
            return await self._backend.create(spec, sandbox_id=sandbox_id)
        finally:
            self._creating -= 1
            self._fill()

    async def _is_good(self, spare: _Spare, spec: SandboxSpec) -> bool:
        good = False
        try:
            good = await self._images.image_id(spec.image) == spare.image_id and spare.sandbox.gone is None
        finally:
            if not good:
                self._end(spare)
        return good

    def _note(self, spec: SandboxSpec) -> None:
        name = _kind_of(spec)
        if name is not None:
            kind = self._kinds.pop(name, None) or _Kind(
                replace(spec, variables={}), asked_at=deque(maxlen=self._per_kind)
            )
            kind.asked_at.append(time.monotonic())
            self._kinds[name] = kind  # the last one asked for is the last in order
            while len(self._kinds) > _KINDS:
                self._forget(next(iter(self._kinds)))

    def _forget(self, name: Hashable) -> None:
        for spare in self._kinds.pop(name).ready:
            self._end(spare)

    # filling

    def fit(self) -> None:
        """End spares that there is no room for any longer."""
        over = -self._room()
        for kind in self._kinds.values():
            while over > 0 and kind.ready:
                self._end(kind.ready.popleft())
                over -= 1

    def _fill(self) -> None:
        """Go on to fill, unless somebody waits for a sandbox that is being made: spares are made between."""
        if self._closed or self._creating:
            return
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(self._kept_s / _LOOKS, self._look_around)
        if self._filling is None or self._filling.done():
            self._filling = asyncio.create_task(self._make_spares())

    async def _make_spares(self) -> None:
        while not self._creating and self._room() > 0 and (wanted := self._lacking()) is not None:
            name, kind = wanted
            try:
                image_id = await self._images.image_id(kind.spec.image)
                made = _Spare(await self._backend.create(kind.spec), image_id)
            except OrsayError as exc:  # who asks for one is told
                _log.warning("spare_sandbox_failed", image=kind.spec.image, error=str(exc))
                if self._kinds.get(name) is kind:
                    self._forget(name)
                continue
            if self._closed or self._kinds.get(name) is not kind or self._room() <= 0:
                self._end(made)
            else:
                kind.ready.append(made)

    def _lacking(self) -> tuple[Hashable, _Kind] | None:
        for name, kind in reversed(self._kinds.items()):
            if len(kind.ready) < len(kind.asked_at):
                return name, kind
        return None

    def _look_around(self) -> None:
        self._look = None
        now = time.monotonic()
        for name, kind in [*self._kinds.items()]:
            while kind.asked_at and now - kind.asked_at[0] > self._kept_s:
                kind.asked_at.popleft()
            for spare in [*kind.ready]:
                if spare.sandbox.gone is not None or len(kind.ready) > len(kind.asked_at):
                    kind.ready.remove(spare)
                    self._end(spare)
            if not kind.asked_at:
                self._forget(name)
        if self._kinds:
            self._fill()

    # end

    def _end(self, spare: _Spare) -> None:
        task = asyncio.create_task(self._ended(spare))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _ended(self, spare: _Spare) -> None:
        try:
            await spare.sandbox.close()
        except OrsayError as exc:
            _log.warning("sandbox_not_removed", sandbox=spare.sandbox.id, error=str(exc))

    async def snapshot(self, sandbox: Sandbox) -> str:
        return await self._backend.snapshot(sandbox)

    async def drop(self, snapshot: str) -> None:
        await self._backend.drop(snapshot)

    async def close(self) -> None:
        """End all spares, and the back end; safe to call twice."""
        self._closed = True
        if self._look is not None:
            self._look.cancel()
        if self._filling is not None:
            self._filling.cancel()
            with contextlib.suppress(asyncio.CancelledError, SandboxError):
                await self._filling
        for name in [*self._kinds]:
            self._forget(name)
        for sandbox_id in [*self._reserved]:
            self.release(sandbox_id)
        await asyncio.gather(*self._closing)
        await self._backend.close()


def _kind_of(spec: SandboxSpec) -> Hashable:
    """What spares of a specification have in common; None where it has no spares."""
    if spec.folders or spec.snapshot:
        return None
    return (spec.image, spec.cpus, spec.memory_bytes, spec.disk_bytes, spec.processes, spec.network)
