"""A file that changes under a running server, and SIGHUP."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.author_log import Log
from tests.support.server_process import ENVIRONMENTS, children, server
from tests.support.session_api import Api, api_for
from tests.support.waiting import until

from ..support.config_server import SCRIPTED, FileServer, configured, written

pytestmark = pytest.mark.process

PLAIN = f'class = "{ENVIRONMENTS}:Plain"'
ASYNC = f'class = "{ENVIRONMENTS}:AsyncScripted"'
FIRST = f"[environments.one]\n{SCRIPTED}\n[environments.two]\n{PLAIN}\nworkers = 1\n"


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[FileServer]:
    with configured(tmp_path, FIRST) as found:
        yield found


@pytest_asyncio.fixture
async def api(running: FileServer) -> AsyncIterator[Api]:
    async with api_for(running.url) as found:
        yield found


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FileServer]:
    """A server that no test of it changes."""
    with configured(tmp_path_factory.mktemp("steady"), FIRST) as found:
        yield found


async def reread(running: FileServer, text: str, event: str = "config_applied") -> dict[str, Any]:
    """Change the file, say so, and wait until the log reports what came of it."""
    before = len(running.events(event))
    running.path.write_text(text)
    running.signal(signal.SIGHUP)
    await until(lambda: len(running.events(event)) > before)
    return running.events(event)[-1]


async def hosted(api: Api) -> list[str]:
    names: list[str] = (await api.get("/list_environments")).raise_for_status().json()
    return names


async def status_of_create(api: Api, name: str) -> int:
    other = api.other()
    status = (await other.post("/create", {"env_name": name, "task_spec": {}})).status_code
    await other.post("/delete")
    return status


async def test_an_environment_is_added_and_played_at_its_own_path(running: FileServer, api: Api) -> None:
    report = await reread(running, f"{FIRST}\n[environments.three]\n{ASYNC}\n")
    assert (report["added"], report["removed"], report["changed"]) == (["three"], [], [])
    assert await hosted(api) == ["scripted", "asyncscripted", "plain"]
    await api.create("asyncscripted")
    body = {"name": "say", "input": {"text": "hello"}}
    assert "hello" in (await api.post("/asyncscripted/call", body)).raise_for_status().text
    assert (await api.get("/asyncscripted/tools")).status_code == 200


async def test_a_removed_environment_plays_its_sessions_to_their_end_and_then_stops(
    running: FileServer, api: Api, log: Log
) -> None:
    await api.create("scripted", log=str(log.path))
    place = int((await api.call("where")).text)
    call = asyncio.create_task(api.call("add_later", gate=log.gate("a")))
    await log.has("add")

    report = await reread(running, f"[environments.two]\n{PLAIN}\nworkers = 1\n")
    assert report["removed"] == ["one"]
    assert await hosted(api) == ["plain"]
    assert await status_of_create(api, "scripted") == 404
    assert await status_of_create(api, "plain") == 200

    log.open("a")
    assert (await call).text == "1", "the call that ran meanwhile is answered"
    assert (await api.call("add")).text == "2", "the session is the same, and goes on"
    assert place in children(running.pid)
    await api.delete()
    assert log.count("gone") == 1
    await until(lambda: place not in children(running.pid))
    await until(lambda: running.events("environments_removed"))
    assert "'one'" in running.events("environments_removed")[0]["runtime"]


async def test_sessions_of_what_stays_are_not_touched(running: FileServer, api: Api) -> None:
    plain = await api.other().create("plain", target="hello")
    places = sorted(children(running.pid))
    await reread(running, f"# a comment moves the lines\n\n{FIRST}")
    assert sorted(children(running.pid)) == places, "what is the same goes on as it is"
    assert (await plain.call("echo", text="still here")).text == "still here"


async def test_a_changed_entry_is_replaced_and_its_sessions_end_where_they_began(
    running: FileServer, api: Api
) -> None:
    await api.create("scripted")
    before = (await api.call("where")).text
    changed = FIRST.replace("[environments.two]", "workers = 2\ncall_time_limit_s = 0.3\n[environments.two]")
    report = await reread(running, changed)
    assert report["changed"] == ["one"]
    fresh = await api.other().create("scripted")
    assert (await fresh.call("where")).text != before
    assert (await fresh.call("do_async", how="sleep:20")).fault == "time_limit"
    assert (await api.call("where")).text == before
    assert (await api.call("do_async", how="sleep:0.5")).text == "done", "under the limits it began with"


async def test_a_renamed_environment_answers_to_its_new_name_only(running: FileServer, api: Api) -> None:
    await api.create("scripted")
    await reread(
        running, FIRST.replace("[environments.two]", 'serve = { scripted = "Earth" }\n[environments.two]')
    )
    assert await hosted(api) == ["earth", "plain"]
    assert await status_of_create(api, "scripted") == 404
    assert await status_of_create(api, "earth") == 200
    assert (await api.call("say", text="old")).text == "old"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[environments.one\n", ":1: this is no TOML"),
        (
            f"{FIRST}\n[environments.three]\nimgae = 1\n",
            ":8: unknown key 'imgae' in three; did you mean 'image'?",
        ),
        (f'{FIRST}\n[environments.three]\nclass = "{ENVIRONMENTS}:Nobody"\n', "has no class 'Nobody'"),
        (
            f"{FIRST}\n[environments.three]\n{SCRIPTED}\nworkers = 1\n",
            "two environments are called 'scripted'",
        ),
        ("log_level = 3\n", ":1: log_level = 3"),
        ("", "has no environments"),
    ],
)
async def test_a_file_that_is_wrong_changes_nothing(steady: FileServer, text: str, message: str) -> None:
    async with api_for(steady.url) as api:
        await api.create("scripted")
        places = sorted(children(steady.pid))
        report = await reread(steady, text, "config_refused")
        assert message in report["error"] and report["hint"] == "nothing has changed"
        assert await hosted(api) == ["scripted", "plain"]
        assert (await api.call("say", text="on")).text == "on"
        await until(lambda: sorted(children(steady.pid)) == places)
        assert (await reread(steady, FIRST))["added"] == []
        await api.delete()


async def test_keys_and_the_level_of_the_log_change_and_an_address_is_reported_to_wait(
    running: FileServer, api: Api
) -> None:
    await api.create("scripted")
    text = (
        f'api_keys = ["a-new-key"]\nlog_level = "debug"\nhost = "127.0.0.2"\nmax_body_bytes = 2048\n{FIRST}'
    )
    report = await reread(running, text)
    assert report["settings"] == ["api_keys", "log_level"]
    assert running.events("settings_need_a_restart")[0]["settings"] == ["host", "max_body_bytes"]
    assert (await api.get("/list_environments")).status_code == 401
    async with api_for(running.url, **{"X-API-Key": "a-new-key"}) as keyed:
        assert await hosted(keyed) == ["scripted", "plain"]
        await keyed.create("scripted")
        await keyed.call("say", text="hello")
        await until(lambda: [e for e in running.events("call") if e["level"] == "debug"])
    assert "a-new-key" not in running.everything


async def test_keys_of_a_file_are_read_again(tmp_path: Path) -> None:
    keys = written(tmp_path, "old-key\n", "keys")
    text = f'api_keys_file = "keys"\n{FIRST}'
    with configured(tmp_path, text) as running:
        keys.write_text("fresh-key\n")
        assert (await reread(running, text))["settings"] == ["api_keys_file"]
        async with api_for(running.url) as api:
            assert (await api.get("/list_environments", **{"X-API-Key": "old-key"})).status_code == 401
            assert (await api.get("/list_environments", **{"X-API-Key": "fresh-key"})).status_code == 200


async def test_the_last_key_cannot_be_taken_away_from_a_server_that_others_reach(tmp_path: Path) -> None:
    text = f'host = "0.0.0.0"\napi_keys = ["the-key"]\n{FIRST}'
    with configured(tmp_path, text) as running:
        report = await reread(running, FIRST, "config_refused")
        assert "would let anyone in" in report["error"]
        port = running.url.rpartition(":")[2]
        async with api_for(f"http://127.0.0.1:{port}") as api:
            assert (await api.get("/list_environments")).status_code == 401


async def test_limits_on_sessions_change(running: FileServer, api: Api) -> None:
    await api.create("scripted")
    assert (await reread(running, f"max_sessions = 1\n{FIRST}"))["settings"] == ["max_sessions"]
    assert await status_of_create(api, "plain") == 429
    await reread(running, f"max_sessions = 2\n{FIRST}")
    assert await status_of_create(api, "plain") == 200


async def test_another_server_comes_and_goes_while_calls_run(running: FileServer, api: Api, log: Log) -> None:
    with server(f"{ENVIRONMENTS}:Scripted") as upstream:
        far = f'[environments.far]\nurl = "{upstream.url}"\nserve = {{ scripted = "Far" }}\n'
        await reread(running, FIRST + far)
        await api.create("far", log=str(log.path))
        call = asyncio.create_task(api.call("add_later", gate=log.gate("a")))
        await log.has("add")
        await reread(running, FIRST)
        assert await status_of_create(api, "far") == 404
        log.open("a")
        assert (await call).text == "1"
        await api.delete()
        await until(lambda: running.events("environments_removed"))


async def test_signals_while_the_file_is_read_are_all_heeded(running: FileServer, api: Api) -> None:
    for number in range(5):
        running.path.write_text(
            FIRST.replace("[environments.two]", f"max_sessions = {number + 1}\n[environments.two]")
        )
        running.signal(signal.SIGHUP)
        await asyncio.sleep(0.05 * number)
    running.path.write_text(f"{FIRST}[environments.last]\n{ASYNC}\n")
    running.signal(signal.SIGHUP)

    async def is_there() -> bool:
        return "asyncscripted" in await hosted(api)

    async with asyncio.timeout(30):
        while not await is_there():
            await asyncio.sleep(0.05)
    running.signal(signal.SIGTERM)
    assert await asyncio.to_thread(running.wait) == 0


async def test_a_server_that_stops_while_it_reads_the_file_stops_cleanly(running: FileServer) -> None:
    running.path.write_text(f"{FIRST}[environments.last]\n{ASYNC}\nworkers = 3\n")
    running.signal(signal.SIGHUP)
    places = children(running.pid)
    await until(lambda: len(children(running.pid)) > len(places))
    everybody = children(running.pid)
    running.signal(signal.SIGTERM)
    assert await asyncio.to_thread(running.wait) == 0
    assert "Traceback" not in running.everything
    await until(lambda: not [pid for pid in everybody if Path(f"/proc/{pid}").exists()])


def test_without_a_file_a_hang_up_ends_the_server_as_ever(tmp_path: Path) -> None:
    with server(f"{ENVIRONMENTS}:Plain") as plain:
        plain.signal(signal.SIGHUP)
        assert plain.wait() == -signal.SIGHUP


def test_a_server_whose_terminal_goes_away_stops(tmp_path: Path) -> None:
    path = written(tmp_path, f"port = 0\nworkers = 1\n{FIRST}")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "orsay", "serve", "-c", str(path)])
    message = b""
    while b" at http://" not in message or not message.endswith(b"\n"):
        message += os.read(terminal, 4096)
    os.close(terminal)  # the system sends SIGHUP to whoever it was the terminal of
    _, code = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(code) == 0
