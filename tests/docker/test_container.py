"""What a container gets, and what it does not: limits, variables, secrets, files, the network."""

from __future__ import annotations

import os
from ast import literal_eval
from contextlib import closing
from pathlib import Path

import docker
import pytest
import structlog
from orsay.errors import LoadError
from orsay.runtimes.docker.engine import Engine
from orsay.runtimes.remote.options import RemoteOptions
from pydantic import SecretStr

from ..support.author_log import Log
from ..support.docker_runtime import SHORT, OwnServer, running, scripted_options, shares_files, where
from ..support.engine import needs_engine
from ..support.runtime_session import RuntimeSession, open_session
from ..support.session_api import api_for

pytestmark = needs_engine


async def said_in(player: RuntimeSession, name: str) -> str:
    """A variable of the process where the session lives; empty when there is none."""
    return str(literal_eval(await player.call("surroundings").text())[1].get(name, ""))


def run_in(container: str, code: str, *, user: str = "") -> str:
    """What Python code prints that runs in a container, beside its server."""
    with closing(docker.from_env()) as client:
        found = client.containers.get(container).exec_run(["python3", "-c", code], user=user)
    return str(found.output.decode().strip())


async def test_limits_are_set_and_nothing_is_kept_that_was_not_asked_for(own: OwnServer) -> None:
    options = scripted_options(cpus=0.5, memory="200m", pids=100, capabilities=("CHOWN",))
    async with running(options, own, label="small"):
        (container,) = await own.running()
        host, config = container["HostConfig"], container["Config"]
        assert host["NanoCpus"] == 500_000_000
        assert host["Memory"] == host["MemorySwap"] == 200 << 20
        assert host["PidsLimit"] == 100
        assert host["CapDrop"] == ["ALL"] and host["CapAdd"] == ["CHOWN"]
        assert host["SecurityOpt"] == ["no-new-privileges"]
        assert host["Privileged"] is False and host["Init"] is True
        assert host["AutoRemove"] is True and host["RestartPolicy"]["Name"] == "no"
        assert [port["HostIp"] for ports in host["PortBindings"].values() for port in ports] == ["127.0.0.1"]
        assert "Health" not in container["State"]
        assert config["Labels"]["orsay.server"] == own.id
        assert config["Labels"]["orsay.label"] == "small"
        assert container["Name"].startswith("/orsay-small-")
        # and they hold
        count = "import os\nfor n in range(200):\n  try: pid = os.fork()\n  except OSError: break\n"
        count += "  if not pid: import time; time.sleep(1); os._exit(0)\nprint(n)\n"
        count += "try:\n  while True: os.wait()\nexcept ChildProcessError: pass"  # the next command needs one
        assert int(run_in(container["Id"], count)) < 100
        assert run_in(container["Id"], "import os; os.chown('/tmp', 0, 0); print('done')", user="0") == "done"
        refused = run_in(container["Id"], "import os; os.setuid(5)", user="0")
        assert "PermissionError" in refused


async def test_a_server_of_ours_in_a_container_lets_nobody_else_play(engine: Engine, own: OwnServer) -> None:
    async with running(scripted_options(), own) as runtime:
        player = await open_session(runtime)
        address = await address_of(engine, await where(player))
        async with api_for(f"http://{address}:8080") as api:
            answer = await api.post("/create", {"env_name": "scripted", "task_spec": {}})
            assert answer.status_code == 401
        await player.close()


async def test_keys_that_the_options_say_are_used(own: OwnServer) -> None:
    variables = {**SHORT, "ORSAY_API_KEYS": '["swordfish-key"]'}
    known = RemoteOptions(api_key=SecretStr("swordfish-key"))
    async with running(scripted_options(variables=variables, remote=known), own) as runtime:
        await (await open_session(runtime)).close()
    with pytest.raises(LoadError, match="refused the API key"):
        async with running(scripted_options(variables=variables), own):
            raise AssertionError("it let us in")


async def test_variables_arrive(own: OwnServer) -> None:
    variables = {**SHORT, "GREETING": "good day, = and 'all'", "EMPTY": ""}
    async with running(scripted_options(variables=variables), own) as runtime:
        player = await open_session(runtime)
        assert await said_in(player, "GREETING") == "good day, = and 'all'"
        assert await said_in(player, "EMPTY") == ""
        await player.close()


async def test_the_hash_seed_of_the_server_is_that_of_its_containers(own: OwnServer) -> None:
    async with running(scripted_options(hash_seed=7), own) as runtime:
        player = await open_session(runtime)
        assert await said_in(player, "PYTHONHASHSEED") == await said_in(player, "ORSAY_HASH_SEED") == "7"
        assert {info.hash_seed for info in runtime.environments} == {7}
        await player.close()


async def test_secrets_arrive_as_files_and_show_nowhere_else(own: OwnServer, tmp_path: Path) -> None:
    word = "swordfish-of-the-test"
    secret = tmp_path / "token"
    secret.write_text(word)
    with structlog.testing.capture_logs() as lines:
        async with running(scripted_options(secrets={"token": str(secret)}), own):
            (container,) = await own.running()
            seen = run_in(container["Id"], "print(open('/run/secrets/token').read())")
            assert seen == word
            refused = run_in(container["Id"], "open('/run/secrets/token', 'w')")
            assert "Read-only file system" in refused or "Permission denied" in refused
            assert word not in str(container)
    assert lines and word not in str(lines)


async def test_secrets_of_a_session_do_not_show_on_the_engine(own: OwnServer) -> None:
    async with running(scripted_options(), own) as runtime:
        player = await open_session(runtime, secrets={"token": "swordfish-of-a-session"})
        assert await player.call("secret", how="return").text() == "swordfish-of-a-session"
        assert "swordfish" not in str(await own.running())
        await player.close()


async def test_what_a_container_writes_is_in_the_log(own: OwnServer) -> None:
    with structlog.testing.capture_logs() as lines:
        async with running(
            scripted_options(variables={**SHORT, "ORSAY_LOG_LEVEL": "info"}), own, label="loud"
        ):
            pass
        logged = [line for line in lines if line["event"] == "container_log"]
    assert {line["label"] for line in logged} == {"loud"}
    assert any(line["stream"] == "stdout" and "Orsay serves Scripted" in line["line"] for line in logged)
    assert any(line["stream"] == "stderr" and "shutting_down" in line["line"] for line in logged)


async def test_an_image_without_the_tools_for_a_lease_runs_without(own: OwnServer) -> None:
    variables = {**SHORT, "PATH": "/nowhere"}
    serve = "PATH=/usr/local/bin:/usr/bin exec orsay serve /app/environments.py:Plain --allow-anonymous"
    command = ("/bin/sh", "-c", serve)
    with structlog.testing.capture_logs() as lines:
        async with running(scripted_options(variables=variables, command=command), own):
            pass
    warnings = [line for line in lines if line["event"] == "container_unwatched"]
    assert len(warnings) == 1 and warnings[0]["log_level"] == "warning"


def reaches(container: str, address: str, port: int) -> bool:
    code = f"import socket; socket.create_connection(({address!r}, {port}), 3); print('reached')"
    return run_in(container, code) == "reached"


async def address_of(engine: Engine, container: str) -> str:
    networks = (await engine.inspect(container))["NetworkSettings"]["Networks"]
    (address,) = [each["IPAddress"] for each in networks.values()]
    return str(address)


async def test_an_isolated_container_plays_and_has_no_way_out(engine: Engine, own: OwnServer) -> None:
    async with (
        running(scripted_options(replicas=2), own, label="open") as usual,
        running(scripted_options(replicas=2, network="isolated"), own, label="shut") as isolated,
    ):
        free, outside = [await where(await open_session(usual)) for _ in range(2)]
        one, two = [await open_session(isolated) for _ in range(2)]
        assert await one.call("say", text="inside").text() == "inside"
        first, second = await where(one), await where(two)
        for container, expected in ((free, True), (first, False)):
            assert reaches(container, await address_of(engine, outside), 8080) is expected
        assert not reaches(first, await address_of(engine, second), 8080)
        await one.close()
        await two.close()


async def test_files_are_shared_as_configured(own: OwnServer, log: Log) -> None:
    async with running(scripted_options(**shares_files()), own) as runtime:
        player = await open_session(runtime, log=str(log.path))
        assert log.count("ready") == 1
        assert log.path.stat().st_uid == os.getuid()
        await player.close()
