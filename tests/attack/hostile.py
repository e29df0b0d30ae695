"""Clients that speak HTTP by hand, badly on purpose, and what shows how a server bears them."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx

from ..support.server_process import ServerProcess
from ..support.session_api import api_for
from ..support.sockets import connect

__all__ = ["Talk", "address", "cpu_s", "honest_play", "memory_mib", "slowest_health_s", "talk"]

WAIT_S = 30.0


def address(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return host, int(port)


def memory_mib(pid: int) -> float:
    """What the process holds in memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS")


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


class Talk:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Send all of it, unless the server has closed before."""
        with contextlib.suppress(ConnectionError):
            self.writer.write(data)
            async with asyncio.timeout(WAIT_S):
                await self.writer.drain()

    async def rest(self, timeout_s: float = WAIT_S) -> bytes:
        """All that comes until the server closes the connection."""
        found = b""
        async with asyncio.timeout(timeout_s):
            with contextlib.suppress(ConnectionError):
                while part := await self.reader.read(1 << 16):
                    found += part
        return found

    async def status(self) -> int:
        """Of the next answer; its head is read."""
        async with asyncio.timeout(WAIT_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
        return int(head.split()[1])

    def say_no_more(self) -> None:
        with contextlib.suppress(OSError):  # the server has closed before
            self.writer.write_eof()


@contextlib.asynccontextmanager
async def talk(url: str) -> AsyncIterator[Talk]:
    reader, writer = await connect(url)
    found = Talk(reader, writer)
    try:
        yield found
    finally:
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def statuses(answer: bytes) -> list[int]:
    """Of all answers in a row, by their first lines."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


async def honest_play(url: str) -> None:
    """One session and one call, as any client makes them."""
    async with api_for(url) as api:
        assert (await api.http.get("/health")).json() == {"status": "ok"}
        await api.create()
        assert (await api.call("say", text="undisturbed")).text == "undisturbed"
        await api.delete()


@contextlib.asynccontextmanager
async def slowest_health_s(url: str, slowest: list[float]) -> AsyncIterator[None]:
    """Asks ``/health`` again and again while the block runs, from a connection of its own."""
    over = False

    async def ask() -> None:
        async with httpx.AsyncClient(timeout=WAIT_S) as http:
            while not (over and slowest):
                start = time.perf_counter()
                assert (await http.get(f"{url}/health")).status_code == 200
                slowest.append(time.perf_counter() - start)
                await asyncio.sleep(0.01)

    task = asyncio.create_task(ask())
    try:
        yield
        assert not task.done(), task
    except BaseException:
        task.cancel()
        raise
    finally:
        over = True
        await asyncio.gather(task, return_exceptions=True)  # the last answer counts too
    await task


def open_silently(url: str, count: int) -> list[socket.socket]:
    """Connections on which nothing is sent."""
    found = []
    for _ in range(count):
        each = socket.create_connection(address(url), timeout=WAIT_S)
        found.append(each)
    return found


async def no_descriptors_left(server: ServerProcess, before: int, *, more: int = 0) -> None:
    """Wait until the server has as many descriptors as before."""
    async with asyncio.timeout(WAIT_S):
        while server.descriptors() > before + more:
            await asyncio.sleep(0.05)
