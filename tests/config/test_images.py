"""Entries and targets that are images, on a real engine."""

from __future__ import annotations

import asyncio
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import httpx
import pytest

from tests.support.author_log import Log
from tests.support.engine import image, needs_engine
from tests.support.server_process import ENVIRONMENTS, ServerProcess
from tests.support.session_api import api_for
from tests.support.waiting import until

from ..support.config_server import configured

pytestmark = [needs_engine, pytest.mark.timeout(240)]


def containers(name: str) -> list[Any]:
    with closing(docker.from_env(timeout=60)) as client:
        found: list[Any] = client.api.containers(all=True, filters={"label": f"orsay.server={name}"})
    return found


async def test_an_image_goes_while_its_session_plays_and_comes_again(tmp_path: Path) -> None:
    log = Log(tmp_path)
    tmp_path.chmod(0o777)
    plain = f'server_name = "test-{tmp_path.name}"\n[environments.plain]\nclass = "{ENVIRONMENTS}:Plain"\n'
    games = f"""
[environments.games]
image = "{image("scripted")}"
serve = {{ scripted = "Game" }}
memory = "512m"
volumes = ["{tmp_path}:{tmp_path}"]
variables = {{ ORSAY_WORKERS = 1 }}
"""
    with configured(tmp_path, plain + games) as running:
        name = f"test-{tmp_path.name}"
        async with api_for(running.url) as api:
            assert (await api.get("/list_environments")).json() == ["plain", "game"]
            assert len(containers(name)) == 1
            await api.create("game")
            call = asyncio.create_task(api.call("do_async", how=f"wait:{log.gate('a')}"))
            running.path.write_text(plain)
            running.signal(signal.SIGHUP)
            await until(lambda: running.events("config_applied"))
            assert (await api.get("/list_environments")).json() == ["plain"]
            assert (
                await api.other().post("/create", {"env_name": "game", "task_spec": {}})
            ).status_code == 404
            assert len(containers(name)) == 1, "it stays while somebody plays in it"
            log.open("a")
            assert (await call).text == "done"
            assert (await api.call("say", text="still here")).text == "still here"
            await api.delete()
            await until(lambda: not containers(name), timeout_s=40)

            running.path.write_text(plain + games)
            running.signal(signal.SIGHUP)
            await until(lambda: len(running.events("config_applied")) == 2, timeout_s=60)
            await api.other().create("game")
    assert containers(name) == []


async def test_an_image_that_is_not_there_changes_nothing(tmp_path: Path) -> None:
    plain = f'[environments.plain]\nclass = "{ENVIRONMENTS}:Plain"\n'
    with configured(tmp_path, plain) as running:
        running.path.write_text(
            f'{plain}[environments.games]\nimage = "orsay-test-nothing:1"\npull = "never"\n'
        )
        running.signal(signal.SIGHUP)
        await until(lambda: running.events("config_refused"))
        assert "orsay-test-nothing:1" in running.events("config_refused")[0]["error"]
        async with api_for(running.url) as api:
            assert (await api.get("/list_environments")).json() == ["plain"]


@pytest.mark.parametrize("options", [["--runtime", "docker"], []])
def test_images_are_targets_too(options: list[str], tmp_path: Path) -> None:
    name = f"test-{tmp_path.name}"
    target = image("scripted") if options else f"docker:{image('scripted')}"
    process = ServerProcess([*options, target], {"ORSAY_PORT": "0", "ORSAY_SERVER_NAME": name})
    try:
        process.wait_for_url()
        assert "scripted" in httpx.get(f"{process.url}/list_environments").json()
        assert len(containers(name)) == 1
    finally:
        process.end()
    assert containers(name) == []
