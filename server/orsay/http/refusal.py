"""The last answer of a connection, whose further requests are not read."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from pydantic_core import to_json

from .limits import Door
from .writing import OneWrite

__all__ = ["LastAnswer", "refusal"]

_LINGER_S = 2.0
_DISCARDED_BYTES = 4 * 1024 * 1024


def refusal(status: int, detail: str, *more: str) -> bytes:
    """Bytes of an answer that depends on no request; ``more`` are additional header lines."""
    body = to_json({"detail": detail})
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        "connection: close",
        *more,
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


class LastAnswer(asyncio.Protocol):
    """Lingering close: writes ``answer``, which may be empty, and drops input until the client closes (2 s).

    Closing a socket with unread input resets the connection, and the client may never see the answer. With
    ``waits``, the answer follows the first data of the client: some clients treat an answer that precedes
    their request as an error.
    """

    def __init__(self, writer: OneWrite, door: Door, answer: bytes, others: set[Any]) -> None:
        self.transport = writer
        self._door = door
        self._answer: bytes | None = answer
        self._others = others
        self._dropped = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, loop: asyncio.AbstractEventLoop, *, waits: bool = False) -> None:
        """Take the connection over."""
        self._others.add(self)
        full = self._door.lingering >= self._door.lingering_limit
        self._door.lingering += 1
        self.transport.set_protocol(self)
        if waits and not full:
            self._timer = loop.call_later(_LINGER_S, self.transport.abort)
            return
        self._write_answer()
        if full:
            self.transport.close()
        else:
            self._timer = loop.call_later(_LINGER_S, self.transport.abort)
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        self._write_answer()
        self._dropped += len(data)
        if self._dropped > _DISCARDED_BYTES:
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.lingering -= 1
        self._others.discard(self)
        self.transport.lost()
        if self._timer is not None:
            self._timer.cancel()

    def shutdown(self) -> None:
        """Close the connection: uvicorn calls this when the server ends."""
        self.transport.close()

    def _write_answer(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            if answer:
                self.transport.write(answer)
            self.transport.write_eof()
