"""Puts the objects together: settings in, a running server out."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import socket
import sys
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from .auth import Keys
from .calls import CallLimits
from .config import Configuration, read
from .config.entries import Entry
from .config.targets import read_targets
from .errors import ConfigError, LoadError
from .faults import FaultLog
from .http.app import HttpApp
from .http.connection import Connection
from .http.episodes import EpisodeEndpoints
from .http.faces import Face
from .loader import source_of
from .logs import configure, get_logger, set_level
from .places import CodePlace, plan
from .reload import reload_on_change
from .reread import Hosting, Reread
from .resolve import resolve
from .runtimes.base import Runtime
from .runtimes.link import WORKER_MODULE
from .runtimes.mixed import MixedRuntime
from .runtimes.process import ProcessRuntime
from .sessions import SessionLimits, Sessions
from .settings import Settings
from .signals import Signals

__all__ = ["Running", "Server"]

_log = get_logger(__name__)


def _server_id(settings: Settings, sock: socket.socket) -> str:
    """What containers of this server are known by: the same when it is started again, and no other's."""
    if settings.server_name is not None:
        return settings.server_name
    place = f"{socket.gethostname()} {settings.host} {sock.getsockname()[1]}"
    return hashlib.sha256(place.encode()).hexdigest()[:12]


class Running:
    """A server that accepts requests: ``url`` says where, ``ready`` waits for the environments."""

    def __init__(
        self, settings: Settings, runtime: Runtime, sock: socket.socket, server_id: str = ""
    ) -> None:
        self.server_id = server_id
        self.settings = settings
        self.runtime = runtime
        self._keys = Keys(settings.keys)
        host, port = sock.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        faults = FaultLog(show=settings.shows_exceptions)
        self.sessions = Sessions(
            runtime,
            _session_limits(settings),
            _call_limits(settings),
            faults,
            log_calls=settings.log_level == "debug",
        )
        episodes = EpisodeEndpoints(
            self.sessions,
            max_body_bytes=settings.max_body_bytes,
            stream_after_s=settings.stream_after_s,
            stream_ping_s=settings.stream_ping_s,
            index_only=settings.index_only,
        )
        faces = _other_faces(settings, self.sessions)
        self.app = HttpApp(
            episodes,
            runtime,
            self._keys,
            faults,
            stopping=lambda: self.sessions.stopping,
            max_body_bytes=settings.max_body_bytes,
            index_only=settings.index_only,
            faces=faces,
        )
        if isinstance(runtime, MixedRuntime):
            runtime.changed = self._learn
        self._sock = sock
        self._http = _Http(
            uvicorn.Config(
                self.app,
                loop="none",
                http=Connection,
                ws="websockets-sansio" if "openenv" in settings.other_protocols else "none",
                ws_max_size=settings.max_body_bytes,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=bool(settings.trusted_proxies),
                forwarded_allow_ips=settings.trusted_proxies,
                timeout_keep_alive=settings.keep_alive_s,
                timeout_graceful_shutdown=5,
                backlog=4096,
            )
        )

    async def serve(self) -> None:
        """Accept requests until ``stop``."""
        await self._http.serve(sockets=[self._sock])

    async def load(self) -> None:
        """Load the environments and let sessions in. Raises LoadError."""
        await self._http.listening.wait()
        await self.runtime.start()
        self._learn()
        self.sessions.start()
        await self.app.load_rest()
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)

    def use(self, settings: Settings) -> None:
        """Take up those of the settings that can change while the server runs."""
        self.settings = settings
        self._keys.replace(settings.keys)
        set_level(settings.log_level)
        self.sessions.use(_session_limits(settings), log_calls=settings.log_level == "debug")

    def _learn(self) -> None:
        for info in self.runtime.environments:
            self.app.know(info.name)
            self.app.know(info.key)

    async def shut_down(self) -> None:
        """Refuse new sessions, let calls finish, tear down, then stop listening (L6)."""
        self.sessions.refuse_new()
        await self.sessions.drain(self.settings.shutdown_grace_s)
        await self.sessions.close_all("the server is shutting down")
        await self.runtime.stop()
        await self.app.faces.close()
        self._http.should_exit = True


class _Http(uvicorn.Server):
    """uvicorn without its signal handling: the order of stopping is ours."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Server:
    """Hosts environment classes, as ``Server`` of other ORS packages does.

        Server([MyEnv]).run(port=8080)
        Server(config="orsay.toml").run()

    The first environment is the default. Settings are keyword arguments of ``run``, variables ``ORSAY_…`` or
    keys of the file; environments come from the file or as arguments. The file is read again on SIGHUP.
    """

    def __init__(
        self,
        environments: Sequence[type | str] = (),
        *,
        config: str | Path | None = None,
        reload: bool = False,
        **settings: Any,
    ) -> None:
        if not environments and config is None:
            raise LoadError("a server needs at least one environment class")
        self._targets = [each for each in environments if isinstance(each, str)]
        self._classes = [each for each in environments if not isinstance(each, str)]
        if self._targets and self._classes:
            raise LoadError("give the server classes or import paths, not both")
        self._file = None if config is None else Path(config)
        self._settings = settings
        self._reload = reload

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
            with asyncio.Runner(loop_factory=_new_loop) as runner:
                runner.run(self.main(configuration, partial(self._read, given)))
        finally:
            writer.close()

    def _read(self, given: Mapping[str, Any]) -> Configuration:
        """The configuration as it is now. Raises ConfigError."""
        targets = ["the classes"] if self._classes else self._targets
        found = read(self._file, given, targets)
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
            _log.warning("open_to_anyone", host=settings.host, hint="set ORSAY_API_KEYS to ask for a key")
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
        async with self._running(configuration) as (running, hosting), contextlib.AsyncExitStack() as stack:
            if self._reload:
                folders = {Path(each) for entry in configuration.entries for each in entry.folders}
                await stack.enter_async_context(_watching(running, {Path.cwd(), *folders}))
            if hosting is not None and configuration.file is not None:
                reread = Reread(again, configuration, hosting, running.server_id, running.use)
                await stack.enter_async_context(_in_background(_whenever(signals.hung_up, reread)))
            # taken before anybody is told that the server is there; a second signal hastens the end
            stopped = signals.stopped(again=running.sessions.hurry)
            print(f"Orsay serves {_names(running)} at {running.url}", flush=True)
            await stopped.wait()
            _log.info("shutting_down")

    @contextlib.asynccontextmanager
    async def running(self, settings: Settings) -> AsyncIterator[Running]:
        """A server that is ready; shut down at the end of the block."""
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
            from .also import require  # loaded only when asked for

            require(settings.other_protocols)
        sock = _listen(settings.host, settings.port)
        try:
            server_id = _server_id(settings, sock)
            places = plan(configuration.entries, settings, server_id)
            runtime: Runtime
            if configuration.file is None and len(places) == 1 and isinstance(places[0], CodePlace):
                hosting, runtime = None, places[0].runtime(self._classes)
            else:
                hosting = Hosting(places)
                runtime = hosting.runtime
            running = Running(settings, runtime, sock, server_id)
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


def _watching(running: Running, folders: Iterable[Path]) -> contextlib.AbstractAsyncContextManager[None]:
    """Worker processes load code again when it changes. Raises ConfigError when there are none."""
    if not _pools(running.runtime):
        raise ConfigError("--reload needs worker processes: use --runtime process")

    async def reload() -> None:
        await asyncio.gather(*(pool.reload() for pool in _pools(running.runtime)))

    return _in_background(reload_on_change(reload, folders))


def _pools(runtime: Runtime) -> list[ProcessRuntime]:
    """What of the runtime is worker processes."""
    runtimes = (
        [member.runtime for member in runtime.members] if isinstance(runtime, MixedRuntime) else [runtime]
    )
    return [each for each in runtimes if isinstance(each, ProcessRuntime)]


def _other_faces(settings: Settings, sessions: Sessions) -> list[Face]:
    if not settings.other_protocols:
        return []
    from .also import make_faces  # loaded only when asked for

    return make_faces(
        settings.other_protocols,
        sessions,
        index_only=settings.index_only,
        max_body_bytes=settings.max_body_bytes,
    )


def _inside_worker() -> bool:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == WORKER_MODULE


def _names(running: Running) -> str:
    return ", ".join(info.name for info in running.runtime.environments)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio switches Nagle off on accepted connections; else a call takes 40 ms.
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


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # not on Windows
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _session_limits(settings: Settings) -> SessionLimits:
    return SessionLimits(
        max_sessions=settings.max_sessions,
        max_sessions_per_owner=settings.max_sessions_per_key,
        max_calls=settings.max_calls,
        idle_limit_s=settings.idle_limit_s,
        lifetime_limit_s=settings.lifetime_limit_s,
        call_time_limit_s=settings.call_time_limit_s,
        setup_wait_s=settings.setup_wait_s,
        client_grace_s=settings.client_grace_s,
        gone_memory_s=settings.gone_memory_s,
    )


def _call_limits(settings: Settings) -> CallLimits:
    return CallLimits(
        results_per_session=settings.stored_results_per_session,
        bytes_per_session=settings.stored_bytes_per_session,
        bytes_in_all=settings.stored_bytes,
        age_s=settings.stored_age_s,
    )
