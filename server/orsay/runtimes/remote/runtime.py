"""The ``remote`` runtime: sessions live in another ORS server, found by its URL.

The other server may be one of ours, a gateway like this one, or any that speaks ORS.
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
    """The environments of the server at ``url``, under the names they have there.

    A server that is down is waited for a moment and then tried again and again; meanwhile ``pending``
    names it. Raises ConfigError for what is no URL.
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
        """State of the server, and the number of our sessions there."""
        labels = {"runtime": self.upstream.label}
        yield Gauge("upstream_up", self.upstream.up, labels)
        yield Gauge("upstream_sessions", len(self.upstream.sessions), labels)
        yield Gauge("upstream_outages", self.upstream.outages, labels)

    async def stop(self) -> None:
        await self.upstream.close()
