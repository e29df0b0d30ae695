"""Puts the objects together: settings in, a running server out."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import uvicorn

from .auth import Keys
from .calls import CallLimits
from .config.entries import Entry
from .config.targets import read_targets
from .errors import ConfigError, LoadError
from .faults import FaultLog
from .http.app import HttpApp
from .http.connection import Connection
from .http.episodes import EpisodeEndpoints
from .http.faces import Face
from .loader import source_of
from .logs import configure, get_logger
from .places import CodePlace, Place, plan
from .reload import reload_on_change
from .runtimes.base import Runtime
from .runtimes.link import WORKER_MODULE
from .runtimes.mixed import MixedRuntime
from .runtimes.process import ProcessRuntime
from .sessions import SessionLimits, Sessions
from .settings import Settings

__all__ = ["Running", "Server", "make_runtime"]

_log = get_logger(__name__)


def make_runtime(places: Sequence[Place], classes: Sequence[type] = ()) -> Runtime:
    """One runtime for all places; ``classes`` are hosted in this process instead. Raises LoadError."""
    if len(places) == 1 and isinstance(places[0], CodePlace):
        return places[0].runtime(classes)
    return MixedRuntime([place.member() for place in places])


def _server_id(settings: Settings, sock: socket.socket) -> str:
    """What containers of this server are known by: the same when it is started again, and no other's."""
    if settings.server_name is not None:
        return settings.server_name
    place = f"{socket.gethostname()} {settings.host} {sock.getsockname()[1]}"
    return hashlib.sha256(place.encode()).hexdigest()[:12]


class Running:
    """A server that accepts requests: ``url`` says where, ``ready`` waits for the environments."""

    def __init__(self, settings: Settings, runtime: Runtime, sock: socket.socket) -> None:
        self.settings = settings
        self.runtime = runtime
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
            Keys(settings.keys),
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

    The first environment is the default. Settings are keyword arguments of ``run``, or variables ``ORSAY_…``.
    """

    def __init__(self, environments: Sequence[type | str], *, reload: bool = False, **settings: Any) -> None:
        if not environments:
            raise LoadError("a server needs at least one environment class")
        self._targets = [each for each in environments if isinstance(each, str)]
        self._classes = [each for each in environments if not isinstance(each, str)]
        if self._targets and self._classes:
            raise LoadError("give the server classes or import paths, not both")
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
        effective = Settings(**given)
        writer = configure(effective.log_level, effective.log_format)
        try:
            with asyncio.Runner(loop_factory=_new_loop) as runner:
                runner.run(self.main(effective))
        finally:
            writer.close()

    async def main(self, settings: Settings) -> None:
        """``run`` inside a running loop."""
        if settings.open_to_anyone:
            _log.warning("open_to_anyone", host=settings.host, hint="set ORSAY_API_KEYS to ask for a key")
        async with self.running(settings) as running, self._reloading(running):
            # taken before anybody is told that the server is there; a second signal hastens the end
            stopped = _signals(again=running.sessions.hurry)
            print(f"Orsay serves {_names(running)} at {running.url}", flush=True)
            await stopped.wait()
            _log.info("shutting_down")

    @contextlib.asynccontextmanager
    async def _reloading(self, running: Running) -> AsyncIterator[None]:
        if not self._reload:
            yield
            return
        if not _pools(running.runtime):
            raise ConfigError("--reload needs worker processes: use --runtime process")

        async def reload() -> None:
            await asyncio.gather(*(pool.reload() for pool in _pools(running.runtime)))

        watching = asyncio.create_task(reload_on_change(reload, Path.cwd()))
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def running(self, settings: Settings) -> AsyncIterator[Running]:
        """A server that is ready; shut down at the end of the block."""
        if settings.other_protocols:
            from .also import require  # loaded only when asked for

            require(settings.other_protocols)
        sock = _listen(settings.host, settings.port)
        try:
            places = plan(self._entries(settings), settings, _server_id(settings, sock))
            running = Running(settings, make_runtime(places, self._classes), sock)
        except BaseException:
            sock.close()
            raise
        serving = asyncio.create_task(running.serve())
        try:
            await running.load()
            yield running
        finally:
            await running.shut_down()
            await serving

    def _entries(self, settings: Settings) -> list[Entry]:
        targets = self._targets
        if self._classes:
            local = settings.runtime == "local"
            targets = ["classes of this process" if local else source_of(cls) for cls in self._classes]
        return read_targets(targets, "process" if self._classes else settings.runtime)


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


def _signals(*, again: Callable[[], None]) -> asyncio.Event:
    """Set when the process is told to stop; ``again`` is called when it is told once more."""
    stopped = asyncio.Event()

    def stop() -> None:
        if stopped.is_set():
            again()
        stopped.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    return stopped


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
