"""Starts an image once, as the ``docker`` runtime would, and runs the conformance suite against it."""

from __future__ import annotations

import asyncio
import contextlib

from rich.console import Console

from ..errors import EngineError, NotThere
from ..runtimes.docker.address import url_of, wait_for_answer
from ..runtimes.docker.engine import Engine
from ..runtimes.docker.output import Output
from ..runtimes.docker.spec import ContainerSpec
from . import check

__all__ = ["try_image"]

_START_LIMIT_S = 120.0
_LABEL = "orsay.trial"
_PORT = 8080


async def try_image(engine: Engine, image: str, console: Console) -> int:
    """Exit status: 0 when no check failed. Raises EngineError, with its last output, if it does not start."""
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
            url = await _reachable(engine, container, image, port, ended)
        if url is None:
            words = "".join(f"\n  {line}" for line in output.last_lines)
            raise EngineError(f"{image} is built, but does not answer on port {port}; its output:{words}")
        return await asyncio.to_thread(check.run, check.asked(url))
    finally:
        if attached is not None:
            attached.close()
        await engine.remove(container)


async def _reachable(
    engine: Engine, container: str, image: str, port: int, ended: asyncio.Event
) -> str | None:
    """The URL, once a server answers there; None when the container ended or took too long."""
    try:
        found = await engine.inspect(container)
    except NotThere:
        return None
    if not found["State"].get("Running"):
        return None
    url = url_of(found, port, image=image)
    answers = asyncio.create_task(wait_for_answer(url))
    ends = asyncio.create_task(ended.wait())
    try:
        await asyncio.wait({answers, ends}, timeout=_START_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
        return url if answers.done() else None
    finally:
        answers.cancel()
        ends.cancel()
        await asyncio.gather(answers, ends, return_exceptions=True)


def _set(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the event loop is closed
        loop.call_soon_threadsafe(event.set)
