"""``orsay sandboxes serve``: sandboxes without environments, for the released ``openreward`` elsewhere."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from orsay.runtimes.docker.engine import Engine

from ..support.engine import BASE, ROOT, needs_engine
from ..support.server_process import ServerProcess, server, variables_of
from ..support.servers import orsay

openreward = pytest.importorskip("openreward", reason="needs the package openreward")

ENVIRONMENTS = str(ROOT / "tests" / "support" / "sandbox_environments.py")
IMAGE = "generalreasoning/python-ds:3.12-tools"
KEY = "key-of-the-machines"
SETTINGS = {"environment": "Tests/Workroom", "image": IMAGE, "machine_size": "0.5:1"}


@contextmanager
def alone(*options: str, **settings: Any) -> Iterator[ServerProcess]:
    process = ServerProcess(
        ["--port", "0", *options], variables_of(settings), verb=("sandboxes", "serve"), imported=("docker",)
    )
    try:
        process.wait_for_url()
        yield process
    finally:
        process.end()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("service")
    (folder / "files" / "tasks" / "sum").mkdir(parents=True)
    (folder / "files" / "tasks" / "sum" / "numbers.txt").write_text("20\n22\n")
    (folder / "orsay.toml").write_text(
        f'[sandboxes.images]\n"{IMAGE}" = "{BASE}"\n[sandboxes.data]\n"Tests/Workroom" = "files"\n'
        '[environments.not-hosted]\nclass = "nothing:Here"\n'
    )
    options = ["--config", str(folder / "orsay.toml"), "--api-key", KEY, "--backend", "docker"]
    with alone(*options, sandboxes_max=2) as found:
        yield found


@needs_engine
async def test_the_released_client_needs_no_environment(service: ServerProcess) -> None:
    client = openreward.api.sandboxes.client.AsyncSandboxesAPI
    bucket = openreward.SandboxBucketConfig(mount_path="/data", only_dir="tasks/sum")
    settings = openreward.SandboxSettings(**SETTINGS, bucket_config=bucket)
    async with client(service.url, KEY, settings) as sandbox:
        assert await sandbox.check_run("cat /data/numbers.txt") == "20\n22"
    assert service.output == [f"Orsay serves sandboxes at {service.url}\n"]


@needs_engine
async def test_environments_of_another_server_use_it(
    service: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENREWARD_DISABLE_UPDATE_CHECK", "1")
    monkeypatch.setenv("OPENREWARD_API_URL", service.url)
    monkeypatch.setenv("OPENREWARD_SESSION_URL", service.url)
    with server(ENVIRONMENTS, imported=("openreward.toolsets",)) as host:
        monkeypatch.setenv("OPENREWARD_API_URL", host.url)
        monkeypatch.setenv("OPENREWARD_SESSION_URL", host.url)
        environments = openreward.AsyncOpenReward(api_key=KEY).environments
        environment = environments.get("workroom")
        (task, _) = await environment.list_tasks("train")
        async with environment.session(task=task) as session:
            await session.call_tool("bash", {"command": "echo 42 > /tmp/answer.txt"})
            assert (await session.call_tool("submit", {})).reward == 1.0
        await environments.aclose()


@needs_engine
async def test_keys_health_and_the_lack_of_environments(service: ServerProcess) -> None:
    async with httpx.AsyncClient(base_url=service.url) as http:
        assert [(await http.get(path)).status_code for path in ("/health", "/ready")] == [200, 200]
        assert (await http.post("/create_sandbox", json=SETTINGS)).status_code == 401
        http.headers["X-API-Key"] = KEY
        assert (await http.get("/list_environments")).json() == []
        assert (await http.get("/environments")).json() == []
        for path in ("/tools", "/workroom/tools"):
            missing = await http.get(path)
            assert missing.status_code == 404 and "hosts none" in missing.json()["detail"]
        made = [await http.post("/create_sandbox", json=SETTINGS) for _ in range(3)]
        assert [each.status_code for each in made] == [200, 200, 503]


@needs_engine
async def test_a_stop_ends_its_sandboxes() -> None:
    with alone(
        *("--backend", "docker"),
        sandboxes_images={IMAGE: BASE},
        sandboxes_warm=0,
        server_name="alone-and-stopped",
    ) as service:
        async with httpx.AsyncClient(base_url=service.url, timeout=60) as http:
            assert "event: end" in (await http.post("/create_sandbox", json=SETTINGS)).text
        async with await Engine.connect() as engine:
            labels = {"orsay.server": "alone-and-stopped"}
            made = [each["Labels"] for each in await engine.containers(labels)]
            assert len([each for each in made if "orsay.sandbox" in each]) == 1
            service.signal(signal.SIGTERM)
            assert service.wait() == 0
            assert await engine.containers(labels) == []


@needs_engine
def test_the_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "orsay.toml"
    file.write_text('api_keys = ["one"]\n')
    with alone("--config", str(file)) as service:

        def status(key: str) -> int:
            return httpx.get(f"{service.url}/list_environments", headers={"X-API-Key": key}).status_code

        assert (status("one"), status("two")) == (200, 401)
        file.write_text('api_keys = ["two"]\n')
        service.signal(signal.SIGHUP)
        while not service.events("config_applied"):
            assert service.code is None
            time.sleep(0.05)
        assert (status("one"), status("two")) == (401, 200)


@pytest.mark.process
def test_a_wrong_setting_is_told() -> None:
    ended = orsay("sandboxes", "serve", "--host", "0.0.0.0")
    assert ended.returncode == 2 and "would let anyone in" in ended.stderr


@pytest.mark.process
def test_a_machine_without_any_back_end_is_told() -> None:
    nothing = {"PATH": "/nonexistent", "DOCKER_HOST": "unix:///nonexistent/docker.sock"}
    ended = orsay("sandboxes", "serve", "--port", "0", env=nothing)
    assert ended.returncode == 2 and "bubblewrap" in ended.stderr, ended.stderr
