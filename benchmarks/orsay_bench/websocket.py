"""Minimal WebSocket client: short text frames, one fixed mask, one request in flight, no compression."""

from __future__ import annotations

import asyncio

from .wire import Channel, Target, ask

MASK = b"\x01\x02\x03\x04"
PING, PONG, CLOSE = 9, 10, 8


def frame(payload: bytes, opcode: int = 1) -> bytes:
    """A client frame; the mask is the same each time so that a request can be built once."""
    size = len(payload)
    if size >= 1 << 16:
        raise ValueError(f"a frame here holds at most 65,535 bytes, not {size}")
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return bytes([0x80 | opcode]) + length + MASK + bytes(b ^ MASK[i & 3] for i, b in enumerate(payload))


def parse_frame(buffer: bytes) -> tuple[int, bytes, bytes] | None:
    """(opcode, payload, rest) of a server's frame, or None while it is incomplete."""
    if len(buffer) < 2:
        return None
    size, start = buffer[1] & 127, 2
    if size >= 126:
        start = 4 if size == 126 else 10
        if len(buffer) < start:
            return None
        size = int.from_bytes(buffer[2:start], "big")
    if len(buffer) < start + size:
        return None
    return buffer[0] & 15, buffer[start : start + size], buffer[start + size :]


class WebSocketChannel(Channel):
    """One WebSocket; the first answer, to the handshake, is checked for the switch of protocols."""

    __slots__ = ("upgraded",)

    def __init__(self) -> None:
        super().__init__()
        self.upgraded = False

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if not self.upgraded:
            if b"\r\n\r\n" not in self.buffer:
                return
            head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
            self.upgraded = head[9:12] == b"101"
            self._answer("" if self.upgraded else head[:60].decode("latin1"), head)
        while (parsed := parse_frame(self.buffer)) is not None:
            opcode, payload, self.buffer = parsed
            if opcode == PING and self.transport is not None:
                self.transport.write(frame(payload, PONG))
            elif opcode == CLOSE:
                self.close()
            elif opcode in (1, 2) and self.sent_at:
                self._answer("" if self.must in payload else "body", payload)

    def goodbye(self) -> None:
        if self.transport is not None and not self.closed:
            self.transport.write(frame(b"\x03\xe8", CLOSE))


async def open_websocket(target: Target, path: str) -> WebSocketChannel:
    loop = asyncio.get_running_loop()
    _, channel = await loop.create_connection(WebSocketChannel, target.host, target.port)
    _, error, _ = await ask(channel, target.upgrade(path))
    if error:
        raise ConnectionError(f"no WebSocket at {path}: {error}")
    return channel
