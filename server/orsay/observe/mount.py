"""``/metrics`` for Prometheus, behind the same keys as everything else."""

from __future__ import annotations

import asyncio
import gzip
import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from ..http.operations import Operation
from ..http.request import Endpoint, Request
from .observed import Observed

if TYPE_CHECKING:  # loaded with the first request
    from .exposition import Exposition

__all__ = ["MetricsMount"]

_PATH = "/metrics"


class MetricsMount:
    """The path ``/metrics``.

    The exposition is imported with the first request, so that a server without scrapes does not load it.
    """

    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        self._exposition: Exposition | None = None

    @property
    def operations(self) -> Sequence[Operation]:
        return [
            Operation(
                "get",
                _PATH,
                "The server's metrics, for Prometheus.",
                session=False,
                errors=(401,),
                tag="server",
                media="text/plain",
            )
        ]

    def find(self, path: str) -> Mapping[str, Endpoint]:
        return {"GET": self._metrics} if path == _PATH else {}

    def find_socket(self, path: str) -> Endpoint | None:
        return None

    async def close(self) -> None:
        """Do nothing: the mount holds no resources."""

    async def _metrics(self, request: Request) -> None:
        if self._exposition is None:
            module = await asyncio.to_thread(importlib.import_module, ".exposition", __package__)
            self._exposition = self._exposition or module.Exposition(self._observed)
        names = parse_qs(request.scope["query_string"].decode("latin-1")).get("name[]", [])
        text, kind = await self._exposition.text(request.header(b"accept") or "", names)
        answer = [(b"content-type", kind.encode())]
        if b"gzip" in request.headers.get(b"accept-encoding", b""):
            text = gzip.compress(text, 1)
            answer.append((b"content-encoding", b"gzip"))
        await request.send_once(200, text, tuple(answer))
