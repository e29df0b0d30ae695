"""Wrapper of a connection's transport that writes once per turn of the event loop.

uvicorn writes head and body of an answer separately, which is two system calls for each small answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from .limits import Door

__all__ = ["MOVED_BYTES", "OneWrite"]

MOVED_BYTES = 256 * 1024
"""Least progress of a body or an answer within ``Door.transfer_time_s``; less counts as a stall."""
_KEPT_BYTES = 64 * 1024


class OneWrite:
    """Transport that buffers data until the end of the turn of the loop.

    A client that does not read its answers is disconnected: the connection is aborted if it is blocked or
    closing, and less than ``MOVED_BYTES`` of the remaining data was sent within ``Door.transfer_time_s``.
    """

    __slots__ = (
        "_door",
        "_ended",
        "_ending",
        "_left",
        "_loop",
        "_parts",
        "_since",
        "_transport",
        "_watch",
        "is_closing",
    )

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, door: Door) -> None:
        self._transport = transport
        self.is_closing = transport.is_closing  # called for each answer: faster than __getattr__
        self._loop = loop
        self._door = door
        self._parts: list[bytes] = []
        self._watch: asyncio.TimerHandle | None = None
        self._since: float | None = None
        self._left = 0
        self._ended = False
        self._ending: Callable[[], None] | None = None

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
            self._parts.append(data)
            return
        self._parts.append(data)
        if len(data) > _KEPT_BYTES:  # the buffer has no limit of its own
            self._flush()

    def write_whole(self, data: bytes) -> None:
        """Write the last data of this turn: at once, unless other data is buffered."""
        if self._parts:
            self.write(data)
        elif not self._ended and not self.is_closing():
            self._transport.write(data)

    def write_eof(self) -> None:
        self._flush()
        self._ended = True
        if not self.is_closing():
            self._transport.write_eof()

    def close_by(self, ending: Callable[[], None] | None) -> None:
        """Have ``close`` call ``ending``, which calls ``close_now`` or hands the transport over."""
        self._ending = ending

    def close(self) -> None:
        if self._ending is not None and not self.is_closing():
            self._ending()
        else:
            self.close_now()

    def close_now(self) -> None:
        self._flush()
        self._transport.close()
        if self._since is None:
            self.expect_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._flush()
        self._transport.set_protocol(protocol)

    def expect_reading(self) -> None:
        """Start the time limit for the client to read the remaining data."""
        self._left = self._transport.get_write_buffer_size()
        if self._left:
            self._since = self._loop.time()
            if self._watch is None:
                self._watch = self._loop.call_later(self._door.transfer_time_s, self._look)

    def all_read(self) -> None:
        """End the time limit: the client has read the remaining data."""
        self._since = None

    def lost(self) -> None:
        """Stop the timer, after the connection is lost."""
        self._since = None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _look(self) -> None:
        self._watch = None
        if self._since is None:
            return
        wait_s = self._since + self._door.transfer_time_s - self._loop.time()
        if wait_s > 0:
            self._watch = self._loop.call_later(wait_s, self._look)
            return
        left = self._transport.get_write_buffer_size()
        if left and left > self._left - MOVED_BYTES:
            self._door.note("client_does_not_read", bytes_left=left)
            self._transport.abort()
        else:
            self._since = None
            self.expect_reading()

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts and not self._ended and not self.is_closing():
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
