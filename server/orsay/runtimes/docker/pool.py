"""Pool of containers with spares and scale to zero, and the choice of one for a session.

Replicas share the sessions; spares are started ahead. A lost replica is replaced at once by a spare, if there
is one; repeated failures to start are retried with backoff. An unused pool can scale to zero until the next
request.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from ...errors import Overloaded, ShuttingDown, Starting
from ...logs import get_logger
from ..base import EnvironmentInfo, Gauge
from .options import DockerOptions
from .replica import Replica

__all__ = ["Pool"]

_log = get_logger(__name__)
_WATCH_S = 0.5
_BACKOFF_S = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_SOUND_S = 20.0  # a container with this uptime did not fail at its start


class Pool:
    """Containers made by ``make(number)``. The owner calls ``lost`` for each that ends."""

    def __init__(
        self,
        options: DockerOptions,
        make: Callable[[int], Replica],
        *,
        label: str,
    ) -> None:
        self._label = label
        self._options = options
        self._make = make
        self._active: list[Replica] = []
        self._spare: list[Replica] = []
        self._starting: dict[asyncio.Task[None], Replica] = {}
        self._ending: dict[asyncio.Task[None], Replica] = {}
        self._made = 0
        self._lost_count = self._failed_count = 0
        self._failures = 0
        self._problem = ""
        self._asleep = True
        self._stopping = False
        self._now = asyncio.get_running_loop().time
        self._used_at = self._now()
        self._watch: asyncio.Task[None] | None = None

    # life cycle

    async def start(self) -> None:
        """Start all at the same time. Raises LoadError if one does not come up."""
        self._asleep = False
        self._balance()
        first = list(self._starting)
        try:
            await asyncio.gather(*first)
        except BaseException:
            await self.stop()
            raise
        self._used_at = self._now()
        self._watch = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End all at the same time; bounded by the grace time of a container."""
        self._stopping = True
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        self._end_all()
        while self._starting or self._ending:
            await asyncio.gather(*self._starting, *self._ending, return_exceptions=True)

    def _end_all(self) -> None:
        for task in self._starting:
            task.cancel()
        for replica in [*self._active, *self._spare]:
            self._end(replica)
        self._active.clear()
        self._spare.clear()

    def _end(self, replica: Replica) -> None:
        task = asyncio.get_running_loop().create_task(replica.end())
        self._ending[task] = replica
        task.add_done_callback(self._ending.pop)

    @property
    def replicas(self) -> Iterable[Replica]:
        """Containers that are up, starting or ending."""
        return [*self._active, *self._spare, *self._starting.values(), *self._ending.values()]

    @property
    def environments(self) -> Sequence[EnvironmentInfo]:
        """Environments that the containers host; none while none is up."""
        known = (each.environments for each in self.replicas)
        return next((found for found in known if found), ())

    def gauges(self) -> Iterator[Gauge]:
        """Numbers of containers by state, and of losses."""
        counts = {
            "active": len(self._active),
            "spare": len(self._spare),
            "starting": len(self._starting),
            "ending": len(self._ending),
        }
        for state, count in counts.items():
            yield Gauge("containers", count, {"state": state})
        yield Gauge("containers_wanted", 0 if self._asleep else self._options.replicas + self._options.spare)
        yield Gauge("containers_up", sum(each.upstream.up for each in [*self._active, *self._spare]))
        yield Gauge("container_sessions", sum(each.sessions for each in self._active))
        yield Gauge("containers_started", self._made)
        yield Gauge("containers_lost", self._lost_count)
        yield Gauge("container_start_failures", self._failed_count)

    # starting

    def _balance(self) -> None:
        """Start missing containers."""
        if self._asleep or self._stopping:
            return
        while self._spare and len(self._active) < self._options.replicas:
            self._active.append(self._spare.pop(0))
        wanted = self._options.replicas + self._options.spare
        for _ in range(wanted - len(self._active) - len(self._spare) - len(self._starting)):
            self._launch(_BACKOFF_S[min(self._failures, len(_BACKOFF_S) - 1)])

    def _launch(self, delay_s: float) -> None:
        self._made += 1
        replica = self._make(self._made)
        task = asyncio.get_running_loop().create_task(self._start(replica, delay_s))
        self._starting[task] = replica
        task.add_done_callback(self._started)

    async def _start(self, replica: Replica, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        try:
            await replica.start()
        except BaseException:
            self._end(replica)
            raise

    def _started(self, task: asyncio.Task[None]) -> None:
        replica = self._starting.pop(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is None and (replica.gone or self._asleep or self._stopping):
            self._end(replica)
        if error is None and not replica.gone:
            if self._asleep or self._stopping:
                return
            self._spare.append(replica)
            self._used_at = self._now()  # counts as used: the session that woke the pool is not open yet
            self._problem = ""
            _log.info("container_ready", label=self._label, container=replica.name)
        elif self._watch is not None:  # the first start raises its error
            self._failures += 1
            self._failed_count += 1
            self._problem = str(error or "it ended at once")
            _log.error(
                "container_start_failed", label=self._label, error=self._problem, failures=self._failures
            )
        self._balance()

    # lost containers

    def lost(self, replica: Replica, reason: str, *, gone: bool = True) -> None:
        """Replace a container that ended or is unusable; its sessions are lost."""
        if gone:
            replica.ended(reason)
        if replica not in self._active and replica not in self._spare:
            return  # its start fails, or it is being removed
        for group in (self._active, self._spare):
            if replica in group:
                group.remove(replica)
        self._lost_count += 1
        lived_s = self._now() - replica.born_at
        self._failures = 0 if lived_s > _SOUND_S else self._failures + 1
        _log.warning(
            "container_lost",
            label=self._label,
            container=replica.name,
            reason=reason,
            sessions=replica.sessions,
            lived_s=round(lived_s, 1),
        )
        replica.upstream.mark_lost("worker_lost", f"the container {reason}")
        self._end(replica)
        self._balance()

    # sessions

    def pick(self, *, for_session: bool = True) -> Replica:
        """The replica with the fewest sessions. Raises Starting, ShuttingDown, for a session Overloaded."""
        self._used_at = self._now()
        if self._stopping:
            raise ShuttingDown("the server is shutting down")
        if self._asleep:
            self._wake()
        if not self._active:
            again = f"; the last try failed: {self._problem.splitlines()[0]}" if self._problem else ""
            raise Starting(f"the containers of {self._options.image} are being started{again}")
        most = self._options.max_sessions_per_replica if for_session else None
        roomy = [each for each in self._active if most is None or each.sessions < most]
        if not roomy:
            raise Overloaded(
                f"server at maximum capacity: all {len(self._active)} containers of {self._options.image}"
                f" have {most} sessions"
            )
        return min(roomy, key=_load)

    def _wake(self) -> None:
        _log.info("containers_wake", label=self._label)
        self._asleep = False
        self._failures = 0
        self._balance()

    # timers

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_S)
            for replica in [*self._active, *self._spare]:
                if replica.silent_s() > self._options.hang_limit_s:
                    self.lost(replica, f"did not answer for {self._options.hang_limit_s:g} s", gone=False)
            self._sleep_if_idle()

    def _sleep_if_idle(self) -> None:
        idle_s = self._options.idle_s
        if idle_s is None or self._asleep or (self._starting and not self._failures):
            return
        if any(each.sessions or each.questions for each in self._active):
            self._used_at = self._now()
        elif self._now() - self._used_at > idle_s:
            _log.info("containers_sleep", label=self._label, idle_s=idle_s)
            self._asleep = True
            self._end_all()


def _load(replica: Replica) -> tuple[bool, int]:
    return not replica.upstream.up, replica.sessions
