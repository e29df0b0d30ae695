"""A server on a real socket that follows a test's script exactly, misbehaviour included."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from orsay_protocol.sse import encode_event

from .sockets import SocketServer

__all__ = ["Handler", "Reply", "Request", "ScriptedServer", "ors"]


@dataclass(frozen=True)
class Request:
    """A request as it came; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Reply:
    """The answer to one request, piece by piece."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.streaming = False
        self.gone = False

    async def json(self, body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        await self.raw(
            json.dumps(body).encode(), status, {"Content-Type": "application/json", **(headers or {})}
        )

    async def raw(self, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        head = f"HTTP/1.1 {status} X\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
        await self._write(head.encode() + body)

    async def stream(self) -> None:
        self.streaming = True
        await self._write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )

    async def send(self, data: bytes) -> None:
        await self._write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def event(self, event: str, data: str) -> None:
        await self.send(encode_event(event, data))

    async def result(self, result: Any, task_id: str = "a" * 32) -> None:
        """A whole stream that ends with ``result``."""
        await self.stream()
        await self.event("task_id", task_id)
        await self.event("end", json.dumps(result))
        await self.end()

    async def end(self) -> None:
        self.streaming = False
        await self._write(b"0\r\n\r\n")

    def cut(self) -> None:
        """Break the connection without a word."""
        self.gone = True
        self._writer.transport.abort()

    async def _write(self, data: bytes) -> None:
        with suppress(ConnectionError):
            self._writer.write(data)
            await self._writer.drain()


Handler: TypeAlias = Callable[[Request, Reply], Awaitable[None]]


class ScriptedServer(SocketServer):
    """Runs ``handler`` for each request and remembers all of them."""

    def __init__(self, handler: Handler) -> None:
        super().__init__()
        self._handler = handler
        self.requests: list[Request] = []

    def sent(self, path: str) -> list[Request]:
        """The requests for a path, in order."""
        return [request for request in self.requests if request.path == path]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await _read(reader)
            self.requests.append(request)
            reply = Reply(writer)
            await self._handler(request, reply)
            if reply.gone or reply.streaming:
                return


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    method, path, _ = first.split(" ")
    return Request(method, path, headers, body)


def ors(
    *, call: Handler | None = None, orsay: bool = False, others: Mapping[str, Handler] | None = None
) -> Handler:
    """A well-behaved little ORS server around the handlers that a test is about.

    ``call`` answers /call, ``others`` any other path; ``orsay`` says that idempotency keys are honoured.
    """
    mark = {"X-Orsay": "1"} if orsay else {}

    async def handle(request: Request, reply: Reply) -> None:
        special = dict(others or {})
        if call is not None:
            special["/call"] = call
        if request.path in special:
            await special[request.path](request, reply)
        elif request.path == "/create_session":
            await reply.json({"sid": "the-sid"})
        elif request.path == "/create":
            await reply.json({"sid": request.headers["x-session-id"]}, headers=mark)
        elif request.path in ("/ping", "/delete", "/delete_session"):
            await reply.json({"sid": request.headers["x-session-id"]})
        elif request.path == "/prompt":
            await reply.json([{"text": "go", "detail": None, "type": "text"}])
        elif request.path == "/call":
            await reply.result(good("ok"))
        else:
            await reply.json({"detail": "Not Found"}, 404)

    return handle


def good(text: str, reward: float | None = None, finished: bool = False) -> dict[str, Any]:
    """The result of a call that went well."""
    blocks = [{"text": text, "detail": None, "type": "text"}]
    return {
        "ok": True,
        "output": {"blocks": blocks, "metadata": None, "reward": reward, "finished": finished},
    }
