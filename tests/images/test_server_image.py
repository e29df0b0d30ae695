"""The images of docker/Dockerfile, on a real engine: what is inside, how they run, and how they end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import docker
import httpx
import pytest

from tests.support.engine import ImageName, image, needs_engine

from ..support.containers import BUNDLED, HARDENED, container, serving, win
from ..support.waiting import until_true

pytestmark = [needs_engine, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    """The server image, as hard to write in as can be, with checks of its health every half second."""
    with container(image("server"), healthcheck={"interval": 500_000_000}, **HARDENED) as found:
        serving(found)
        yield found


LEFTOVERS = " -o ".join(
    [
        *(f"-name '{name}'" for name in ("*.whl", "*.tar.gz", "pyproject.toml", "uv.lock")),
        "-path '*/orsay*/test_*.py'",
        "-path '*_env/tests'",
        "-path '*/.cache/pip'",
    ]
)
"""Expressions of ``find`` for what a build leaves behind."""


def which(found: Any, tool: str) -> bool:
    """Whether a program is there."""
    return bool(found.exec_run(["sh", "-c", f"command -v {tool}"]).exit_code == 0)


def shell(found: Any, command: str) -> str:
    """What a command prints inside a container."""
    code, output = found.exec_run(["sh", "-c", command])
    assert code == 0, output.decode()
    return str(output.decode())


@pytest.mark.parametrize("environment", BUNDLED)
async def test_the_server_plays_every_bundled_environment_without_a_place_to_write(
    server: Any, environment: str
) -> None:
    await win(serving(server), environment, BUNDLED[environment])


def test_every_process_is_of_user_1000(server: Any) -> None:
    processes = server.top(ps_args="-eo pid,uid,args")["Processes"]
    assert {uid for _, uid, _ in processes} == {"1000"}
    assert any("orsay.runtimes.process.worker" in command for _, _, command in processes)


def test_orsay_is_the_first_process_so_signals_reach_it(server: Any) -> None:
    assert b"orsay\0serve" in shell(server, "cat /proc/1/cmdline").encode()


def test_the_engine_finds_it_healthy(server: Any) -> None:
    def health() -> bool:
        server.reload()
        return bool(server.attrs["State"]["Health"]["Status"] == "healthy")

    until_true(health, timeout_s=30, what="the container never was healthy")


def test_the_health_check_fails_where_nothing_listens(server: Any) -> None:
    client = docker.from_env()
    try:
        check = client.images.get(image("server")).attrs["Config"]["Healthcheck"]["Test"]
    finally:
        client.close()
    assert check[0] == "CMD"
    assert server.exec_run(check[1:]).exit_code == 0
    assert server.exec_run(check[1:], environment={"ORSAY_PORT": "9"}).exit_code == 1


@pytest.mark.parametrize("name", ["base", "server"])
def test_nothing_is_inside_but_wheels_and_what_they_need(name: ImageName) -> None:
    with container(image(name), ["sleep", "60"], user="0") as found:
        listed = json.loads(shell(found, "python -m pip list --format json"))
        installed = {each["name"].lower() for each in listed}
        assert "orsay" in installed
        assert not installed & {"hatchling", "pytest", "mypy", "ruff"}
        assert ("echo-env" in installed) == (name == "server")
        assert "Editable" not in shell(found, "python -m pip show orsay")
        assert [tool for tool in ("gcc", "cc", "make", "git") if which(found, tool)] == []
        assert shell(found, f"find / -xdev \\( {LEFTOVERS} \\)").split() == []
        assert shell(found, "ls -A /app /tmp /root/.cache 2> /dev/null || true").split() == ["/app:", "/tmp:"]


def test_everything_it_imports_was_compiled_beforehand() -> None:
    modules = "orsay.serving.server, orsay.cli.serve, orsay.runtimes.process.worker, echo_env.env"
    with container(image("server"), ["sleep", "60"], **HARDENED) as found:
        imported = shell(found, f"python -v -c 'import {modules}' 2>&1")
    sources = [line for line in imported.splitlines() if line.startswith("# code object from ")]
    assert len(sources) > 300
    assert [line for line in sources if not line.rstrip("'").endswith(".pyc")] == []


def test_sigterm_ends_it_in_good_order_with_a_session_open() -> None:
    with container(image("server"), **HARDENED) as found:
        url = serving(found)
        body = {"env_name": "echoenvironment", "split": "train", "index": 0}
        opened = httpx.post(f"{url}/create", headers={"X-Session-ID": "kept-open"}, json=body)
        assert opened.status_code == 200
        found.kill(signal="SIGTERM")
        assert found.wait(timeout=40)["StatusCode"] == 0
        assert b"Traceback" not in found.logs()


def test_keys_come_by_a_variable_and_stay_out_of_the_log() -> None:
    variables = {"ORSAY_API_KEYS": '["sesame"]'}
    with container(image("server"), environment=variables, **HARDENED) as found:
        url = serving(found)
        assert httpx.get(f"{url}/list_environments").status_code == 401
        assert httpx.get(f"{url}/list_environments", headers={"X-API-Key": "sesame"}).status_code == 200
        assert b"sesame" not in found.logs()
