"""What belongs to one key does not exist for another one, whatever ids their holders choose."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from orsay.auth import Keys, old_name, short_name
from orsay.errors import Starting, Unauthorized
from orsay.journal.database import Store
from orsay.journal.key_names import read_salt
from orsay.journal.write.wal import wait_for_living
from pydantic import SecretStr

from tests.journal.postgres import Postgres, running_postgres
from tests.journal.rows import options
from tests.support.server_process import ServerProcess, server
from tests.support.session_api import Api, api_for
from tests.support.waiting import until

from .test_attack_recovery import ORDERS, WAIT_S, Killed, patiently

pytestmark = pytest.mark.process

KEYS = ("the-key-of-ada", "the-key-of-bob")
SID = "an id of their own"
NOBODYS = "no id of anybody's"
assert len(SID) == len(NOBODYS)


@asynccontextmanager
async def both(url: str, sid: str = SID) -> Any:
    """The same id for each of the keys; no session yet."""
    async with api_for(url) as api:
        yield tuple(Api(api.http, sid, **{"X-API-Key": key}) for key in KEYS)


def create(api: Api, first: int = 1) -> Any:
    return api.post("/create", {"env_name": "", "task_spec": {"first": first}})


@pytest.fixture(scope="module")
def living() -> Iterator[ServerProcess]:
    with server(f"{ORDERS}:Orders", api_keys=KEYS, console="on", also="openenv,mcp") as found:
        yield found


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Killed]:
    more = {"ORSAY_API_KEYS": json.dumps(KEYS), "ORSAY_CONSOLE": "on", "ORSAY_ALSO": "openenv,mcp"}
    found = Killed(tmp_path, f"{ORDERS}:Orders", more=more)
    try:
        yield found
    finally:
        found.process.end()
        print("".join(found.log + found.process.log))  # shown when the test failed


def reported(answer: httpx.Response) -> tuple[int, str, dict[str, str]]:
    """All that an answer says, but for the id that it was asked for."""
    named = {name: value for name, value in answer.headers.items() if name not in ("date", "server")}
    return answer.status_code, answer.text.replace(NOBODYS, SID), named


async def everywhere(api: Api) -> list[httpx.Response]:
    """The answers of every place that takes the id of a session."""
    rpc = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"session_id": api.sid}}
    action = {"action": {"type": "call_tool", "tool_name": "read", "arguments": {}}}
    headers = {"Mcp-Session-Id": api.sid, "Accept": "application/json, text/event-stream"}
    return [
        await api.post("/ping"),
        await api.get("/prompt"),
        await api.get("/messages"),
        await api.get("/task_tools"),
        (await api.call("read")).response,
        await api.post("/call", {"name": "read", "input": {}, "task_id": "0" * 32}),
        await api.post("/score_group", {"candidates": []}),
        await api.post("/cancel", {"task_id": "0" * 32}),
        await api.post(f"/console/api/sessions/{api.sid}/end"),
        await api.post("/step", action),
        await api.get("/state"),
        await api.post("/mcp", rpc),
        await api.post("/mcp", rpc, **headers),
        await api.post("/delete"),
    ]


@pytest.mark.conformance("S1", "L1")
async def test_two_keys_may_choose_the_same_id_and_have_a_session_each(living: ServerProcess) -> None:
    async with both(living.url, "an id of both") as (ada, bob):
        assert (await create(ada, 1)).status_code == 200
        await ada.call("step", label="of-ada")
        assert (await create(bob, 2)).status_code == 200
        assert (await create(bob, 3)).status_code == 409
        assert (await bob.call("read")).text == ""
        await bob.call("step", label="of-bob")
        assert ((await ada.call("read")).text, (await bob.call("read")).text) == ("of-ada", "of-bob")
        await bob.delete()
        assert (await bob.ping(), await ada.ping()) == (410, 200)
        assert (await create(ada, 1)).status_code == 200
        assert (await ada.call("read")).text == "of-ada"


@pytest.mark.conformance("S1", "L4")
async def test_the_id_of_another_key_is_answered_as_one_that_never_was(living: ServerProcess) -> None:
    async with both(living.url) as (ada, bob):
        nobody = Api(bob.http, NOBODYS, **{"X-API-Key": KEYS[1]})
        unknown = [reported(each) for each in await everywhere(nobody)]
        assert (await create(ada)).status_code == 200
        await ada.call("step", label="A")
        assert [reported(each) for each in await everywhere(bob)] == unknown
        assert (await ada.call("read")).text == "A"
        await ada.delete()
        assert [reported(each) for each in await everywhere(bob)] == unknown
        assert await ada.ping() == 410


@pytest.mark.conformance("S1", "L7")
async def test_a_session_of_before_a_restart_is_built_again_for_its_key_alone(killed: Killed) -> None:
    async with both(killed.process.url) as (ada, bob):
        nobody = Api(bob.http, NOBODYS, **{"X-API-Key": KEYS[1]})
        assert (await create(ada)).status_code == 200
        await ada.call("step", label="A")
        await killed.kill()
        await until(lambda: killed.process.events("sessions_left_open"), timeout_s=WAIT_S)
        unknown = [reported(each) for each in await everywhere(nobody)]
        assert [reported(each) for each in await everywhere(bob)] == unknown
        assert (await create(bob)).status_code == 200
        assert (await bob.call("read")).text == ""
        assert not killed.process.events("session_rebuilt")
        assert (await patiently(lambda: ada.call("read"))).text == "A"
        await until(lambda: killed.process.events("session_rebuilt"), timeout_s=WAIT_S)
        assert len(killed.process.events("session_rebuilt")) == 1
        assert (await bob.call("read")).text == ""
        await killed.kill()
        assert (await patiently(lambda: bob.call("read"))).text == ""
        assert (await patiently(lambda: ada.call("read"))).text == "A"


@pytest.mark.conformance("S1")
async def test_faults_of_the_same_id_are_shown_to_the_key_whose_session_failed() -> None:
    with server(f"{ORDERS}:Orders", api_keys=KEYS, console="on", call_time_limit_s=0.2) as found:
        async with both(found.url) as (ada, bob):
            await create(ada)
            await create(bob)
            assert (await bob.call("step", label="x", until="/nowhere/at/all")).fault == "time_limit"
            shown = [(await each.get("/console/api/faults")).json() for each in (ada, bob)]
            assert [[each["fault"] for each in faults] for faults in shown] == [[], ["time_limit"]]


@pytest.mark.conformance("S1")
async def test_the_journal_and_the_log_hold_nothing_to_guess_a_key_by(killed: Killed, tmp_path: Path) -> None:
    async with both(killed.process.url) as (ada, bob):
        for each in (ada, bob):
            assert (await create(each)).status_code == 200
            await each.call("step", label="A")
        await killed.kill()
        for each in (ada, bob):
            await patiently(lambda each=each: each.call("read"))  # type: ignore[misc]
            await each.delete()
        live = (await ada.get("/console/api/trajectories")).json()["items"]
    names = rows(tmp_path, "select distinct owner from sessions")
    assert len(names) == 2 and all(re.fullmatch(r"key-[0-9a-f]{32}", name) for (name,) in names)
    assert [each["owner"] for each in live] == [live[0]["owner"]]
    runs = rows(tmp_path, "select distinct run from sessions")
    assert len(runs) == 2 and all(re.fullmatch(r"key-[0-9a-f]{8} [-0-9]{10}", run) for (run,) in runs)
    killed.process.signal(signal.SIGTERM)
    await asyncio.to_thread(killed.process.end)
    written = [file.read_bytes() for file in tmp_path.iterdir()] + ["".join(killed.log).encode()]
    written.append(killed.process.everything.encode())
    for key in KEYS:
        for form in (key, hashlib.sha256(key.encode()).hexdigest()[:8], old_name(SecretStr(key))):
            assert not any(form.encode() in text for text in written)


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    wait_for_living(folder / "journal.db")
    with closing(sqlite3.connect(folder / "journal.db")) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.conformance("S1", "L7")
async def test_what_was_played_under_the_names_of_before_is_still_that_of_its_key(
    killed: Killed, tmp_path: Path
) -> None:
    async with both(killed.process.url) as (ada, bob):
        for each in (ada, bob):
            await create(each)
            await each.call("step", label="A")
        (name,), (other,) = rows(tmp_path, "select owner from sessions order by id")
        killed.process.signal(signal.SIGTERM)
        await asyncio.to_thread(killed.process.end)
        with closing(sqlite3.connect(tmp_path / "journal.db")) as connection:
            for new, old in ((old_name(SecretStr(KEYS[0])), name), ("key-0badc0de", other)):
                connection.execute("update sessions set owner=? where owner=?", [new, old])
            connection.commit()
        await killed.kill()
        assert (await patiently(lambda: ada.call("read"))).text == "A"
        assert await bob.ping() == 404  # nobody knows whose that name was
        (shown,) = (await ada.get("/console/api/trajectories")).json()["items"]
        assert shown["owner"] == name
        whole = await ada.get(f"/console/api/trajectories/{shown['id']}")
        assert whole.status_code == 200
    assert {owner for (owner,) in rows(tmp_path, "select owner from sessions")} == {name, "key-0badc0de"}


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    yield from running_postgres()


async def test_servers_on_one_journal_call_a_key_by_the_same_name(postgres: Postgres) -> None:
    place = postgres.new_database()
    stores = [Store(options(place)) for _ in range(3)]
    try:
        await asyncio.gather(*(asyncio.to_thread(store.open) for store in stores))
        salts = set()
        for store in stores:
            with store.reading() as connection:
                salts.add(read_salt(connection))
        assert len(salts) == 1 and all(len(salt) == 32 for salt in salts)
    finally:
        for store in stores:
            store.close()


def test_names_of_keys_depend_on_the_salt_and_not_on_other_keys() -> None:
    headers = {b"x-api-key": b"one"}
    names = {
        Keys([SecretStr(key) for key in keys], salt).owner(headers)
        for keys in (["one"], ["two", "one"])
        for salt in (b"a", b"b")
    }
    assert len(names) == 2 and all(re.fullmatch(r"key-[0-9a-f]{32}", name) for name in names)
    assert all(re.fullmatch(r"key-[0-9a-f]{8}", short_name(name)) for name in names)


def test_a_key_keeps_its_name_when_the_keys_are_read_again() -> None:
    keys = Keys([SecretStr("one"), SecretStr("two")], b"salt")
    one, two = ({b"x-api-key": key} for key in (b"one", b"two"))
    name = keys.owner(one)
    keys.replace([SecretStr("one"), SecretStr("three")])
    assert keys.owner(one) == name
    with pytest.raises(Unauthorized):
        keys.owner(two)


def test_nobody_is_let_in_under_a_name_that_may_change() -> None:
    keys = Keys([SecretStr("one")])
    with pytest.raises(Starting):
        keys.owner({b"x-api-key": b"one"})
    with pytest.raises(Unauthorized):
        keys.owner({b"x-api-key": b"two"})
    keys.know(b"salt")
    assert keys.owner({b"x-api-key": b"one"}).startswith("key-")
