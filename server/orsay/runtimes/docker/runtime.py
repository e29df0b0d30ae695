"""The ``docker`` runtime: sessions in containers of an image whose server speaks ORS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...errors import ConfigError, EngineError, LoadError
from ...logs import get_logger
from ..base import EnvironmentInfo, Gauge, Handle, Listener, OpenSession, TaskQuery
from ..remote.opening import open_session
from ..remote.tasks import ask_tasks
from .claim import Claim
from .engine import Engine
from .events import Events
from .lease import Lease
from .options import ISOLATED, DockerOptions
from .pool import Pool
from .replica import Plan, Replica
from .sandboxes import SandboxAddress, sandbox_variables

__all__ = ["DockerRuntime"]

_log = get_logger(__name__)


class DockerRuntime:
    """Runtime over containers of ``options.image``, which it creates, monitors and removes.

    ``server_id`` stays the same over restarts, so that containers of a killed server are found. ``label``
    names the runtime in logs and on the engine. ``sandboxes``: where its code finds those of this server.
    """

    def __init__(
        self,
        options: DockerOptions,
        *,
        server_id: str,
        label: str = "",
        sandboxes: SandboxAddress | None = None,
    ) -> None:
        self.options = options
        self._sandboxes = sandboxes
        self.label = label or options.image
        self.environments: Sequence[EnvironmentInfo] = ()
        self.pending: Sequence[str] = ()
        self._claim = Claim(server_id, self.label)
        self._engine: Engine | None = None
        self._lease: Lease | None = None
        self._network: str | None = None
        self._events: Events | None = None
        self._pool: Pool | None = None

    async def start(self) -> None:
        """Returns when all replicas are up. Raises ConfigError (no engine, no SDK) or LoadError."""
        self._engine = await Engine.connect()
        try:
            await self._start(self._engine)
        except EngineError as exc:
            await self.stop()
            raise LoadError(f"image {self.options.image}: {exc}") from exc
        except BaseException:
            await self.stop()
            raise

    async def _start(self, engine: Engine) -> None:
        options, claim = self.options, self._claim
        claim.take()
        await claim.clear_left(engine)
        image = await engine.image(options.image, pull=options.pull)
        network = await self._choose_network(engine)
        if self._sandboxes is not None:
            url = await self._sandboxes.seen_from(engine, network)
            options = replace(options, variables={**sandbox_variables(url), **options.variables})
        self._lease = Lease(options.lease_s, on_beat=claim.refresh)
        plan = Plan(
            engine=engine,
            options=options,
            image=image,
            claim=claim,
            lease=self._lease,
            network=network,
        )
        pool = self._pool = Pool(options, lambda number: Replica(plan, number, self._look), label=self.label)
        self._events = Events(engine, claim.labels, pool, memory=options.memory)
        await self._events.start()
        await pool.start()

    async def _choose_network(self, engine: Engine) -> str:
        wanted = self.options.network
        if wanted == ISOLATED:
            name, interface = f"orsay-{self._claim.word}", f"orsay{self._claim.word[:8]}"
            self._network = await engine.create_network(name, labels=self._claim.labels, interface=interface)
            return name
        if not await engine.has_network(wanted):
            raise ConfigError(
                f"image {self.options.image}: the Docker engine has no network {wanted!r}; make it with"
                f" `docker network create {wanted}`, or use {ISOLATED}"
            )
        return wanted

    def _look(self) -> None:
        """Update the environments from a container."""
        found = None if self._pool is None else self._pool.environments
        self.environments = found or self.environments  # environments stay known at scale zero

    async def stop(self) -> None:
        """Stop all containers and remove their networks; safe to call twice."""
        if self._pool is not None:
            await self._pool.stop()
        if self._events is not None:
            await self._events.stop()
        if self._lease is not None:
            self._lease.stop()
        if self._engine is not None:
            if self._network is not None:
                try:
                    await self._engine.remove_network(self._network)
                except EngineError as exc:
                    _log.error("network_left", network=self._network, error=str(exc))
            await self._engine.close()
        self._pool = self._events = self._lease = self._engine = self._network = None
        self._claim.release()

    def gauges(self) -> Iterator[Gauge]:
        """Metrics of its containers: number by state, and losses."""
        if self._pool is not None:
            for gauge in self._pool.gauges():
                yield gauge._replace(labels={**gauge.labels, "runtime": self.label})

    # sessions and tasks

    def _pick(self, *, for_session: bool = True) -> Replica:
        if self._pool is None:
            raise LoadError(f"the runtime of {self.label} was not started")
        return self._pool.pick(for_session=for_session)

    async def open(self, request: OpenSession, listener: Listener) -> Handle:
        """Open a session; raises Starting while containers start, such as after a scale to zero."""
        replica = self._pick()
        replica.opening += 1
        try:
            return await open_session(replica.upstream, request, listener)
        finally:
            replica.opening -= 1

    async def tasks(self, query: TaskQuery) -> bytes:
        replica = self._pick(for_session=False)
        replica.questions += 1
        try:
            return await ask_tasks(replica.upstream, query)
        finally:
            replica.questions -= 1
