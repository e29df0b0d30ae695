"""A server that accepts requests: sessions, their HTTP face and the listening socket, put together."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import time
from collections.abc import Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING

import uvicorn

from .auth import Keys
from .calls import CallLimits
from .console.about import ServerFacts
from .console.face import ConsoleFace
from .faults import FaultLog
from .http.app import HttpApp
from .http.connection import Connection
from .http.episodes import EpisodeEndpoints
from .http.faces import Face
from .logs import set_level
from .observe.face import MetricsFace
from .observe.observed import Observed
from .observe.telemetry import make_telemetry
from .runtimes.base import Runtime
from .runtimes.mixed import MixedRuntime
from .sessions import SessionLimits, Sessions
from .settings import Settings, otel_variables

if TYPE_CHECKING:
    from .journal.writer import Writer

__all__ = ["Running"]


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
        self.journal = _journal(settings)
        self._telemetry = make_telemetry(otel_variables(), version=version("orsay"))
        played = runtime if self._telemetry is None else self._telemetry.traced(runtime)
        self.sessions = _sessions(settings, played, faults, self.journal, server_id)
        episodes = EpisodeEndpoints(
            self.sessions,
            max_body_bytes=settings.max_body_bytes,
            stream_after_s=settings.stream_after_s,
            stream_ping_s=settings.stream_ping_s,
            index_only=settings.index_only,
        )
        faces = _other_faces(settings, self.sessions)
        if settings.shows_console:
            faces.insert(0, _console(settings, self.sessions, self._keys, self.journal))
        self._observed = Observed(
            self.sessions, runtime, self._keys, self.journal, version("orsay"), time.time()
        )
        self._observed.watch()
        if settings.metrics:
            faces.append(MetricsFace(self._observed))
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
        if self.journal is not None:
            self.journal.start()
        await self.runtime.start()
        self._learn()
        self.sessions.start()
        if self._telemetry is not None:
            self._telemetry.start(self._observed)
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
        if self.journal is not None:
            await self.journal.close()
        if self._telemetry is not None:
            await self._telemetry.close()
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


def _journal(settings: Settings) -> Writer | None:
    """Raises ConfigError for a setting that names no journal."""
    if settings.journal == "off":
        return None
    from .journal.location import options_from  # what is off costs no time at the start
    from .journal.writer import Writer

    options = options_from(settings)
    return None if options is None else Writer(options)


def _sessions(
    settings: Settings, runtime: Runtime, faults: FaultLog, journal: Writer | None, server_id: str
) -> Sessions:
    recorder = recovery = None
    if journal is not None:
        from .journal.recorder import Recorder
        from .recovery import Recovery

        recorder = Recorder(journal, server_id)
        recovery = Recovery(recorder, runtime)
    return Sessions(
        runtime,
        _session_limits(settings),
        _call_limits(settings),
        faults,
        log_calls=settings.log_level == "debug",
        recorder=recorder,
        recovery=recovery,
        needs_journal=settings.journal_required,
    )


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


def _console(settings: Settings, sessions: Sessions, keys: Keys, journal: Writer | None) -> Face:
    facts = ServerFacts(
        name=settings.server_name or socket.gethostname(),
        runtime=settings.runtime,
        workers=settings.workers if settings.runtime == "process" else None,
        started_at=time.time(),
    )
    return ConsoleFace(sessions, keys, facts, journal=journal, max_body_bytes=settings.max_body_bytes)


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
