"""Gateways for tests: our server in front of another one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

import pytest
from orsay.runtimes.base import Runtime
from orsay.runtimes.remote.options import RemoteOptions
from orsay.runtimes.remote.runtime import RemoteRuntime
from orsay.serving.assembly import Running
from orsay.settings import Settings

from ..interop.servers import KIT, released, serve
from ..interop.venvs import python_for
from .scripted_server import Handler, Reply, Request, ors
from .session_api import Api, api_for

__all__ = ["QUICK", "RELEASED", "UPSTREAMS", "gateway", "gateway_of", "reached", "under", "upstream", "wild"]

RELEASED = tuple(pytest.param(name, marks=pytest.mark.venv) for name in ("openreward", "ors-sdk"))
UPSTREAMS = ("orsay", *RELEASED)
QUICK = RemoteOptions(health_s=0.5, start_wait_s=10, connect_timeout_s=5, request_timeout_s=20, silence_s=20)


@contextmanager
def upstream(kind: str) -> Iterator[str]:
    """The URL of a server that hosts the kit: one of ours, or one of a released package."""
    if kind == "orsay":
        with serve(*KIT, runtime="local") as server:
            yield server.url
    else:
        version = {"openreward": "0.1.167", "ors-sdk": "0.1.0"}[kind]
        with released(python_for(kind, version), kind) as server:
            yield server.url


@asynccontextmanager
async def gateway(
    url: str, *, options: RemoteOptions = QUICK, label: str = "", **settings: object
) -> AsyncIterator[Running]:
    """Our server in front of the one at ``url``."""
    async with gateway_of(RemoteRuntime(url, options, label=label), **settings) as running:
        yield running


@asynccontextmanager
async def reached(
    url: str, *, options: RemoteOptions = QUICK, **settings: object
) -> AsyncIterator[tuple[Running, Api]]:
    """A gateway in front of the server at ``url``, and a client of it."""
    runtime = RemoteRuntime(url, options)
    async with gateway_of(runtime, **settings) as running, api_for(running.url) as api:
        yield running, api


@asynccontextmanager
async def gateway_of(runtime: Runtime, **settings: object) -> AsyncIterator[Running]:
    """Our server with that runtime, in this process, on a free port."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.bind(("127.0.0.1", 0))
    given = {"shutdown_grace_s": 0.5, **settings}
    running = Running(Settings.model_validate(given), runtime, sock)
    serving = asyncio.create_task(running.serve())
    try:
        await running.load()
        yield running
    finally:
        await running.shut_down()
        await serving


def under(name: str, handler: Handler) -> Handler:
    """``handler`` as a server of one environment, whose paths all begin with its name."""
    listing: dict[str, object] = {
        "/list_environments": [name],
        f"/{name}/tools": {"tools": [{"name": "act", "description": "", "input_schema": None}]},
        f"/{name}/splits": [{"name": "train", "type": "train"}],
        "/health": {"status": "ok"},
    }

    async def handle(request: Request, reply: Reply) -> None:
        if request.path in listing and request.method == "GET":
            await reply.json(listing[request.path])
        else:
            await handler(replace(request, path=request.path.removeprefix(f"/{name}")), reply)

    return handle


def wild(call: Handler, *, ours: bool = False, **others: Handler) -> Handler:
    """A server of the environment ``wild``; ``call`` answers its calls, ``others`` other paths."""

    async def version(request: Request, reply: Reply) -> None:
        await reply.json({"version": "1", "server": "orsay"} if ours else {"version": "1"})

    async def call_or_attach(request: Request, reply: Reply) -> None:
        if request.json()["name"] == "setup":  # the gateway asks whether setup is over
            await reply.stream()
            await reply.event("error", "unknown task_id")
            await reply.end()
        else:
            await call(request, reply)

    paths = {"/version": version, **{f"/{name}": handler for name, handler in others.items()}}
    return under("wild", ors(call=call_or_attach, orsay=ours, others=paths))
