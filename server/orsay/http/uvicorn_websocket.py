"""uvicorn's WebSocket protocol, with flow control and time slices.

uvicorn handles a read of 256 KiB at once, which may be 40,000 frames, and continues to read from a client
that does not read the answers. Needs ``websockets``, so it is imported only if WebSockets are served.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.frames import Frame
from websockets.http11 import Request

from .limits import Door
from .refusal import refusal
from .writing import OneWrite

__all__ = ["WebSocket"]

_SLICE_BYTES = 4 * 1024
_TURN_S = 0.005


class WebSocket(WebSocketsSansIOProtocol):
    """Protocol for ``uvicorn.Config(ws=...)``, with ``door`` bound; takes over the transport of
    ``Connection``.
    """

    def __init__(self, *args: Any, door: Door, **more: Any) -> None:
        super().__init__(*args, **more)
        self._door = door
        self._rest: bytes | memoryview = b""  # bytes that were read and not handled yet
        self._turn: asyncio.Handle | None = None

    @property
    def _writer(self) -> OneWrite:
        return cast("OneWrite", self.transport)

    def data_received(self, data: bytes) -> None:
        if not self.handshake_initiated:
            super().data_received(data)
            if not self.handshake_initiated:  # the request is complete, and websockets did not parse it
                self._refuse_handshake()
            return
        if self._rest:
            self._rest = bytes(self._rest) + data
        elif len(data) <= _SLICE_BYTES:
            super().data_received(data)
            return
        else:
            self._rest = memoryview(data)
            self._take_turn()
        self._steer()

    async def receive(self) -> Any:
        message = await super().receive()
        if self._rest:
            self._steer()
            self._go_on()
            await asyncio.sleep(0)  # yield to other connections: more messages are ready at once
        return message

    def pause_writing(self) -> None:
        self.writable.clear()
        self._writer.expect_reading()
        self._steer()

    def resume_writing(self) -> None:
        self._writer.all_read()
        self.writable.set()
        self._go_on()
        self._steer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest = b""
        super().connection_lost(exc)
        self._writer.lost()

    def handle_cont(self, event: Frame) -> None:
        """Join the parts of a message as they come, so that many small ones cost only their bytes."""
        parts: list[Any] | None = getattr(self, "frames", None)
        if not parts:
            super().handle_cont(event)
            return
        if not isinstance(parts[0], bytearray):
            parts[:] = [bytearray(parts[0])]
        parts[0] += event.data
        if event.fin:
            parts[0] = bytes(parts[0])
            self.send_receive_event_to_app()

    def send_receive_event_to_app(self) -> None:
        """As uvicorn's, but close with 1007 for invalid UTF-8, for which uvicorn logs a traceback."""
        if self.curr_msg_data_type == "text":
            parts: list[Any] = getattr(self, "frames", None) or [getattr(self, "bytes", b"")]
            try:
                b"".join(parts).decode()
            except UnicodeDecodeError:
                with contextlib.suppress(InvalidState):  # the client has closed with the same bytes
                    self.conn.send_close(1007)
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code != 101:
            self._note_refused(self.response.status_code)

    async def send(self, message: Any) -> None:
        await super().send(message)
        if self.initial_response is not None and self.close_sent and not self.handshake_complete:
            self.handshake_complete = True  # uvicorn logs an error otherwise
            self._note_refused(self.initial_response[0])

    def _refuse_handshake(self) -> None:
        self.handshake_complete = self.close_sent = True
        detail = "the handshake of a WebSocket may have 8,192 bytes a line, and nothing unusual"
        self.transport.write(refusal(431, detail))
        self.transport.close()
        self._note_refused(431)

    def _note_refused(self, status: int) -> None:
        self._door.note("socket_refused", status=status, client=self.client[0] if self.client else "")

    def _take_turn(self) -> None:
        """Handle received bytes until a message or an answer waits to be read, or the time slice is over."""
        self._turn = None
        end = self.loop.time() + _TURN_S
        while self._rest and not self.read_paused and self.writable.is_set():
            if self.transport.is_closing():
                self._rest = b""
                break
            part, self._rest = self._rest[:_SLICE_BYTES], self._rest[_SLICE_BYTES:]
            super().data_received(bytes(part))
            if self.loop.time() > end:
                self._go_on()
                break
        self._steer()

    def _go_on(self) -> None:
        if self._rest and self._turn is None:
            self._turn = self.loop.call_soon(self._take_turn)

    def _steer(self) -> None:
        """Read from the socket only while nothing waits."""
        if self._rest or self.read_paused or not self.writable.is_set():
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()
