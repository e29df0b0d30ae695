"""The compose file that keeps the journal: sessions outlive their container."""

from __future__ import annotations

import uuid
from typing import Any

import docker
import httpx
import pytest

from tests.support.engine import image, needs_engine

from ..support.containers import COMPOSE, compose, ready
from ..support.waiting import until_true

pytestmark = [
    needs_engine,
    pytest.mark.skipif(COMPOSE is None, reason="needs docker-compose or docker compose"),
    pytest.mark.timeout(900),
]


def ask(url: str, sid: str, path: str, body: Any = None) -> httpx.Response:
    """A request that waits until the session is there again."""

    def answer() -> httpx.Response | None:
        found = httpx.post(f"{url}{path}", json=body, headers={"X-Session-ID": sid}, timeout=60)
        return None if found.status_code == 503 else found

    found: httpx.Response = until_true(answer, what=f"{path} is refused for ever")
    assert found.status_code == 200, found.text
    return found


def guess(url: str, sid: str, number: int) -> str:
    return ask(url, sid, "/guessenvironment/call", {"name": "guess", "input": {"number": number}}).text


def test_a_session_goes_on_in_the_next_container_and_its_trajectory_is_in_the_console() -> None:
    engine = docker.from_env(timeout=120)
    sid = str(uuid.uuid4())
    try:
        with compose("docker/compose.journal.yaml", ORSAY_IMAGE=image("server")) as project:
            until_true(lambda: ready(project.url("server")), what="the server does not serve")
            url = project.url("server")
            ask(url, sid, "/create", {"env_name": "guessenvironment", "split": "train", "index": 0})
            assert "Guesses left" in guess(url, sid, 1)
            first = project.container(engine, "server")
            first.kill()
            first.remove(force=True)
            project("up", "-d")
            until_true(lambda: ready(project.url("server")), what="the server does not serve again")
            url = project.url("server")
            assert "Guesses left" in guess(url, sid, 2)
            ask(url, sid, "/delete")
            (found,) = httpx.get(f"{url}/console/api/trajectories").json()["items"]
            assert (found["sid"], found["calls"], found["end_reason"]) == (sid, 2, "Session deleted")
        assert project.left(engine) == []
    finally:
        engine.close()
