"""What a server keeps and shows of its sandboxes: rows of the journal, and metrics."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from orsay.journal.write.wal import wait_for_living

from ..observe.scraping import scrape
from ..support.engine import BASE, ROOT, needs_engine
from ..support.sandboxes import comes_true
from ..support.server_process import ServerProcess, server

openreward = pytest.importorskip("openreward", reason="needs the package openreward")

pytestmark = needs_engine

ENVIRONMENTS = str(ROOT / "tests" / "support" / "sandbox_environments.py")
IMAGE = "generalreasoning/python-ds:3.12-tools"
SECRET = "a-value-that-nobody-may-read"


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journal") / "journal.db"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, journal: Path) -> Iterator[ServerProcess]:
    data = tmp_path_factory.mktemp("data")
    (data / "tasks" / "sum").mkdir(parents=True)
    (data / "tasks" / "sum" / "numbers.txt").write_text("20\n22\n")
    settings: dict[str, Any] = {
        "sandboxes_images": {IMAGE: BASE, "no-shell": "no-shell"},
        "sandboxes_data": {"Tests/Workroom": str(data)},
        "journal": str(journal),
    }
    options = ["--sandboxes", "docker"]
    with server(ENVIRONMENTS, options=options, imported=("openreward.toolsets",), **settings) as found:
        yield found


@pytest_asyncio.fixture
async def environment(served: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    monkeypatch.setenv("OPENREWARD_SESSION_URL", served.url)
    monkeypatch.setenv("OPENREWARD_API_URL", served.url)
    monkeypatch.setenv("OPENREWARD_DISABLE_UPDATE_CHECK", "1")
    environments = openreward.AsyncOpenReward(api_key="").environments
    yield environments.get("workroom")
    await environments.aclose()


async def played(environment: Any, *commands: str, **session: Any) -> list[dict[str, Any]]:
    """Commands of one session, by the tool ``look``."""
    (task, _) = await environment.list_tasks("train")
    async with environment.session(task=task, **session) as playing:
        return [
            json.loads((await playing.call_tool("look", {"cmd": each})).blocks[0].text) for each in commands
        ]


async def newest(served: ServerProcess) -> dict[str, Any]:
    """The trajectory of the last session."""
    async with httpx.AsyncClient(base_url=f"{served.url}/console/api/", timeout=60) as http:
        id = (await http.get("trajectories", params={"limit": 1})).json()["items"][0]["id"]
        found: dict[str, Any] = (await http.get(f"trajectories/{id}")).json()
        return found


async def test_the_commands_of_a_call_are_recorded_with_it(environment: Any, served: ServerProcess) -> None:
    (first, *_) = await played(environment, "echo one; exit 3", "head -c 40000 /dev/zero | tr '\\0' x")
    found = await newest(served)
    (small,), (large,) = (step["sandbox"] for step in found["steps"])
    assert small["kind"] == "command" and small["sandbox"] == first["sid"]
    assert (small["what"], small["output"], small["exit_code"]) == ("echo one; exit 3", "one\n", 3)
    assert small["size_bytes"] == 4 and 0 < small["duration_s"] < 60 and not small["timed_out"]
    assert small["call"] == found["steps"][0]["task_id"]
    assert large["size_bytes"] == 40_000 and large["output"] == "x" * 16_384
    made, ended = found["sandbox"]
    assert (made["kind"], made["what"]) == ("made", BASE)
    assert made["detail"]["cpus"] == 0.5 and made["detail"]["memory_bytes"] == 1 << 30
    assert made["detail"]["folders"] == ["/orwd_data"] and made["detail"]["start"] == "cold"
    assert (ended["kind"], ended["reason"]) == ("ended", "deleted")
    assert ended["detail"]["commands"] == 2


async def test_calls_that_wait_for_one_another_have_their_own_commands(
    environment: Any, served: ServerProcess
) -> None:
    (task, _) = await environment.list_tasks("train")
    async with environment.session(task=task) as playing:
        commands = [f"sleep 0.3; echo {number}" for number in range(3)]
        await asyncio.gather(*(playing.call_tool("look", {"cmd": each}) for each in commands))
    steps = (await newest(served))["steps"]
    ran = {step["input"]["cmd"]: [each["what"] for each in step["sandbox"]] for step in steps}
    assert ran == {each: [each] for each in commands}


async def test_files_and_the_sandbox_of_a_grader_are_recorded(
    environment: Any, served: ServerProcess
) -> None:
    (task, _) = await environment.list_tasks("train")
    async with environment.session(task=task) as playing:
        await playing.call_tool("look", {"cmd": "echo 42 > /tmp/answer.txt"})
        await playing.call_tool("submit", {})
    found = await newest(served)
    steps = [(each["kind"], each["what"]) for each in found["steps"][1]["sandbox"]]
    assert ("read", "/tmp/answer.txt") in steps and ("made", BASE) in steps
    assert len({each["sandbox"] for each in found["steps"][1]["sandbox"]}) == 2


async def test_neither_keys_nor_secrets_are_recorded(
    environment: Any, served: ServerProcess, journal: Path
) -> None:
    (told,) = await played(environment, f"echo {SECRET}; echo $KEY", secrets={"word": (SECRET, [])})
    assert told["key"].startswith("orsay-session-")
    (again,) = await played(environment, f"echo {told['key']}")
    assert again["code"] == 0
    found = await newest(served)
    (command,) = found["steps"][0]["sandbox"]
    assert (command["what"], command["output"]) == ("echo [secret]", "[secret]\n")
    wait_for_living(journal)
    with closing(sqlite3.connect(journal)) as connection:
        rows = connection.execute("SELECT what, output FROM sandbox_events").fetchall()
    assert ("echo [secret]; echo $KEY", "[secret]\n\n") in rows
    assert not any(SECRET in str(row) or "orsay-session-" in str(row) for row in rows)
    assert "[secret]" in json.dumps(found["steps"]) and "orsay-session-" not in json.dumps(found)
    assert b"orsay-session-" not in journal.read_bytes()


async def test_a_command_that_its_sandbox_did_not_survive_is_recorded(
    environment: Any, served: ServerProcess
) -> None:
    (task, _) = await environment.list_tasks("train")
    async with environment.session(task=task) as playing:
        told = json.loads((await playing.call_tool("look", {"cmd": "true"})).blocks[0].text)
        async with httpx.AsyncClient(
            base_url=served.url, headers={"X-API-Key": told["key"], "X-Session-ID": told["sid"]}, timeout=60
        ) as http:
            running = http.build_request("POST", "/run", json={"cmd": "echo begun > /tmp/f; sleep 600"})
            answer = await http.send(running, stream=True)

            async def has_begun() -> bool:
                return (await http.post("/stat_file", params={"path": "/tmp/f"})).status_code == 200

            await comes_true(has_begun)
            await http.post("/delete_session")
            await answer.aclose()
    items = (await newest(served))["sandbox"]
    (cut_off,) = [each for each in items if each["kind"] == "command"]
    assert cut_off["exit_code"] is None and cut_off["what"].endswith("sleep 600")


async def test_sandboxes_of_no_session_are_counted_and_not_recorded(
    served: ServerProcess, journal: Path
) -> None:
    before = await scrape(served.url)
    settings = {"environment": "Tests/Workroom", "image": IMAGE, "machine_size": "0.5:1"}
    async with httpx.AsyncClient(base_url=served.url, timeout=60) as http:
        made = (await http.post("/create_sandbox", json=settings)).text
        sid = json.loads(made.rpartition("data: ")[2])["sid"]
        assert (await scrape(served.url)).sum("orsay_sandboxes", state="living") == 1
        for command, limit_s in (
            ("true", 30),
            ("sleep 60", 0.5),
            ("exec python3 -c 'x = bytearray(4 << 30)'", 30),
        ):
            body = {"cmd": command, "timeout_s": limit_s, "max_bytes": 100}
            assert (await http.post("/run", json=body, headers={"X-Session-ID": sid})).status_code == 200
        await http.post("/delete_session", headers={"X-Session-ID": sid})
        failed = await http.post("/create_sandbox", json={**settings, "image": "no-shell"})
        assert "event: error" in failed.text
    after = await scrape(served.url)

    def grown(name: str, **labels: str) -> float:
        return after.sum(name, **labels) - before.sum(name, **labels)

    assert after.sum("orsay_sandboxes", state="living") == 0
    assert grown("orsay_sandboxes_started_total", start="cold") == 1
    assert grown("orsay_sandboxes_started_total", start="warm") == 0
    assert grown("orsay_sandbox_start_seconds_count", start="cold") == 1
    assert grown("orsay_sandboxes_ended_total", reason="deleted") == 1
    assert grown("orsay_sandboxes_ended_total", reason="failed") == 1
    assert grown("orsay_sandbox_command_seconds_count") == 3
    assert grown("orsay_sandbox_kills_total", reason="time") == 1
    assert grown("orsay_sandbox_kills_total", reason="memory") == 1
    wait_for_living(journal)
    with closing(sqlite3.connect(journal)) as connection:
        (count,) = connection.execute(
            "SELECT count(*) FROM sandbox_events WHERE sandbox = ?", [sid]
        ).fetchone()
    assert count == 0
