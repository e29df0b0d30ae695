"""A TCP proxy that breaks connections on cue: everything in between a client and a real server."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from .sockets import SocketServer

__all__ = ["CutProxy"]


@dataclass
class _Cue:
    request: bytes
    answer: bytes
    times: int


class CutProxy(SocketServer):
    """Forwards bytes both ways until a cue says to abort the client's connection."""

    def __init__(self, target: str) -> None:
        super().__init__()
        parts = urlsplit(target)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._cues: list[_Cue] = []
        self.cuts = 0

    def cut(self, request: bytes, *, answer: bytes = b"", times: int = 1) -> None:
        """Break connections which sent ``request``, once the event ``answer`` came back whole.

        The answer is held back where none is named; the server has the whole request in any case.
        """
        self._cues.append(_Cue(request, answer, times))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cue: list[_Cue] = []
        up_reader, up_writer = await asyncio.open_connection(self._host, self._port)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._forward_requests(reader, up_writer, cue))
                both.create_task(self._forward_answers(up_reader, writer, cue))
        except* ConnectionError:
            pass
        finally:
            up_writer.close()

    async def _forward_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cue: list[_Cue]
    ) -> None:
        while data := await reader.read(65536):
            for one in self._cues:
                if one.times > 0 and one.request in data:
                    one.times -= 1
                    cue.append(one)
                    break
            writer.write(data)
            await writer.drain()
        raise ConnectionAbortedError("the client is gone")

    async def _forward_answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cue: list[_Cue]
    ) -> None:
        seen = b""
        while data := await reader.read(65536):
            if cue and not cue[0].answer:
                self._abort(writer)
            writer.write(data)
            with suppress(ConnectionError):
                await writer.drain()
            seen = seen + data if cue else b""  # not what the connection carried before
            if cue and b"\r\n\r\n" in seen.partition(cue[0].answer)[2]:
                self._end(writer)
        raise ConnectionAbortedError("the server is gone")

    def _end(self, writer: asyncio.StreamWriter) -> None:
        """Politely: an abort could take away from the client what it has not read yet."""
        self.cuts += 1
        writer.close()
        raise ConnectionAbortedError("cut on cue")

    def _abort(self, writer: asyncio.StreamWriter) -> None:
        self.cuts += 1
        writer.transport.abort()
        raise ConnectionAbortedError("cut on cue")
