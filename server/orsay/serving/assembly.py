"""Assembly of a server from its parts: sessions, HTTP application, listening socket."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, cast

import uvicorn

from ..auth import Keys, old_name
from ..console.about import ServerFacts
from ..console.mount import ConsoleMount
from ..errors import JournalDown
from ..faults import FaultLog
from ..http.app import HttpApp
from ..http.asgi import Scope
from ..http.episodes import EpisodeEndpoints
from ..http.guard import Guard
from ..http.limits import Door
from ..http.loading import Loading
from ..http.mounts import Mount
from ..http.names import Names
from ..http.reference import ReferenceMount
from ..http.uvicorn_protocol import Connection
from ..logs import get_logger, set_level
from ..observe.mount import MetricsMount
from ..observe.observed import Observed
from ..observe.telemetry import make_telemetry
from ..protocols.required_secrets import RequiredSecretsMount
from ..protocols.rollouts.mount import RolloutMount
from ..runtimes.base import Runtime
from ..runtimes.router import RouterRuntime
from ..sessions.limits import CallLimits, SessionLimits
from ..sessions.registry import Sessions
from ..settings import Settings, otel_variables
from .descriptors import MORE_DESCRIPTORS, connections_for, descriptor_limit, has_free_descriptor

if TYPE_CHECKING:  # SQLAlchemy is loaded with a journal only
    from ..journal.write.writer import Writer
    from ..sandboxes.service import SandboxService
    from .sandboxes import ServedSandboxes

__all__ = ["Running"]

_NAMED_AHEAD = 16  # keys: computing a name takes about 20 ms, too long for a request
_log = get_logger(__name__)
_SALT_WAIT_S = 10.0
_END_S = 3
_TICKS_BETWEEN_PROBES = 10  # of uvicorn, ten a second


class Running:
    """A running server; ``url`` is its address, ``ready`` waits for the environments."""

    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        sock: socket.socket,
        server_id: str = "",
        sandboxes: ServedSandboxes | None = None,
        *,
        secrets_of: Callable[[str], Sequence[str]] | None = None,
    ) -> None:
        self.server_id = server_id
        self.settings = settings
        self.runtime = runtime
        self._keys = Keys(settings.keys)
        self._naming: asyncio.Task[None] | None = None
        host, port = sock.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        faults = FaultLog(show=settings.shows_exceptions)
        self.journal = _journal(settings)
        self._telemetry = make_telemetry(otel_variables(), version=version("orsay"))
        played = runtime if self._telemetry is None else self._telemetry.traced(runtime)
        self.variables = {} if sandboxes is None else sandboxes.variables
        """Additional environment variables of hosted code."""
        if sandboxes is not None:
            played = sandboxes.around(played, runtime, self._keys)
        self.sessions = _sessions(settings, played, faults, self.journal, server_id)
        episodes = EpisodeEndpoints(
            self.sessions,
            max_body_bytes=settings.max_body_bytes,
            stream_after_s=settings.stream_after_s,
            stream_ping_s=settings.stream_ping_s,
            index_only=settings.index_only,
        )
        mounts = _other_mounts(settings, self.sessions)
        if sandboxes is not None:
            mounts.append(sandboxes.mount)
        if secrets_of is not None:
            mounts.append(RequiredSecretsMount(runtime, secrets_of))
        recent = self.sessions.secrets.of
        mounts.append(RolloutMount(self.journal, recent, max_body_bytes=settings.max_body_bytes))
        if settings.shows_console:
            service = None if sandboxes is None else sandboxes.service
            mounts.insert(0, _console(settings, self.sessions, self._keys, self.journal, service))
        guard = _guard(settings)
        self._observed = Observed(
            self.sessions,
            runtime,
            self._keys,
            guard,
            self.journal,
            version("orsay"),
            time.time(),
            None if sandboxes is None else sandboxes.meter,
        )
        self._observed.watch()
        mounts.append(ReferenceMount(settings.framers))
        if settings.metrics:
            mounts.append(MetricsMount(self._observed))
        self._loading = Loading(settings.load_wait_s, lambda: self.sessions.stopping)
        self.app = HttpApp(
            episodes,
            runtime,
            self._keys,
            guard,
            faults,
            stopping=lambda: self.sessions.stopping,
            max_body_bytes=settings.max_body_bytes,
            index_only=settings.index_only,
            loading=self._loading,
            trusted_proxies=settings.trusted_proxies,
            mounts=mounts,
        )
        if isinstance(runtime, RouterRuntime):
            runtime.changed = self._learn
        self._sock = sock
        door = _door(settings)
        self._http = _Http(
            door,
            uvicorn.Config(
                self.app,
                interface="asgi3",
                loop="none",
                http=cast("type[asyncio.Protocol]", partial(Connection, door=door, at_once=self.app.at_once)),
                ws=_websocket(door) if "openenv" in settings.other_protocols else "none",
                ws_max_size=settings.max_body_bytes,
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_keep_alive=settings.keep_alive_s,
                timeout_graceful_shutdown=_END_S + 2,
                backlog=4096,
            ),
        )
        self._keys.watch(partial(self._http.break_off_unless, self.app.lets_in))

    async def serve(self) -> None:
        """Accept requests until ``stop``."""
        await self._http.serve(sockets=[self._sock])

    async def load(self) -> None:
        """Load the environments, then admit sessions. Raises LoadError."""
        await self._http.listening.wait()
        if self.journal is not None:
            self.journal.start()
        await self.runtime.start()
        self._learn()
        self._naming = asyncio.create_task(self._name_keys())
        if self._keys:
            await asyncio.shield(self._naming)
        self.sessions.start()
        self._loading.finish()
        if self._telemetry is not None:
            self._telemetry.start(self._observed)
        await self.app.load_rest()
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)

    async def _name_keys(self) -> None:
        """Compute the names of the keys; no key is accepted before that."""
        await self._find_salt()
        for key in self.settings.keys[:_NAMED_AHEAD]:
            await asyncio.to_thread(self._keys.name_of, key)

    async def _find_salt(self) -> None:
        """Read the salt of key names from the journal; without one, names last as long as this server."""
        if self.journal is None:
            self._keys.know(os.urandom(32))
            return
        from ..journal.key_names import (  # loaded only with a journal, to start faster
            has_owner,
            rename_owner,
            salt_of,
        )

        try:
            self._keys.know(await salt_of(self.journal, wait_limit_s=_SALT_WAIT_S))
            for key in self.settings.keys:
                old = old_name(key)
                if await self.journal.read(partial(has_owner, name=old)):
                    await self.journal.change(partial(rename_owner, old=old, new=self._keys.name_of(key)))
        except JournalDown as exc:
            lost = "keys do not find what they played before, and later not what they play now"
            _log.error("keys_not_named", reason=str(exc), consequence=lost)
        if not self._keys.are_named:
            self._keys.know(os.urandom(32))

    def use(self, settings: Settings) -> None:
        """Apply the settings that can change while the server runs."""
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
        await self.sessions.close_all()
        await self.runtime.stop()
        if self._naming is not None:
            self._naming.cancel()
            await asyncio.gather(self._naming, return_exceptions=True)
        await self.app.mounts.close()
        if self.journal is not None:
            await self.journal.close()
        if self._telemetry is not None:
            await self._telemetry.close()
        self._http.should_exit = True


class _Http(uvicorn.Server):
    """uvicorn's server without signal handling: this module controls the shutdown."""

    def __init__(self, door: Door, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._door = door
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    def break_off_unless(self, lets_in: Callable[[Scope], bool]) -> None:
        """Close connections whose request is no longer authorized."""
        bad = [
            each
            for each in self.server_state.connections
            if isinstance(each, Connection) and each.running and not lets_in(dict(each.running.scope))
        ]
        for connection in bad:
            connection.break_off(401, "the API key was taken back while the request was answered")
        if bad:
            _log.info("key_revoked", connections=len(bad))

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS_BETWEEN_PROBES == 0 and not has_free_descriptor():
            # From here on the event loop resets new connections, without a log line.
            self._door.note("descriptors_exhausted", serious=True, hint=MORE_DESCRIPTORS)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish pending answers, then close connections of clients that do not read."""
        breaking_off = asyncio.get_running_loop().call_later(_END_S, self._break_off)
        try:
            await super().shutdown(sockets)
        finally:
            breaking_off.cancel()

    def _break_off(self) -> None:
        left = list(self.server_state.connections)
        _log.info("connections_aborted", connections=len(left))
        for connection in left:
            connection.transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _guard(settings: Settings) -> Guard:
    """Guard with the server's host names and, beyond loopback, names that no public page can have."""
    names = Names(settings.own_names, private=not settings.loopback)
    return Guard(names, settings.page_origins)


def _journal(settings: Settings) -> Writer | None:
    """Journal writer from the settings, or None. Raises ConfigError."""
    if settings.journal == "off":
        return None
    from ..journal.options import options_from  # loaded only with a journal, to start faster
    from ..journal.write.writer import Writer

    options = options_from(settings)
    return None if options is None else Writer(options)


def _sessions(
    settings: Settings, runtime: Runtime, faults: FaultLog, journal: Writer | None, server_id: str
) -> Sessions:
    recorder = recovery = None
    if journal is not None:
        from ..sessions.recorder import Recorder
        from ..sessions.recovery import Recovery

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


def _other_mounts(settings: Settings, sessions: Sessions) -> list[Mount]:
    if not settings.other_protocols:
        return []
    from ..protocols import make_mounts  # loaded only when asked for

    return make_mounts(
        settings.other_protocols,
        sessions,
        index_only=settings.index_only,
        max_body_bytes=settings.max_body_bytes,
    )


def _console(
    settings: Settings,
    sessions: Sessions,
    keys: Keys,
    journal: Writer | None,
    sandboxes: SandboxService | None,
) -> Mount:
    facts = ServerFacts(
        name=settings.server_name or socket.gethostname(),
        runtime=settings.runtime,
        workers=settings.workers if settings.runtime == "process" else None,
        started_at=time.time(),
    )
    return ConsoleMount(
        sessions,
        keys,
        facts,
        max_body_bytes=settings.max_body_bytes,
        journal=journal,
        sandboxes=sandboxes,
    )


def _websocket(door: Door) -> type[asyncio.Protocol]:
    from ..http.uvicorn_websocket import WebSocket  # needs a package of the extra 'openenv'

    return cast("type[asyncio.Protocol]", partial(WebSocket, door=door))


def _door(settings: Settings) -> Door:
    limit = descriptor_limit()
    possible = connections_for(limit)
    wanted = settings.max_connections or possible
    if wanted > possible:
        _log.warning("fewer_connections", max_connections=wanted, possible=possible, hint=MORE_DESCRIPTORS)
    return Door(
        head_time_s=settings.head_time_limit_s,
        transfer_time_s=settings.transfer_time_limit_s,
        connections=min(wanted, possible),
        descriptors=possible,
    )


def _session_limits(settings: Settings) -> SessionLimits:
    return SessionLimits(
        max_sessions=settings.max_sessions,
        max_sessions_per_owner=settings.sessions_per_key,
        max_calls=settings.max_calls,
        idle_limit_s=settings.idle_limit_s,
        lifetime_limit_s=settings.lifetime_limit_s,
        call_time_limit_s=settings.call_time_limit_s,
        setup_wait_s=settings.setup_wait_s,
        load_wait_s=settings.load_wait_s,
        client_grace_s=settings.client_grace_s,
        gone_memory_s=settings.gone_memory_s,
        max_calls_per_owner=settings.calls_per_key,
    )


def _call_limits(settings: Settings) -> CallLimits:
    return CallLimits(
        results_per_session=settings.stored_results_per_session,
        bytes_per_session=settings.stored_bytes_per_session,
        bytes_in_all=settings.stored_bytes,
        age_s=settings.stored_age_s,
    )
