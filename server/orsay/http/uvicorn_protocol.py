"""uvicorn's HTTP/1.1 protocol, with limits on the size, the number and the duration of requests.

uvicorn accepts heads of any size and any number of pipelined requests, and waits for them without a limit.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable
from contextvars import Context
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Literal, cast
from urllib.parse import unquote

import httptools
from uvicorn import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from .cycle import Cycle
from .limits import HEAD_BYTES, HEADERS, PIPELINED, Door
from .refusal import LastAnswer, refusal
from .writing import MOVED_BYTES, OneWrite

__all__ = ["Connection"]

_SLICE_BYTES = 16 * 1024  # a read of 256 KiB may hold 60,000 headers, which are counted after each slice
_NOTHING_MORE = 1 << 60  # a count that sends each further read to the slow path, where it is dropped
_SECOND_LOOK_S = 1.0
_CHUNKED = b"chunked"
_ANSWERED = SimpleNamespace(response_complete=True)  # stands for a cycle before the first request
_VERSIONS = ("1.1", "1.0")
_PLAIN = re.compile(rb"(?:/[\w.~-]+)+", re.ASCII).fullmatch  # a URL that is nothing but a path
_CACHED_BYTES = 128  # longest URL to cache: anyone can send one
_FILLED = ("server", "client", "scheme", "root_path", "headers", "state")  # at the start of a request
_OF_HEAD = ("method", "path", "raw_path", "query_string")
_SCOPE = {
    "type": "http",
    "asgi": {"version": "3.0", "spec_version": "2.3"},
    "http_version": "1.1",
    **dict.fromkeys(_FILLED + _OF_HEAD),
}
_FRAMING = (b"content-length", b"transfer-encoding")
_INVALID = "Invalid HTTP request received."


class _Refusal(Exception):
    """Raised in a callback of the parser, to stop it."""

    def __init__(self, status: int, detail: str) -> None:
        self.status = status
        self.detail = detail


class Connection(HttpToolsProtocol):
    """Protocol for ``uvicorn.Config(http=...)``, with ``door`` and ``at_once`` bound.

    ``at_once`` begins to answer a completely received request, or returns False for one that needs a task.
    A read costs one addition and a few comparisons. Requests have no timers: a periodic check of what the
    connection waits for also replaces uvicorn's timer for idle connections.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        door: Door,
        at_once: Callable[[Cycle], bool],
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._door = door
        self._at_once = at_once
        self._unstarted: Cycle | None = None  # the request whose head was complete in this read
        self._unparsed = 0  # bytes since the last head, or piece of a body, was complete
        self._moved = 0  # bytes of the body since _since
        self._since: float | None = None  # start of the wait for the client
        self._look_after_s = min(door.head_time_s, door.transfer_time_s, self.timeout_keep_alive)
        self._late: float | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._deaf = False  # further input is dropped
        self.url = b""
        self.headers = []
        self._upgrade: Literal["websocket", "none"] | None = None
        self._before: Any = None  # the cycle before an upgrade
        self._earlier: list[RequestResponseCycle] = []  # unanswered ones that ``cycle`` waits for

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        descriptor = transport.get_extra_info("socket").fileno()
        self._writer = OneWrite(transport, self.loop, self._door)
        self._writer.close_by(self._close)
        super().connection_made(cast("asyncio.Transport", self._writer))
        if self._door.is_full(len(self.connections), descriptor):
            self._turn_away()
        else:
            self._since = self.loop.time()
            self._watch = self.loop.call_later(self._look_after_s, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        for cycle in self._earlier:
            _abandon(cycle)
        super().connection_lost(exc)
        self._writer.lost()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._writer.expect_reading()

    def resume_writing(self) -> None:
        self._writer.all_read()
        super().resume_writing()

    def shutdown(self) -> None:
        if self._phase == "body" and not self.cycle.response_started:
            self._refuse(503, "the server is shutting down")
        else:
            super().shutdown()

    @property
    def running(self) -> RequestResponseCycle | None:
        """The request that is being answered; later ones are queued."""
        cycles = (*self._earlier, self.cycle)
        return next((each for each in cycles if each is not None and not each.response_complete), None)

    def break_off(self, status: int, detail: str) -> None:
        """Close the connection, with this answer unless one has begun; running calls lose this reader."""
        begun = self.running is not None and self.running.response_started
        self._say_last(b"" if begun else refusal(status, detail))

    # input

    def data_received(self, data: bytes) -> None:
        self._unparsed += len(data)
        if self._unparsed > _SLICE_BYTES:
            self._feed_in_slices(data)
        else:
            try:
                self.parser.feed_data(data)
            except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
                self._interrupted(exc, data)
        unstarted = self._unstarted
        if unstarted is not None:
            self._unstarted = None
            if unstarted.more_body or not self._at_once(unstarted):
                unstarted.start(self.app)
        cycle = self.cycle
        if cycle is None or cycle.more_body or cycle.response_complete or cycle.scope is not self.scope:
            self._watch_on(len(data))
        else:
            self._unparsed = 0
            self._since = None

    def _feed(self, data: bytes | memoryview) -> None:
        try:
            self.parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            self._interrupted(exc, data)

    def _interrupted(self, exc: Exception, data: bytes | memoryview) -> None:
        cause = exc.__context__
        if isinstance(exc, httptools.HttpParserUpgrade):
            self._end_upgrade(data[exc.args[0] :])
        elif isinstance(cause, _Refusal):
            self._refuse(cause.status, cause.detail)
        else:
            self._refuse(400, _INVALID)

    def _feed_in_slices(self, data: bytes) -> None:
        self._unparsed -= len(data)
        rest = memoryview(data)
        while rest and not self._deaf:
            part, rest = rest[:_SLICE_BYTES], rest[_SLICE_BYTES:]
            self._unparsed += len(part)
            self._feed(part)
            self._check_bounds()

    def _check_bounds(self) -> None:
        if self._unparsed > HEAD_BYTES:
            if self._phase == "body":
                self._refuse(400, f"more than {HEAD_BYTES} bytes without a byte of the request's body")
            elif self._phase == "head" and len(self.url) > HEAD_BYTES // 2:
                self._refuse(414, f"the URL is longer than this server takes, {HEAD_BYTES // 2} bytes")
            else:
                self._refuse(431, f"the head of the request has more than {HEAD_BYTES} bytes")
        elif len(self.headers) > HEADERS:
            self._refuse(431, _too_many())

    def on_message_begin(self) -> None:
        """As uvicorn's, for a third of the time: the copied scope has room for all of its keys."""
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        scope: Any = _SCOPE.copy()
        scope["server"], scope["client"], scope["scheme"] = self.server, self.client, self.scheme
        scope["root_path"] = self.root_path
        scope["headers"] = self.headers
        scope["state"] = self.app_state.copy()
        self.scope = scope

    def on_headers_complete(self) -> None:
        """As uvicorn's, with bounds and a cycle of ours."""
        self._unparsed = self._moved = 0
        self._since = None
        if len(self.headers) > HEADERS:
            raise _Refusal(431, _too_many())
        parser, scope, earlier = self.parser, self.scope, self.cycle
        version = parser.get_http_version()
        if version not in _VERSIONS:
            raise _Refusal(505, "this server speaks HTTP/1.1 and HTTP/1.0")
        if parser.should_upgrade():
            self._begin_upgrade()
            return
        scope["method"] = parser.get_method().decode("ascii")
        scope["http_version"] = version
        url = self.url
        parse = _cached_target if len(url) <= _CACHED_BYTES and b"?" not in url else _target
        path, scope["raw_path"], scope["query_string"] = parse(url)
        scope["path"] = self.root_path + path
        keep_alive = version != "1.0" and parser.should_keep_alive()
        self.cycle = cycle = Cycle(scope, self, expects_100=self.expect_100_continue, keep_alive=keep_alive)
        self.headers = []  # for trailers, which are dropped: they must not act as headers
        if earlier is None or earlier.response_complete:
            self._unstarted = cycle
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))
            self._wait_behind(earlier)

    def _begin(self, cycle: Any, app: Any) -> None:
        if cycle.more_body or not self._at_once(cycle):
            cycle.start(app)

    def on_chunk_header(self) -> None:
        if self._moved == 0:
            named = [value for name, value in self.scope["headers"] if name == b"transfer-encoding"]
            if len(named) != 1 or named[0].lower() != _CHUNKED:
                raise _Refusal(501, "the only transfer coding that this server knows is chunked")

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        self._moved += len(body)
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.body += body
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            cycle.message_event.set()

    def on_message_complete(self) -> None:
        cycle = self.cycle
        if self._upgrade is None and not cycle.response_complete:
            cycle.more_body = False
            cycle.message_event.set()

    @property
    def _phase(self) -> Literal["head", "body", "between"]:
        """The part of a request that is expected next.

        uvicorn makes a scope at the beginning of a request, and a cycle after its head. The end of a body
        that was answered early is not visible: uvicorn does not report it.
        """
        if self.cycle is None or self.cycle.scope is not self.scope:
            return "head"
        return "body" if self.cycle.more_body else "between"

    # upgrades: httptools reads no body after one, so that its bytes could be taken for a request

    def _begin_upgrade(self) -> None:
        if self.parser.get_method() == b"CONNECT":
            raise _Refusal(501, "this server makes no tunnels")
        if not self._should_upgrade():
            self._upgrade = "none"
            self._before, self.cycle = self.cycle, self.cycle or cast("RequestResponseCycle", _ANSWERED)
            return
        if self.cycle is not None and not self.cycle.response_complete:
            raise _Refusal(400, "the handshake of a WebSocket waits for the answer to the request before")
        if any(name in _FRAMING for name, _ in self.headers):
            raise _Refusal(400, "the handshake of a WebSocket has no body")
        self._upgrade = "websocket"
        super().on_headers_complete()

    def _end_upgrade(self, rest: bytes | memoryview) -> None:
        if self._upgrade == "websocket":
            self._hear_no_more()
            self._writer.close_by(None)
            self.handle_websocket_upgrade()
        else:
            self._upgrade, self.cycle = None, self._before
            head = self._head_without_upgrade()
            self.parser = _parser(self)  # the other one has stopped at the upgrade
            self._feed(head)
            self._feed(rest)

    def _head_without_upgrade(self) -> bytes:
        """The head without its Upgrade header, which a server that cannot upgrade ignores (RFC 9110, 7.8)."""
        version = self.parser.get_http_version().encode()
        lines = [self.parser.get_method() + b" " + self.url + b" HTTP/" + version]
        lines += [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def _wait_behind(self, earlier: RequestResponseCycle) -> None:
        self._earlier = [each for each in self._earlier if not each.response_complete]
        self._earlier.append(earlier)
        if len(self._earlier) > PIPELINED:
            self._door.note("too_many_pipelined_requests", client=self._client)
            self.pipeline.popleft()
            self._end_with(earlier)
            raise _Refusal(400, "too many requests in advance")  # stops the parser

    # timeouts

    def on_response_complete(self) -> None:
        """As uvicorn's, with the periodic check in place of a timer for each request.

        A pipelined request begins a turn later, in a context of its own: this method may run inside the
        publication of a call, in the context of that call.
        """
        self.server_state.total_requests += 1
        if self.flow.read_paused and not self.transport.is_closing():
            self.flow.resume_reading()
        if self.pipeline:
            if not self.transport.is_closing():
                self.loop.call_soon(self._begin, *self.pipeline.pop(), context=Context())
            return
        self._since = self.loop.time()
        if self._watch is None:
            self._watch = self.loop.call_later(self._look_after_s, self._look)

    def _watch_on(self, size: int) -> None:
        if self._deaf:
            return
        first = self._unparsed == size and self._phase != "body"  # of a head
        if self._since is None or (first and self.url):
            self._since = self.loop.time()
        if self._watch is None:
            self._watch = self.loop.call_later(self._look_after_s, self._look)

    def _look(self) -> None:
        self._watch = None
        if self._since is None or self._deaf:
            return
        now = self.loop.time()
        phase = self._phase
        if phase == "body" and not self.cycle.response_complete:
            limit_s = self._door.transfer_time_s
            if self._moved >= MOVED_BYTES or self._is_waited_for_in_vain():
                self._since = now
                self._moved = 1  # not 0, which means the first piece
        elif phase == "body":
            limit_s = max(self._door.transfer_time_s, self.timeout_keep_alive)
        elif phase == "between" and not self._unparsed:
            limit_s = self.timeout_keep_alive if self.cycle.response_complete else math.inf
        else:
            limit_s = self._door.head_time_s
        wait_s = self._since + limit_s - now
        if wait_s <= 0 and self._late != self._since:
            self._late = self._since  # the loop may be late: read first what has arrived
            wait_s = _SECOND_LOOK_S
        if wait_s > 0:
            self._watch = self.loop.call_later(min(wait_s, self._look_after_s), self._look)
            return
        self._time_out()

    def _is_waited_for_in_vain(self) -> bool:
        """True if the client is not to blame: the server does not read, or owes it ``100 Continue``."""
        return self.flow.read_paused or self.cycle.waiting_for_100_continue

    def _time_out(self) -> None:
        if not self._unparsed and self._phase != "body":  # idle; or opened in advance and never used
            self._stop_watching()
            self.transport.close()
            return
        self._door.note("request_timeout", client=self._client)
        part = "body" if self._phase == "body" else "head"
        self._refuse(408, f"the {part} of the request did not arrive in time")

    def _stop_watching(self) -> None:
        self._since = None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    # closing

    def _hear_no_more(self) -> None:
        self._deaf = True
        self._unparsed = _NOTHING_MORE
        self._stop_watching()

    @property
    def _client(self) -> str:
        return self.client[0] if self.client else ""

    def _refuse(self, status: int, detail: str) -> None:
        """Stop reading from this client; write pending answers, then this one, and close."""
        if self._deaf:
            return
        if status != 503:
            self._door.note("request_refused", status=status, detail=detail, client=self._client)
        self._hear_no_more()
        broken = self.cycle if self._phase == "body" else None
        if broken is not None and self.pipeline:
            self.pipeline.popleft()
            _abandon(broken)
            self._end_with(self._earlier[-1])
        elif broken is None and self.cycle is not None and not self.cycle.response_complete:
            self._end_with(self.cycle)
        else:
            begun = broken is not None and broken.response_started
            self._say_last(b"" if begun else refusal(status, detail))

    def _end_with(self, cycle: RequestResponseCycle) -> None:
        """Close after the answer to this completely received request."""
        self._hear_no_more()
        cycle.keep_alive = False
        self.cycle = cycle

    def _close(self) -> None:
        """Close after the last answer; with a lingering close if the client may still be sending."""
        if self._phase == "body" or self._deaf:
            self._say_last(b"")
        else:
            self._writer.close_now()

    def _turn_away(self) -> None:
        self._door.note(
            "connections_full",
            serious=True,
            connections=len(self.connections),
            hint="raise the limit of open files (ulimit -n), or ORSAY_MAX_CONNECTIONS where that is set",
        )
        text = "the server has as many connections as it can hold; try again later"
        self._say_last(refusal(503, text, "x-orsay-code: overloaded", "retry-after: 2"), waits=True)

    def _say_last(self, answer: bytes, *, waits: bool = False) -> None:
        self._hear_no_more()
        self.connections.discard(self)
        self.flow.resume_writing()
        self._writer.close_by(None)
        for cycle in (*self._earlier, self.cycle):
            if cycle is not None:
                cycle.on_response = _nothing  # no next request, and no timer
                _abandon(cycle)
        LastAnswer(self._writer, self._door, answer, self.connections).begin(self.loop, waits=waits)


def _target(url: bytes) -> tuple[str, bytes, bytes]:
    """The path of a URL as text, its path and its query."""
    if _PLAIN(url):
        return url.decode("ascii"), url, b""
    parsed = httptools.parse_url(url)
    path: bytes = parsed.path
    text = path.decode("ascii")
    return unquote(text) if "%" in text else text, path, parsed.query or b""


_cached_target = lru_cache(256)(_target)


def _parser(protocol: Connection) -> httptools.HttpRequestParser:
    """Parser as uvicorn makes it: data after a last request is no error, so that this one is answered."""
    parser = httptools.HttpRequestParser(protocol)
    if hasattr(parser, "set_dangerous_leniencies"):  # not before 0.6.3
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def _abandon(cycle: RequestResponseCycle) -> None:
    """Mark a broken request as disconnected: its answer is dropped, and a reader of its body is woken."""
    if not cycle.response_complete:
        cycle.disconnected = True
        cycle.waiting_for_100_continue = False
        cycle.message_event.set()


def _nothing() -> None:
    pass


def _too_many() -> str:
    return f"the request has more than {HEADERS} headers"
