"""Requests as plain ASGI: what is known of a client without waiting for it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import MutableMapping
from functools import partial
from typing import Any

from orsay.http import uvicorn_protocol
from orsay.http.asgi import cycle_of, has_gone, has_left
from orsay.http.limits import Door
from orsay.http.uvicorn_protocol import Connection
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState


class UvicornsCycle:
    """A request of an unchanged uvicorn, as far as an application finds it behind ``receive``."""

    def __init__(self) -> None:
        self.disconnected = False
        self.received = 0

    async def receive(self) -> MutableMapping[str, Any]:
        self.received += 1
        return {"type": "http.request"}


def test_below_an_unchanged_uvicorn_a_disconnect_is_found_without_a_read() -> None:
    cycle = UvicornsCycle()
    assert not has_gone(cycle.receive) and not has_left(cycle.receive)
    cycle.disconnected = True
    assert has_gone(cycle.receive) and has_left(cycle.receive)
    assert cycle.received == 0 and cycle_of(cycle.receive) is None


async def test_scopes_are_those_of_uvicorn_whether_their_url_is_cached_or_not() -> None:
    async def echo(scope: Any, receive: Any, send: Any) -> None:
        shown = {name: scope[name] for name in scope if name not in ("client", "server")}
        await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
        await send({"type": "http.response.body", "body": repr(sorted(shown.items())).encode()})

    async def asked(protocol: Any, target: str) -> list[bytes]:
        config = Config(echo, lifespan="off", log_level="error")
        config.load()
        listener = await asyncio.get_running_loop().create_server(
            lambda: protocol(config, ServerState(), {"known": 1}), "127.0.0.1", 0
        )
        async with listener:
            host, port = listener.sockets[0].getsockname()
            found = []
            for _ in range(2):
                reader, writer = await asyncio.open_connection(host, port)
                writer.write(f"PUT {target} HTTP/1.1\r\nHost: here\r\nX-One: 1\r\n\r\n".encode())
                found.append((await reader.read()).partition(b"\r\n\r\n")[2])
                writer.close()
                await writer.wait_closed()
        return found

    cache = uvicorn_protocol._cached_target
    cache.cache_clear()
    door = Door(head_time_s=10, transfer_time_s=10, connections=100, descriptors=1000)
    ours = partial(Connection, door=door, at_once=lambda cycle: False)
    for target in (
        "/",
        "/a/call",
        "/a%20b/%F0%9F%98%80",
        "/a?key=value",
        "/" + "a" * 300,
        "http://there/a",
        "*",
    ):
        first, second = await asked(ours, target)
        assert [first, second] == await asked(HttpToolsProtocol, target)
        assert b"query_string" in first
    assert cache.cache_info().currsize == 5, "neither queries nor long URLs stay in memory"


async def test_below_another_server_a_disconnect_is_found_by_one_step_of_receive() -> None:
    steps = []

    async def wait() -> Any:
        await asyncio.Event().wait()

    def connected() -> Any:
        steps.append(wait())
        return steps[-1]

    async def disconnected() -> Any:
        return {"type": "http.disconnect"}

    assert not has_gone(connected)
    assert [inspect.getcoroutinestate(each) for each in steps] == [inspect.CORO_CLOSED]
    assert has_gone(disconnected)
    assert not has_gone(lambda: asyncio.get_running_loop().create_future())
    assert not has_left(disconnected)  # a step of receive could take a part of the body
