"""What the tests of the console's API share: servers with a journal, and its stream of snapshots."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.client import HTTPConnection
from typing import Any

import httpx
from orsay_protocol.sse import Decoder

__all__ = ["ALICE", "BOB", "KEYS", "LIMIT_S", "Stream", "listening", "raw_get"]

LIMIT_S = 60.0
KEYS = ["key-of-alice", "key-of-bob"]
ALICE, BOB = ({"X-API-Key": key} for key in KEYS)


class Stream:
    """An open stream of snapshots."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._decoder = Decoder()
        self._parts = response.aiter_bytes()
        self._found: list[dict[str, Any]] = []

    async def next(self) -> dict[str, Any] | None:
        """The next snapshot; None at the end of the stream."""
        while not self._found:
            part = await anext(self._parts, None)
            if part is None:
                return None
            for event in self._decoder.feed(part):
                assert event.event == "snapshot"
                self._found.append(json.loads(event.data))
        return self._found.pop(0)

    async def until(self, condition: Any) -> dict[str, Any]:
        """The first snapshot that fulfils the condition."""
        while (found := await self.next()) is not None:
            if condition(found):
                return found
        raise AssertionError("the stream ended")


@asynccontextmanager
async def listening(http: httpx.AsyncClient, **headers: str) -> AsyncIterator[Stream]:
    """An open stream; the answer may be an error."""
    async with http.stream("GET", "/console/api/live", headers=headers, timeout=LIMIT_S) as response:
        yield Stream(response)


def raw_get(url: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """A request whose path arrives exactly as it is written here: status, headers, body."""
    connection = HTTPConnection(url.removeprefix("http://"), timeout=LIMIT_S)
    try:
        connection.putrequest("GET", path, skip_host="Host" in headers, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()
