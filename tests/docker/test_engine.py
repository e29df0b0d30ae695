"""The client of the Docker engine: builds, their output, errors, and what is left to the engine."""

from __future__ import annotations

import asyncio
import gc
import io
import tarfile
import threading
import uuid
from collections.abc import AsyncIterator
from typing import Any

import docker
import pytest
import pytest_asyncio
import structlog
from orsay.errors import EngineError, ImageMissing, NotThere
from orsay.runtimes.docker.engine import Engine
from orsay.runtimes.docker.options import DockerOptions

from ..support.docker_runtime import OwnServer, running
from ..support.engine import BASE, image, needs_engine
from ..support.runtime_session import open_session

pytestmark = needs_engine


def context(dockerfile: str) -> io.BytesIO:
    """A tar of that one file."""
    packed, content = io.BytesIO(), dockerfile.encode()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo("Dockerfile")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    packed.seek(0)
    return packed


@pytest_asyncio.fixture
async def tag(engine: Engine) -> AsyncIterator[str]:
    """A name for an image of the test, which is removed with it."""
    name = f"orsay-test-own:{uuid.uuid4().hex[:12]}"
    yield name
    try:
        await engine.remove_image(name)
    except NotThere:
        return


async def test_a_build_reports_its_lines_and_what_it_made(engine: Engine, tag: str) -> None:
    lines: list[str] = []
    made = await engine.build(
        context(
            'ARG BASE\nFROM ${BASE}\nARG WORD\nEXPOSE 9000 8000\nSTOPSIGNAL SIGINT\nUSER 7\nCMD ["a", "b"]\n'
        ),
        tag=tag,
        buildargs={"BASE": BASE, "WORD": "x"},
        labels={"orsay.test": "1"},
        on_line=lines.append,
    )
    found = await engine.image(tag, pull="never")
    assert found.id == made
    assert (found.ports, found.user, found.stop_signal) == ((8000, 9000), "7", "SIGINT")
    assert found.command == ("a", "b") and found.size_bytes > 1_000_000
    assert lines[0].startswith("Step 1/") and all(line.strip() and "\n" not in line for line in lines)


async def test_a_build_that_fails_says_what_its_last_step_wrote(engine: Engine, tag: str) -> None:
    dockerfile = f"FROM {BASE}\nRUN echo earlier\nRUN echo looking; ls /nowhere\n"
    with pytest.raises(EngineError) as caught:
        await engine.build(context(dockerfile), tag=tag)
    message = str(caught.value)
    assert message.startswith(f"cannot build {tag}: ") and "returned a non-zero code" in message
    assert "\n  looking" in message and "'/nowhere': No such file" in message
    assert "\n  earlier" not in message and "\x1b" not in message
    with pytest.raises(ImageMissing):
        await engine.image(tag, pull="never")


async def test_a_recipe_that_cannot_be_read_is_reported(engine: Engine, tag: str) -> None:
    with pytest.raises(EngineError, match="unknown instruction: FORM"):
        await engine.build(context("FORM scratch\n"), tag=tag)


async def test_a_build_that_is_given_up_leaves_no_connection_open(engine: Engine, tag: str) -> None:
    begun = asyncio.Event()
    dockerfile = f"FROM {BASE}\nRUN echo {tag}; sleep 1\nRUN echo never\n"
    building = asyncio.create_task(
        engine.build(context(dockerfile), tag=tag, on_line=lambda _: begun.set(), no_cache=True)
    )
    await begun.wait()
    [thread] = [thread for thread in threading.enumerate() if thread.name == "orsay-docker-build"]
    building.cancel()
    with pytest.raises(asyncio.CancelledError):
        await building
    await asyncio.to_thread(thread.join)
    gc.collect()  # what was left open warns now, and warnings are errors
    with pytest.raises(ImageMissing):
        await engine.image(tag, pull="never")


async def test_an_image_without_a_shell_is_run_without_a_lease(
    engine: Engine, own: OwnServer, tag: str
) -> None:
    scripted = image("scripted")
    remove = (
        '["python3", "-c", "import os; os.remove(os.path.realpath(\'/bin/sh\')); os.remove(\'/bin/sh\')"]'
    )
    await engine.build(context(f"FROM {scripted}\nUSER 0\nRUN {remove}\n"), tag=tag)
    with structlog.testing.capture_logs() as lines:
        async with running(DockerOptions(image=tag, pull="never"), own) as runtime:
            player = await open_session(runtime)
            assert await player.call("say", text="no shell").text() == "no shell"
            await player.close()
            assert len(await own.containers()) == 1
    assert [line["log_level"] for line in lines if line["event"] == "container_unwatched"] == ["warning"]


async def test_who_is_cancelled_while_attaching_leaves_no_connection_open(engine: Engine) -> None:
    client: Any = docker.from_env(timeout=60)
    container = client.containers.create(BASE, ["true"], stdin_open=True)
    try:
        for _ in range(3):
            silent = lambda *_: None  # noqa: E731  # no output, and nobody listens
            attaching = asyncio.create_task(engine.attach(container.id, on_data=silent, on_end=silent))
            await asyncio.sleep(0)
            attaching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await attaching
        del attaching
        gc.collect()  # what was left open warns now, and warnings are errors
    finally:
        container.remove(force=True)
        client.close()
