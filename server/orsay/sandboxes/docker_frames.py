"""The stream of an agent, out of what an engine sends of an attached container."""

from __future__ import annotations

import asyncio

from .agent.connection import AgentConnection

__all__ = ["EngineFrames"]


class EngineFrames(asyncio.Protocol):
    """The engine's framing of an attached container without a terminal: stream, three zeroes, length, data.

    Standard output is the agent's stream; its standard error is why it ended.
    """

    def __init__(self, connection: AgentConnection) -> None:
        self._connection = connection
        self._held = bytearray()
        self._errors = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        held = self._held
        held += data
        at = 0
        while len(held) - at >= 8:
            end = at + 8 + int.from_bytes(held[at + 4 : at + 8], "big")
            if len(held) < end:
                break
            content = bytes(held[at + 8 : end])
            if held[at] == 2:
                self._errors += content[: 1000 - len(self._errors)]
            else:
                self._connection.data_received(content)
            at = end
        del held[:at]

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._errors:
            self._connection.lose(self._errors.decode(errors="replace").strip())
        self._connection.connection_lost(exc)
