"""Errors of images and containers that do not work, and of an engine that is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from orsay.errors import ConfigError, LoadError
from orsay.runtimes.docker.options import DockerOptions

from ..support.docker_runtime import OwnServer, running, scripted_options
from ..support.engine import BASE, image, needs_engine
from ..support.runtime_session import open_session

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]


async def problem(own: OwnServer, **options: Any) -> str:
    """The error of containers that do not come up, which are all gone then."""
    with pytest.raises(LoadError) as caught:
        async with running(DockerOptions(**{"pull": "never", **options}), own):
            raise AssertionError("it came up")
    assert await own.containers() == []
    return str(caught.value)


@needs_engine
async def test_an_image_that_is_not_there_is_reported_with_what_to_do(own: OwnServer) -> None:
    error = await problem(own, image="orsay-nowhere:1")
    assert "no image orsay-nowhere:1" in error
    assert "orsay build" in error and "docker pull orsay-nowhere:1" in error


@needs_engine
async def test_a_container_that_ends_at_once_is_reported_with_its_last_words(own: OwnServer) -> None:
    code = "import sys; print('looking for a model'); sys.exit('no such model: huge')"
    error = await problem(own, image=BASE, command=("python3", "-c", code))
    assert f"the container of {BASE} ended with exit code 1 while it started" in error
    assert "\n  no such model: huge" in error and "\n  looking for a model" in error


@needs_engine
async def test_a_command_that_is_not_there_is_reported(own: OwnServer) -> None:
    error = await problem(own, image=BASE, command=("no-such-program",))
    assert "ended with exit code 127" in error and "no-such-program" in error


@needs_engine
async def test_a_container_that_speaks_something_else_is_reported(own: OwnServer) -> None:
    error = await problem(own, image=BASE, command=("python3", "-m", "http.server", "8080"))
    assert "cannot be used" in error and "is no ORS server" in error


@needs_engine
async def test_a_container_that_listens_nowhere_is_reported_with_where_it_was_looked_for(
    own: OwnServer,
) -> None:
    code = "import time; print('busy', flush=True); time.sleep(60)"
    error = await problem(
        own, image=BASE, command=("python3", "-c", code), port=9999, start_limit_s=2, stop_grace_s=0.2
    )
    assert "does not answer on port 9999 after 2 s" in error and "0.0.0.0" in error
    assert error.endswith("its last lines were:\n  busy")


@needs_engine
async def test_a_secret_that_is_not_there_is_reported(own: OwnServer, tmp_path: Path) -> None:
    error = await problem(own, image=BASE, secrets={"token": str(tmp_path / "nowhere")})
    assert str(tmp_path / "nowhere") in error


@needs_engine
async def test_a_network_that_is_not_there_is_reported_with_what_to_do(own: OwnServer) -> None:
    with pytest.raises(ConfigError, match="docker network create nowhere"):
        async with running(DockerOptions(image=BASE, network="nowhere"), own):
            raise AssertionError("it came up")


@needs_engine
async def test_one_replica_that_fails_takes_the_others_down_with_it(own: OwnServer, tmp_path: Path) -> None:
    """The second container to look finds the folder made already."""
    code = f"import os; os.mkdir('{tmp_path}/first'); import orsay.cli; orsay.cli.main()"
    command = (
        "python3",
        "-c",
        code,
        "serve",
        "/app/environments.py:Plain",
        "--allow-anonymous",
        "--workers",
        "1",
    )
    error = await problem(
        own,
        image=image("scripted"),
        replicas=2,
        command=command,
        volumes=(f"{tmp_path}:{tmp_path}",),
        user=f"{os.getuid()}:{os.getgid()}",
    )
    assert "ended with exit code 1" in error and "FileExistsError" in error


@needs_engine
async def test_an_unmodified_server_of_openreward_is_played(own: OwnServer) -> None:
    async with running(DockerOptions(image=image("openreward")), own) as runtime:
        assert next(info.key for info in runtime.environments) == "echo"
        player = await open_session(runtime, "echo", target="stone")
        assert (await player.start("prompt").result())[0]["text"] == "Call echo with: stone"
        assert await player.call("echo", text="wood").text() == "no match"
        outcome = await player.call("echo", text="stone").value()
        assert (outcome.reward, outcome.finished) == (1.0, True)
        await player.close()


@needs_engine
async def test_our_image_works_with_a_root_that_cannot_be_written_to(own: OwnServer) -> None:
    async with running(scripted_options(read_only=True), own) as runtime:
        player = await open_session(runtime)
        fault = await player.call("do", how="say:x").fault()
        assert fault.message == "ValueError: x"
        (container,) = await own.running()
        assert container["HostConfig"]["ReadonlyRootfs"] is True
        await player.close()


# without an engine, without the SDK: in a process of its own, whose environment says so


def connect(*, env: Mapping[str, str], before: str = "") -> str:
    code = f"""
import asyncio, sys
{before}
from orsay.runtimes.docker.engine import Engine
from orsay.errors import ConfigError
try:
    asyncio.run(Engine.connect())
except ConfigError as error:
    print(error)
"""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DOCKER_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**clean, **env},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:1", "unix:///nowhere/docker.sock"])
def test_without_an_engine_the_error_says_what_to_start(url: str) -> None:
    error = connect(env={"DOCKER_HOST": url})
    assert f"no Docker engine answers at {url}: start it, or set DOCKER_HOST" in error
    assert "group docker" in error


def test_a_host_that_is_no_address_is_named() -> None:
    assert "no Docker engine answers at nonsense://x" in connect(env={"DOCKER_HOST": "nonsense://x"})


@pytest.mark.parametrize(
    "before",
    [
        "sys.modules['docker'] = None",
        "import types; found = types.ModuleType('docker'); found.__path__ = ['docker'];"
        "sys.modules['docker'] = found",
    ],
    ids=["not installed", "a folder of that name"],
)
def test_without_the_sdk_the_error_says_what_to_install(before: str) -> None:
    assert connect(env={}, before=before) == ("containers need the Docker SDK: pip install 'orsay[docker]'")
