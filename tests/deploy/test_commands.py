"""The steps of docs/deploy.md on one machine, done: from a class on a laptop to a gateway with keys."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import docker
import httpx
import pytest
from orsay_client import Client, Unauthorized

from tests.interop.servers import BUNDLED, serve
from tests.support.containers import Compose, ready
from tests.support.documentation import EXAMPLES
from tests.support.engine import image, needs_engine
from tests.support.nginx import nginx
from tests.support.waiting import until_true

from .commands import Commands
from .gateways import cleared, left_of, named, removed

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]  # the first may build images

REVERSE = str(EXAMPLES / "environments" / "reverse.py:Reverse")
SHOWN_URL = "http://127.0.0.1:8080"


def win(client: Client) -> None:
    """Spell the first word of the environment reverse backwards."""
    with client.environment("reverse").session(split="train", index=0) as session:
        assert session.call("submit", {"text": "enots"}).reward == 1.0


def test_a_laptop_serves_a_class(commands: Commands) -> None:
    with commands.started(ORSAY_WORKERS="1") as server:
        commands.here(SHOWN_URL, server.url)
        assert " 0 failed" in commands.run()
        with Client(server.url) as client:
            win(client)


@needs_engine
def test_one_server_runs_in_a_container_and_wants_its_key(commands: Commands) -> None:
    project = Compose(commands.folder / "compose.yaml", {})
    variables = {
        "COMPOSE_PROJECT_NAME": project.project,
        "ORSAY_IMAGE": image("server"),
        "ORSAY_PORT": "0",
    }
    try:
        commands.run(**variables)
        url = project.url("server")
        until_true(lambda: ready(url), what="the server in the container is not ready")
        assert httpx.get(f"{url}/list_environments").status_code == 401
        key = (commands.folder / ".env").read_text().split('"')[1]
        assert len(key) == 48
        with Client(url, api_key=key) as client:
            assert "echoenvironment" in client.environments()
    finally:
        commands.run(**variables)
    with closing(docker.from_env(timeout=60)) as engine:
        assert project.left(engine) == []


@needs_engine
def test_a_gateway_hosts_what_its_file_says(commands: Commands) -> None:
    tag = f"orsay-test-deploy:{named()}"
    commands.here("guess:1", tag)
    commands.build_on(image("base"))
    with (
        removed(tag),
        cleared(named()) as name,
        serve(BUNDLED[0], options=["--workers", "1"]) as upstream,
    ):
        commands.here("http://10.0.0.7:8080", upstream.url)
        with commands.started(ORSAY_SERVER_NAME=name, ORSAY_WORKERS="1") as server:
            with Client(server.url) as stranger, pytest.raises(Unauthorized):
                stranger.environments()
            key = (commands.folder / "keys").read_text().strip()
            with Client(server.url, api_key=key) as client:
                assert client.environments() == ["reverse", "guessenvironment", "echoenvironment"]
                win(client)
                with client.environment("guessenvironment").session(split="train", index=0) as session:
                    assert session.call("guess", {"number": 50}).blocks
                    change(commands.folder)
                    server.hang_up()
                    until_true(
                        lambda: "colours" in client.environments(), timeout_s=20, what="it is not there"
                    )
                    assert session.call("guess", {"number": 25}).blocks, "it is not disturbed"
            with Client(server.url, api_key="one-more-key") as other:
                win(other)
        with closing(docker.from_env(timeout=60)) as engine:
            assert left_of(engine, name) == []


def change(folder: Path) -> None:
    """One more environment, and one more key."""
    with (folder / "orsay.toml").open("a") as file:
        file.write('\n[environments.more]\nclass = "docs/examples/environments/pictures.py:Colours"\n')
    with (folder / "keys").open("a") as file:
        file.write("one-more-key\n")


def test_the_folder_of_a_space_is_written(commands: Commands) -> None:
    assert "Nothing was sent" in commands.run()
    card = (commands.folder / "space" / "README.md").read_text()
    assert "\nsdk: docker\n" in card and "OpenRewardSpec" in card + "EnvironmentSpec"
    assert (commands.folder / "space" / "Dockerfile").exists()


def test_a_tls_proxy_lets_clients_with_a_key_in(tmp_path: Path) -> None:
    site = (EXAMPLES / "deploy" / "nginx.conf").read_text()
    with (
        serve(REVERSE, options=["--workers", "1"], env={"ORSAY_API_KEYS": '["the-key"]'}) as server,
        nginx(server.url, tmp_path, site=site) as proxy,
    ):
        with Client(proxy.url, verify=proxy.trust(), api_key="the-key") as client:
            win(client)
        with Client(proxy.url, verify=proxy.trust()) as stranger, pytest.raises(Unauthorized):
            stranger.environments()


def test_keys_of_a_file_let_clients_in(commands: Commands) -> None:
    with commands.started(ORSAY_WORKERS="1") as server:
        key = (commands.folder / "keys").read_text().strip()
        with Client(server.url, api_key=key) as client:
            win(client)
        with Client(server.url, api_key=key[:-1]) as stranger, pytest.raises(Unauthorized):
            stranger.environments()
