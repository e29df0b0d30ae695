"""``Server``: environments and settings, served until a signal stops it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
import sys
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config import Configuration, read
from ..config.entries import Entry
from ..config.targets import read_targets
from ..errors import ConfigError, LoadError
from ..logs import configure, get_logger
from ..plain import safe
from ..runtimes.base import Runtime
from ..runtimes.execution.event_loop import new_event_loop
from ..runtimes.loader import source_of
from ..runtimes.process.pool import ProcessRuntime
from ..runtimes.process.worker_connection import WORKER_MODULE
from ..runtimes.router import RouterRuntime
from ..settings import Settings
from .assembly import Running
from .descriptors import raise_descriptor_limit
from .plan import CodeSpec, plan
from .reconfigure import Hosting, Reread
from .resolve import resolve
from .secrets import secrets_in
from .signals import Signals
from .watch import Watch

if TYPE_CHECKING:
    from .sandboxes import ServedSandboxes

__all__ = ["Server"]

_log = get_logger(__name__)


def _server_id(settings: Settings, sock: socket.socket) -> str:
    """Id for labels of this server's containers: stable over restarts, unique among servers."""
    if settings.server_name is not None:
        return settings.server_name
    address = f"{socket.gethostname()} {settings.host} {sock.getsockname()[1]}"
    return hashlib.sha256(address.encode()).hexdigest()[:12]


class Server:
    """Hosts environment classes, as ``Server`` of other ORS packages does.

        Server([MyEnv]).run(port=8080)
        Server(config="orsay.toml").run()

    The first environment is the default. Settings are keyword arguments of ``run``, variables ``ORSAY_…`` or
    keys of the file; environments come from the file or as arguments. The file is read again on SIGHUP.
    With ``only_sandboxes`` none is hosted: the server has sandboxes for environments that run elsewhere.
    """

    def __init__(
        self,
        environments: Sequence[type | str] = (),
        *,
        config: str | Path | None = None,
        reload: bool = False,
        only_sandboxes: bool = False,
        **settings: Any,
    ) -> None:
        if not environments and config is None and not only_sandboxes:
            raise LoadError("a server needs at least one environment class")
        self._targets = [each for each in environments if isinstance(each, str)]
        self._classes = [each for each in environments if not isinstance(each, str)]
        if self._targets and self._classes:
            raise LoadError("give the server classes or import paths, not both")
        self._file = None if config is None else Path(config)
        self._settings = settings
        self._reload = reload
        self._only_sandboxes = only_sandboxes

    def run(self, host: str | None = None, port: int | None = None, **settings: Any) -> None:
        """Serve until SIGINT or SIGTERM. Raises LoadError or ConfigError before anything is served."""
        if _inside_worker():
            raise LoadError(
                "Server.run() was called while a worker process loaded this file: put the call under"
                ' if __name__ == "__main__":'
            )
        given = {**self._settings, **settings}
        if host is not None:
            given["host"] = host
        if port is not None:
            given["port"] = port
        configuration = self._read(given)
        writer = configure(configuration.settings.log_level, configuration.settings.log_format)
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(self.main(configuration, partial(self._read, given)))
        finally:
            writer.close()

    def _read(self, given: Mapping[str, Any]) -> Configuration:
        """Read the current configuration. Raises ConfigError."""
        targets = ["the classes"] if self._classes else self._targets
        found = read(self._file, given, targets)
        if self._only_sandboxes:
            if found.settings.sandboxes_backend == "off":
                found = read(self._file, {**given, "sandboxes_backend": "auto"})
            return replace(found, entries=())
        entries = self._class_entries(found.settings) if self._classes else found.entries
        if not entries:
            raise ConfigError(
                f"{self._file} has no environments: add a table [environments.LABEL], or name a target"
            )
        return replace(found, entries=tuple(resolve(entries, found.settings)))

    def _class_entries(self, settings: Settings) -> Sequence[Entry]:
        local = settings.runtime == "local"
        return read_targets(
            ["classes of this process" if local else source_of(cls) for cls in self._classes], ""
        )

    async def main(self, configuration: Configuration, again: Callable[[], Configuration]) -> None:
        """``run`` inside a running loop; ``again`` reads the configuration anew."""
        settings = configuration.settings
        if settings.open_to_anyone:
            _log.warning("open_to_anyone", host=settings.host, hint="set ORSAY_API_KEYS to require a key")
        signals = Signals(rereads=configuration.file is not None)
        try:
            await self._serve(configuration, again, signals)
        except asyncio.CancelledError:
            if not signals.gave_up:
                raise
            _log.info("stopped_while_starting")

    async def _serve(
        self, configuration: Configuration, again: Callable[[], Configuration], signals: Signals
    ) -> None:
        watch = None
        if self._reload:
            folders = {Path(each) for entry in configuration.entries for each in entry.folders}
            watch = await asyncio.to_thread(Watch, {Path.cwd(), *folders})
        async with self._running(configuration) as (running, hosting), contextlib.AsyncExitStack() as stack:
            if watch is not None:
                await stack.enter_async_context(_watching(running, watch))
            if hosting is not None and configuration.file is not None:
                reread = Reread(
                    again, configuration, hosting, running.server_id, running.variables, running.use
                )
                await stack.enter_async_context(_in_background(_whenever(signals.hung_up, reread)))
            # set before the address is printed; a second signal skips the grace time
            stopped = signals.stopped(again=running.sessions.hurry)
            what = "sandboxes" if self._only_sandboxes else _names(running)
            print(safe(f"Orsay serves {what} at {running.url}"), flush=True)
            await stopped.wait()
            _log.info("shutting_down")

    @contextlib.asynccontextmanager
    async def running(self, settings: Settings) -> AsyncIterator[Running]:
        """A ready server, shut down at the end of the block."""
        entries = (
            self._class_entries(settings) if self._classes else read_targets(self._targets, settings.runtime)
        )
        configuration = Configuration(settings, tuple(resolve(entries, settings)), {})
        async with self._running(configuration) as (running, _):
            yield running

    @contextlib.asynccontextmanager
    async def _running(self, configuration: Configuration) -> AsyncIterator[tuple[Running, Hosting | None]]:
        settings = configuration.settings
        if settings.other_protocols:
            from ..protocols import require  # loaded only when asked for

            require(settings.other_protocols)
        raise_descriptor_limit()
        sock = _listen(settings.host, settings.port)
        try:
            server_id = _server_id(settings, sock)
            sandboxes = await _sandboxes(settings, server_id, sock, alone=self._only_sandboxes)
            variables = {} if sandboxes is None else sandboxes.variables
            specs = plan(configuration.entries, settings, server_id, variables)
            runtime: Runtime
            if configuration.file is None and len(specs) == 1 and isinstance(specs[0], CodeSpec):
                hosting, runtime = None, specs[0].runtime(self._classes)
            else:
                hosting = Hosting(specs)
                runtime = hosting.runtime

            def secrets_of(key: str) -> list[str]:
                return secrets_in(specs[0] if hosting is None else hosting.spec_of(key), key)

            running = Running(settings, runtime, sock, server_id, sandboxes, secrets_of=secrets_of)
        except BaseException:
            sock.close()
            raise
        serving = asyncio.create_task(running.serve())
        try:
            await running.load()
            yield running, hosting
        finally:
            await running.shut_down()
            await serving


async def _sandboxes(
    settings: Settings, server_id: str, sock: socket.socket, *, alone: bool
) -> ServedSandboxes | None:
    if settings.sandboxes_backend == "off":
        return None
    from ..sandboxes.backends import choose_backend  # loaded only where they are on
    from .sandboxes import ServedSandboxes

    platform = alone or settings.sandboxes_backend != "auto"
    if alone and settings.sandboxes_backend == "auto":
        chosen = await choose_backend()  # an error now, not at the first sandbox
        settings = settings.model_copy(update={"sandboxes_backend": chosen})
    return ServedSandboxes(settings, server_id, port=sock.getsockname()[1], platform=platform)


@contextlib.asynccontextmanager
async def _in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _whenever(event: asyncio.Event, react: Callable[[], Awaitable[None]]) -> None:
    while True:
        await event.wait()
        event.clear()
        try:
            await react()
        except Exception:
            _log.exception("reread_failed")


def _watching(running: Running, watch: Watch) -> contextlib.AbstractAsyncContextManager[None]:
    """Reload worker processes when code changes. Raises ConfigError without worker processes."""
    if not _pools(running.runtime):
        raise ConfigError("--reload needs worker processes: use --runtime process")

    async def reload() -> None:
        await asyncio.gather(*(pool.reload() for pool in _pools(running.runtime)))

    return _in_background(watch.reload_on_change(reload))


def _pools(runtime: Runtime) -> list[ProcessRuntime]:
    """The worker pools of the runtime."""
    runtimes = (
        [member.runtime for member in runtime.members] if isinstance(runtime, RouterRuntime) else [runtime]
    )
    return [each for each in runtimes if isinstance(each, ProcessRuntime)]


def _inside_worker() -> bool:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == WORKER_MODULE


def _names(running: Running) -> str:
    return ", ".join(info.name for info in running.runtime.environments)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With an explicit protocol asyncio disables Nagle's algorithm, which would add 40 ms to a call.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as exc:
        sock.close()
        reason = exc.strerror or str(exc)
        raise ConfigError(
            f"cannot listen on {host}:{port}: {reason}; choose another --port, or 0 for any free one"
        ) from exc
    return sock
