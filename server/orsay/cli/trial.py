"""Starts an image once, as the ``docker`` runtime would, and runs the contract suite against it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time

import httpx
from rich.console import Console

from ..errors import EngineError, NotThere
from ..runtimes.docker.engine import Engine
from ..runtimes.docker.output import Output
from ..runtimes.docker.spec import ContainerSpec
from . import check

__all__ = ["try_image"]

_START_LIMIT_S = 120.0
_LABEL = "orsay.trial"
_PORT = 8080


async def try_image(engine: Engine, image: str, console: Console) -> int:
    """Exit status: 0 when no check failed. Raises EngineError, with its last words, if it does not start."""
    config = await engine.image(image, pull="never")
    port = config.ports[0] if config.ports else _PORT
    spec = ContainerSpec(
        image=image, entrypoint=(), command=(), labels={_LABEL: image}, published_port=port, pids=1024
    )
    output = Output(lambda stream, line: None)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    container = await engine.create(spec)
    attached = None
    try:
        attached, _ = await engine.attach(container, on_data=output.feed, on_end=lambda: _set(loop, ended))
        await engine.start(container)
        with console.status("starting it"):
            url = await _reachable(engine, container, port, ended)
        if url is None:
            words = "".join(f"\n  {line}" for line in output.last_lines)
            raise EngineError(f"{image} is built, but does not answer on port {port}; it said:{words}")
        asked = argparse.Namespace(
            url=url, env=None, api_key=None, only=[], strict=False, json=None, junit=None, list=False
        )
        return await asyncio.to_thread(check.run, asked)
    finally:
        if attached is not None:
            attached.close()
        await engine.remove(container)


async def _reachable(engine: Engine, container: str, port: int, ended: asyncio.Event) -> str | None:
    """The URL, once a server answers there; None when the container ended or took too long."""
    end = time.monotonic() + _START_LIMIT_S
    async with httpx.AsyncClient(timeout=5) as http:
        while time.monotonic() < end and not ended.is_set():
            url = await _url(engine, container, port)
            with contextlib.suppress(httpx.HTTPError):  # it does not listen yet
                # 503 while its environments are being loaded; a server that wants a key says so to the checks
                if url and (await http.get(f"{url}/list_environments")).status_code < 500:
                    return url
            await asyncio.sleep(0.1)
    return None


async def _url(engine: Engine, container: str, port: int) -> str | None:
    """Where the container's port is published; None while it is not, or not any more."""
    try:
        ports = (await engine.inspect(container))["NetworkSettings"]["Ports"]
    except NotThere:
        return None
    published = ports.get(f"{port}/tcp")
    return f"http://127.0.0.1:{published[0]['HostPort']}" if published else None


def _set(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
        loop.call_soon_threadsafe(event.set)
