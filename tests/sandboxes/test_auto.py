"""Sandboxes of a server that was not told about them: for ``orsay.sandbox`` in its sessions alone."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from orsay.authoring.hosted import host
from orsay_client import AsyncClient
from orsay_client.errors import SetupError

from ..support import author_environments
from ..support.engine import ROOT, needs_engine
from ..support.server_process import ServerProcess, server

ENVIRONMENTS = str(ROOT / "tests" / "support" / "author_environments.py")


@pytest.fixture(scope="module")
def served() -> Iterator[ServerProcess]:
    with server(ENVIRONMENTS) as found:
        yield found


@needs_engine
async def test_a_session_has_a_sandbox(served: ServerProcess) -> None:
    async with AsyncClient(served.url) as client:
        environment = client.environment("bench")
        async with environment.session(split="train", index=0) as session:
            told = json.loads(getattr((await session.call("many", {})).blocks[0], "text", ""))
            assert told["stdin"] == "typed"


@pytest.mark.process
async def test_nobody_else_has_one(served: ServerProcess) -> None:
    async with httpx.AsyncClient(base_url=served.url) as http:
        for path in ("/create_sandbox", "/orsay/sandboxes/create", "/run"):
            answer = await http.post(path, json={}, headers={"X-Session-ID": "sb-1", "X-API-Key": "any"})
            assert answer.status_code == 401 and "--sandboxes docker" in answer.json()["detail"], path
        listed = (await http.get("/openapi.json")).json()["paths"]
        assert "/create_session" in listed and not {"/create_sandbox", "/run"} & set(listed)


@pytest.mark.process
@pytest.mark.parametrize("runtime", ["process", "local"])
async def test_without_sandboxes_a_session_makes_none_of_its_own(runtime: str) -> None:
    with server(ENVIRONMENTS, options=["--sandboxes", "off", "--runtime", runtime]) as off:
        async with AsyncClient(off.url) as client:
            environment = client.environment("bench")
            async with environment.session(split="train", index=0) as session:
                with pytest.raises(SetupError, match="this session has no sandboxes"):
                    await session.prompt()


def test_environments_whose_code_names_sandboxes_are_known() -> None:
    for cls in (author_environments.Bench, author_environments.Workshop, author_environments.Foreign):
        assert host(cls).uses_sandboxes
    from echo_env.env import EchoEnvironment  # type: ignore[import-untyped,unused-ignore]

    assert not host(EchoEnvironment).uses_sandboxes
