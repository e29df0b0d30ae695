"""Mount of the console: the page and its files for everyone, the API for holders of a key."""

from __future__ import annotations

import asyncio
import importlib
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orsay_protocol.sse import encode_event

from ..auth import Keys
from ..errors import Overloaded, ShuttingDown, Unsupported
from ..http.mounts import Pairs
from ..http.operations import Operation
from ..http.request import Endpoint, Request
from ..sessions.registry import Sessions
from .about import JournalState, ServerFacts, describe_environments, describe_server
from .answers import plain, refuse, send_value, strict_headers
from .live import Feed
from .recent import Ended, Faults, RecentFaults
from .request import JournalRequest
from .sandboxes import end_sandbox, show_sandboxes
from .site import Site

if TYPE_CHECKING:  # SQLAlchemy is loaded with a journal only
    from ..journal.write.writer import Writer
    from ..sandboxes.service import SandboxService
    from .history import History

__all__ = ["ConsoleMount"]

_ROOT = "/console"
_API = "/console/api"
_END = re.compile(r"/sessions/(?P<sid>.+)/end", re.DOTALL)
_END_SANDBOX = re.compile(r"/sandboxes/(?P<id>[^/]+)/end")
_PAST = re.compile(r"/((trajectories|rollouts)(/[0-9]+)?|evaluations(/[0-9]+)?|runs(/series)?|tasks|export)")
_STREAMS = 256
_STREAMS_PER_KEY = 32
_OFF = (
    "the journal is off, so nothing that was played is kept: start the server with ORSAY_JOURNAL=auto, or"
    ' with journal = "auto" in orsay.toml'
)
_SEND_TIMEOUT_S = 30.0
_DISCOVERY = frozenset({"tools", "splits", "tasks", "num_tasks", "task", "task_range"})
_STREAM: Pairs = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


class ConsoleMount:
    """``/console`` and everything below it, except endpoints of an environment named ``console``.

    ``journal`` and ``sandboxes`` are None when they are off. ``site`` is the folder of the built page.
    """

    def __init__(
        self,
        sessions: Sessions,
        keys: Keys,
        facts: ServerFacts,
        *,
        max_body_bytes: int,
        journal: Writer | None = None,
        sandboxes: SandboxService | None = None,
        site: Path | None = None,
    ) -> None:
        self._sandboxes = sandboxes
        self._sessions = sessions
        self._keys = keys
        self._facts = facts
        self._journal = journal
        self._max_body = max_body_bytes
        self._history: History | None = None
        self._site = Site() if site is None else Site(site)
        self._faults = RecentFaults(sessions.faults)
        shown = None if sandboxes is None else partial(show_sandboxes, sandboxes)
        self._feed = Feed(sessions.live, sessions.meter.recent, sandboxes=shown)
        self._table: dict[str, Mapping[str, Endpoint]] = {
            "/server": {"GET": self._server},
            "/environments": {"GET": self._environments},
            "/live": {"GET": self._live},
            "/faults": {"GET": self._recent_faults},
        }

    # as every mount

    @property
    def operations(self) -> list[Operation]:
        """Endpoints for the OpenAPI document, loaded when that is made."""
        return list(importlib.import_module(".operations", __package__).OPERATIONS)

    def find(self, path: str) -> Mapping[str, Endpoint]:
        if path != _ROOT and not path.startswith(_ROOT + "/"):
            return {}
        if path == _API or path.startswith(_API + "/"):
            return self._find(path[len(_API) :])
        subpath = path[len(_ROOT) + 1 :]
        if subpath in _DISCOVERY and any(
            info.key == "console" for info in self._sessions.runtime.environments
        ):
            return {}
        page = partial(self._page, subpath)
        return {"GET": page, "HEAD": page}

    def find_socket(self, path: str) -> Endpoint | None:
        return None

    async def close(self) -> None:
        await self._feed.close()
        if self._history is not None:
            await self._history.close()

    def is_open(self, path: str) -> bool:
        """True for the page and its files, which contain only data of the package."""
        inside = path == _ROOT or path.startswith(_ROOT + "/")
        return inside and path != _API and not path.startswith(_API + "/")

    def headers(self, path: str) -> Pairs:
        return strict_headers() if path == _ROOT or path.startswith(_ROOT + "/") else ()

    def _find(self, path: str) -> Mapping[str, Endpoint]:
        found = self._table.get(path)
        if found is not None:
            return found
        match = _END.fullmatch(path)
        if match is not None:
            return {"POST": partial(self._end, match["sid"])}
        match = _END_SANDBOX.fullmatch(path)
        if match is not None and self._sandboxes is not None:
            return {"POST": partial(self._end_sandbox, self._sandboxes, match["id"])}
        if _PAST.fullmatch(path):
            past = partial(self._past, path)
            return {"GET": past, "POST": past} if path == "/evaluations" else {"GET": past}
        raise Unsupported(
            f"the console's API has no {path.lstrip('/') or 'such path'!r}: see docs/console.md"
        )

    # the page

    async def _page(self, subpath: str, request: Request) -> None:
        await self._site.answer(request.scope, request.headers, request.send, subpath)

    # the API

    async def _server(self, request: Request) -> None:
        entry = describe_server(self._facts, keys=bool(self._keys), journal=self._journal_state())
        await send_value(request, entry)

    def _journal_state(self) -> JournalState | None:
        if self._journal is None:
            return None
        health = self._journal.health
        return JournalState(
            state=health.state,
            reason=health.reason or "",
            lag_s=health.lag_s,
            waiting=health.waiting,
            lost=health.lost,
        )

    async def _environments(self, request: Request) -> None:
        found = await describe_environments(self._sessions.runtime, self._sessions.live, request.owner)
        await send_value(request, found)

    async def _recent_faults(self, request: Request) -> None:
        await send_value(request, Faults(self._faults.of(request.owner)))

    async def _end(self, sid: str, request: Request) -> None:
        session = self._sessions.get(sid, request.owner)
        fault = await self._sessions.close(session, "console")
        text = None if fault is None else plain(self._sessions.faults.text(fault))
        await send_value(request, Ended(sid=sid, fault=text))

    async def _end_sandbox(self, sandboxes: SandboxService, id: str, request: Request) -> None:
        await send_value(request, await end_sandbox(sandboxes, id, request.owner))

    async def _live(self, request: Request) -> None:
        if self._feed.closed:
            raise ShuttingDown("the server is shutting down")
        if len(self._feed) >= _STREAMS:
            raise Overloaded(f"the console is at maximum capacity: {_STREAMS} streams are open")
        if self._keys.several and self._feed.listeners(request.owner) >= _STREAMS_PER_KEY:
            raise Overloaded(f"this key is at maximum capacity: {_STREAMS_PER_KEY} streams of the console")
        with self._feed.listening(request.owner) as listener:
            start = {"type": "http.response.start", "status": 200}
            await request.send({**start, "headers": [*_STREAM, *strict_headers()]})
            while not request.has_gone() and (snapshot := await listener.next()) is not None:
                event = encode_event("snapshot", snapshot.decode())
                try:
                    async with asyncio.timeout(_SEND_TIMEOUT_S):
                        await request.send({"type": "http.response.body", "body": event, "more_body": True})
                except TimeoutError:  # the client is connected but does not read
                    break
        await request.send({"type": "http.response.body", "body": b""})

    # the journal

    async def _past(self, path: str, request: Request) -> None:
        if self._journal is None:
            await refuse(request, 409, "journal_off", _OFF)
            return
        if self._history is None:  # imported on first use: that takes a while
            module = await asyncio.to_thread(importlib.import_module, ".history", __package__)
            faults = self._sessions.faults
            self._history = module.History(self._journal, faults, max_body_bytes=self._max_body)
        history: History = self._history
        await history.answer(path, JournalRequest(request, request.owner if self._keys else None))
