"""The compose files, read and run by Compose 2 as by 1.29."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import docker
import httpx
import pytest
import yaml  # type: ignore[import-untyped]  # has no stubs

from tests.support.engine import ROOT, image, needs_engine

from ..support.containers import BUNDLED, COMPOSE, Compose, compose, ready, win
from ..support.waiting import until_true
from .compose2 import compose_2

pytestmark = [needs_engine, pytest.mark.timeout(600)]

FILES = (
    "compose.yaml",
    *(f"docker/{path.name}" for path in sorted((ROOT / "docker").glob("compose.*.yaml"))),
)


@pytest.fixture(scope="module")
def program() -> list[str]:
    found = compose_2()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    client = docker.from_env(timeout=120)
    yield client
    client.close()


@pytest.mark.skipif(COMPOSE is None, reason="docker-compose is not here")
@pytest.mark.parametrize("file", FILES)
def test_both_read_the_same_services(program: list[str], file: str) -> None:
    one = yaml.safe_load(Compose(ROOT / file, {})("config"))
    two = json.loads(Compose(ROOT / file, {}, program=program)("config", "--format", "json"))
    assert list(one["services"]) == sorted(two["services"])
    for name, service in one["services"].items():
        other = two["services"][name]
        for key in ("image", "command", "init", "read_only", "cap_drop", "security_opt", "restart", "tmpfs"):
            assert service.get(key) == other.get(key), (name, key)
        assert set(service.get("networks") or {"default"}) == set(other["networks"])
        assert len(service.get("ports", ())) == len(other.get("ports", ()))


def test_one_server_comes_up_and_goes(program: list[str], engine: Any) -> None:
    with compose("compose.yaml", program=program, ORSAY_IMAGE=image("server")) as project:
        url = project.url("server")
        until_true(lambda: ready(url), what="the server is not ready")
        asyncio.run(win(url, "echoenvironment", BUNDLED["echoenvironment"]))
    assert project.left(engine) == []


def test_the_gateway_comes_up_and_goes(program: list[str], engine: Any) -> None:
    with compose("docker/compose.gateway.yaml", program=program, ORSAY_IMAGE=image("server")) as project:
        url = project.url("gateway")
        hosted = ("echoenvironment", "guessenvironment", "arithmeticenvironment")
        until_true(
            lambda: ready(url) and len(httpx.get(f"{url}/list_environments").json()) == len(hosted),
            what="the gateway does not know its environments",
        )
        for environment in hosted:
            asyncio.run(win(url, environment, BUNDLED[environment]))
    assert project.left(engine) == []


def test_replicas_behind_haproxy_come_up_and_go(program: list[str], engine: Any) -> None:
    variables = {"ORSAY_IMAGE": image("server"), "HAPROXY_IMAGE": image("haproxy")}
    with compose("docker/compose.replicas.yaml", program=program, **variables) as project:
        url = project.url("haproxy")
        until_true(lambda: ready(url), what="HAProxy knows no replica")
        asyncio.run(win(url, "echoenvironment", BUNDLED["echoenvironment"]))
    assert project.left(engine) == []
