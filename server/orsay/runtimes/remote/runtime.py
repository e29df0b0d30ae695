"""The ``remote`` runtime: sessions live in another ORS server, found by its URL.

The other server may be an Orsay server, a gateway like this one, or any ORS server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..base import EnvironmentInfo, Gauge, Listener, OpenSession, TaskQuery
from .handle import RemoteHandle
from .opening import open_session
from .options import RemoteOptions
from .tasks import ask_tasks
from .upstream import Upstream

__all__ = ["RemoteRuntime"]


class RemoteRuntime:
    """Runtime for the environments of the server at ``url``, under their names there.

    The start waits a bounded time for a server that is down; after that it is checked periodically, and
    listed in ``pending``. Raises ConfigError for an invalid URL.
    """

    def __init__(self, url: str, options: RemoteOptions | None = None, *, label: str = "") -> None:
        self.upstream = Upstream(url, options or RemoteOptions(), label=label, changed=self._look)
        self.environments: Sequence[EnvironmentInfo] = ()
        self.pending: Sequence[str] = (self.upstream.label,)

    def _look(self) -> None:
        self.environments = self.upstream.environments
        self.pending = () if self.environments else (self.upstream.label,)

    async def start(self) -> None:
        await self.upstream.start()

    async def open(self, request: OpenSession, listener: Listener) -> RemoteHandle:
        return await open_session(self.upstream, request, listener)

    async def tasks(self, query: TaskQuery) -> bytes:
        return await ask_tasks(self.upstream, query)

    def gauges(self) -> Iterator[Gauge]:
        """State of the server, and number of our sessions there."""
        labels = {"runtime": self.upstream.label}
        yield Gauge("upstream_up", self.upstream.up, labels)
        yield Gauge("upstream_sessions", len(self.upstream.sessions), labels)
        yield Gauge("upstream_outages", self.upstream.outages, labels)

    async def stop(self) -> None:
        await self.upstream.close()
