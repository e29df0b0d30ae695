"""Sandboxes of this process, for code outside of a server's sessions: scripts and tests."""

from __future__ import annotations

import asyncio
import uuid
import weakref

from ..authoring.sandbox.model import Driver, SandboxOptions
from ..errors import SandboxGone, SandboxRefused
from ..settings import Settings
from .backends import open_backend
from .base import Sandboxes, SandboxSpec
from .sandbox import Sandbox

__all__ = ["EmbeddedSandboxes"]


class _Shared:
    """The back end of an event loop: opened with its first sandbox, closed with the last one."""

    def __init__(self) -> None:
        self._users = 0
        self._lock = asyncio.Lock()
        self._backend: Sandboxes | None = None

    async def create(self, spec: SandboxSpec) -> Sandbox:
        async with self._lock:
            self._users += 1
            try:
                if self._backend is None:
                    settings = Settings()
                    chosen = settings.sandboxes_backend
                    self._backend = await open_backend(
                        "auto" if chosen == "off" else chosen,
                        server_id=f"embedded-{uuid.uuid4().hex[:12]}",
                        reaches_machine=settings.sandboxes_reach_machine,
                    )
                backend = self._backend
            except BaseException:
                self._users -= 1
                raise
        try:
            return await backend.create(spec)
        except BaseException:
            await asyncio.shield(self.release())
            raise

    async def snapshot(self, sandbox: Sandbox) -> str:
        """Keep the files of one of its sandboxes."""
        if self._backend is None:
            raise SandboxGone("it was closed")
        return await self._backend.snapshot(sandbox)

    async def drop(self, snapshot: str) -> None:
        """Keep a snapshot no longer; all end with the back end."""
        if self._backend is not None:
            await self._backend.drop(snapshot)

    async def release(self) -> None:
        """Note the end of a sandbox."""
        async with self._lock:
            self._users -= 1
            if self._users == 0 and self._backend is not None:
                backend, self._backend = self._backend, None
                await backend.close()


_shared: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = weakref.WeakKeyDictionary()


class EmbeddedSandboxes:
    """Makes sandboxes on the back end of the running event loop."""

    async def create(self, options: SandboxOptions) -> Driver:
        """A sandbox that answers.

        Raises SandboxRefused, ImageMissing, ConfigError, SandboxError and EngineError.
        """
        if options.data:
            raise SandboxRefused(
                "data folders are a server's: serve the environment, and name them in orsay.toml"
            )
        shared = _shared.setdefault(asyncio.get_running_loop(), _Shared())
        spec = SandboxSpec(
            image=options.image or Settings().sandboxes_image,
            variables=options.variables,
            cpus=options.cpus,
            memory_bytes=options.memory_bytes,
            disk_bytes=options.disk_bytes,
            processes=options.processes,
            network=options.network,
            snapshot=options.snapshot,
        )
        return _Embedded(await shared.create(spec), shared)

    async def drop(self, snapshot: str) -> None:
        """Keep a snapshot no longer."""
        shared = _shared.get(asyncio.get_running_loop())
        if shared is not None:
            await shared.drop(snapshot)


class _Embedded:
    """A sandbox that gives its back end up when it ends; see ``Driver``."""

    def __init__(self, sandbox: Sandbox, shared: _Shared) -> None:
        self.id = sandbox.id
        self._sandbox = sandbox
        self._shared = shared
        self._closing: asyncio.Task[None] | None = None
        self.run = sandbox.run
        self.stat = sandbox.stat
        self.list = sandbox.list
        self.read = sandbox.read
        self.write = sandbox.write
        self.remove = sandbox.remove

    async def snapshot(self) -> str:
        return await self._shared.snapshot(self._sandbox)

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            await self._sandbox.close()
        finally:
            await self._shared.release()
