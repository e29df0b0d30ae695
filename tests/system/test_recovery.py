"""A server that is killed and started again with the same journal; ``tests/sessions`` has the cases."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from orsay.journal.export import existing
from orsay.journal.options import JournalOptions, journal_url
from orsay.journal.write.wal import wait_for_living
from orsay_client import AsyncClient, Retry
from orsay_protocol.sse import Decoder

from ..support.server_process import ServerProcess, server
from ..support.servers import ROOT
from ..support.session_api import Api, Reply, api_for
from ..support.waiting import until

pytestmark = pytest.mark.process

COUNTING = str(ROOT / "tests" / "system" / "counting.py")
PATIENT = Retry(tries=60, first_delay_s=0.1, max_delay_s=1.0)
WAIT_S = 90.0


class Immortal:
    """A server on one port and one journal, which can be killed and started again."""

    def __init__(self, folder: Path, *targets: str, **settings: str) -> None:
        self.file = folder / "journal.db"
        self._targets = [each if ":" in each else f"{COUNTING}:{each}" for each in targets]
        self._variables = {"ORSAY_WORKERS": "1", "ORSAY_JOURNAL": str(self.file), "ORSAY_LOG_FORMAT": "json"}
        self.change(**settings)
        self.port = "0"
        self.log: list[str] = []
        self.process = self._start()
        self.port = self.process.url.rpartition(":")[2]

    @property
    def url(self) -> str:
        return self.process.url

    def _start(self) -> ServerProcess:
        process = ServerProcess(["--port", self.port, *self._targets], self._variables)
        process.wait_for_url()
        return process

    def change(self, **settings: str) -> None:
        """Settings from the next start on."""
        self._variables |= {f"ORSAY_{name.upper()}": value for name, value in settings.items()}

    async def kill(self) -> None:
        """``kill -9``, and start it again."""
        await self.restart(signal.SIGKILL)

    async def restart(self, by: signal.Signals = signal.SIGTERM) -> None:
        """End it, in order or not, and start it again."""
        self.process.signal(by)
        await asyncio.to_thread(self.process.end)
        self.log += self.process.log
        self.process = await asyncio.to_thread(self._start)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        wait_for_living(self.file)
        with closing(sqlite3.connect(self.file)) as connection:
            return connection.execute(query).fetchall()


@pytest.fixture
def immortal(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Immortal]:
    names, _, workers = getattr(request, "param", "Sum").partition(" on ")
    server = Immortal(tmp_path, *names.split(), **({"workers": workers} if workers else {}))
    try:
        yield server
    finally:
        server.process.end()
        print("".join(server.log + server.process.log))  # shown when the test failed


@asynccontextmanager
async def opened(server: Immortal, env: str = "", **spec: Any) -> AsyncIterator[Api]:
    """A session that is not deleted at the end."""
    async with api_for(server.url) as api:
        yield await api.create(env, first=5, **spec)


async def patiently(ask: Callable[[], Awaitable[Reply]]) -> Reply:
    """Ask again while the session is being built."""
    async with asyncio.timeout(WAIT_S):
        while (reply := await ask()).status == 503:
            assert reply.response.headers["x-backend-state"] == "starting"
            await asyncio.sleep(0.05)
    return reply


@pytest.mark.conformance("L7", "D6")
async def test_an_episode_goes_on_where_the_kill_left_it(immortal: Immortal) -> None:
    async with opened(immortal) as api:
        await api.get("/prompt")
        assert [(await api.call("add", number=n)).text for n in (1, 2)] == ["6", "8"]
        assert (await api.call("fail")).fault == "tool_error"
        assert (await api.call("add", number="x")).result["ok"] is False
        await immortal.kill()
        reply = await patiently(lambda: api.call("add", number=3))
        assert reply.text == "11"
        over = (await api.call("end")).result["output"]
        assert (over["reward"], over["finished"]) == (pytest.approx(11.04), True)
        assert (await api.call("add", number=1)).result["reason"] == "episode_finished"
        await api.delete()
    await until(lambda: immortal.rows("select 1 from sessions where ended_at is not null"), timeout_s=WAIT_S)
    ended = immortal.rows("select calls, faults, reward, finished, end_reason from sessions")
    assert ended == [(7, 1, pytest.approx(11.04), 1, "Session deleted")]
    assert immortal.rows("select number from calls order by number") == [(n,) for n in range(1, 8)]


@pytest.mark.conformance("L7")
async def test_a_client_in_the_middle_of_a_call_gets_the_result_under_its_task_id(immortal: Immortal) -> None:
    async with opened(immortal) as api:
        body = {"name": "add", "input": {"number": 1, "seconds": 1.5}}
        decoder, events = Decoder(), []
        with pytest.raises(httpx.TransportError):
            headers = {"X-Session-ID": api.sid}
            async with api.http.stream("POST", "/call", json=body, headers=headers) as stream:
                async for part in stream.aiter_bytes():
                    events += decoder.feed(part)
                    if events:
                        immortal.process.signal(signal.SIGKILL)
        await immortal.kill()
        assert events[0].event == "task_id"
        reply = await patiently(lambda: api.attach(events[0].data))
        assert reply.text == "6"
        assert (await api.call("end")).result["output"]["reward"] == pytest.approx(6.01)


@pytest.mark.conformance("L7", "L4", "S3")
@pytest.mark.parametrize("immortal", ["Sum Mortal Fickle"], indirect=True)
async def test_a_session_that_cannot_be_built_again_is_gone_and_says_why(immortal: Immortal) -> None:
    secret = {"env_name": "sum", "task_spec": {"first": 5}, "secrets": {"token": "very-secret-value"}}
    async with opened(immortal, "mortal") as mortal, opened(immortal, "fickle") as fickle:
        secretive = mortal.other()
        assert (await secretive.post("/create", secret)).status_code == 200
        for api in (mortal, fickle):
            await api.call("add", number=1)
        await fickle.call("where")
        await immortal.kill()
        for api, reason in (
            (mortal, "server restarted"),
            (secretive, "secrets"),
            (fickle, "the result of its call 2 of 'where' differs"),
        ):
            reply = await patiently(partial(api.call, "add", number=1))
            assert (reply.status, reply.response.headers["x-orsay-fault"]) == (410, "session_gone")
            assert reason in reply.response.json()["detail"]
            assert (await api.call("add", number=1)).status == 410
        assert (await mortal.other().call("add", number=1)).status == 404
    counted = f"select calls, end_reason is null, fault from sessions where sid = '{mortal.sid}'"
    assert immortal.rows(counted) == [(1, 0, "session_gone")]
    for file in immortal.file.parent.glob(f"{immortal.file.name}*"):
        assert b"very-secret-value" not in file.read_bytes()


@pytest.mark.conformance("I4", "D6")
async def test_a_call_whose_worker_dies_says_so_with_a_journal_too(immortal: Immortal) -> None:
    async with opened(immortal) as api:
        assert (await api.call("die")).fault == "worker_lost"
        gone = await api.call("add", number=1)
        assert (gone.status, gone.response.headers["x-orsay-fault"]) == (410, "worker_lost")
    await until(lambda: immortal.rows("select 1 from sessions where ended_at is not null"), timeout_s=WAIT_S)
    assert immortal.rows("select fault from sessions") == [("worker_lost",)]
    assert immortal.rows("select fault, result from calls") == [("worker_lost", None)]


@pytest.mark.conformance("I4", "L7")
async def test_other_sessions_of_a_worker_that_dies_go_on_in_the_next_one(immortal: Immortal) -> None:
    async with opened(immortal) as bystander, opened(immortal) as culprit:
        await bystander.get("/prompt")
        first = await bystander.call("add", number=1)
        assert (await culprit.call("die")).fault == "worker_lost"
        assert (await patiently(lambda: bystander.call("add", number=2))).text == "8"
        assert (await bystander.attach(first.task_id)).text == "6"
        gone = await culprit.call("add", number=1)
        assert (gone.status, gone.response.headers["x-orsay-fault"]) == (410, "worker_lost")
        assert (await bystander.call("end")).result["output"]["reward"] == pytest.approx(8.02)
        await bystander.delete()
    assert immortal.rows("select calls, faults, end_reason from sessions where finished") == [
        (3, 0, "Session deleted")
    ]
    assert len(immortal.rows("select 1 from calls")) == 4


@pytest.mark.conformance("I4", "L7")
@pytest.mark.parametrize("immortal", ["Doomed"], indirect=True)
async def test_a_session_that_takes_each_worker_along_is_given_up(immortal: Immortal, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    async with opened(immortal) as doomed, opened(immortal) as culprit:
        assert (await doomed.call("once", file=str(mark))).text == "went on"
        assert (await culprit.call("die")).fault == "worker_lost"
        gone = await patiently(lambda: doomed.call("add", number=1))
        assert (gone.status, gone.response.headers["x-orsay-fault"]) == (410, "worker_lost")
        assert "could not be built again" in gone.response.text
    assert mark.read_text() == "again\n" * 3
    async with opened(immortal) as fresh:
        assert (await patiently(lambda: fresh.call("add", number=1))).text == "6"


@pytest.mark.conformance("L7")
async def test_workers_print_a_set_each_in_its_way_where_that_is_switched_on(tmp_path: Path) -> None:
    server = Immortal(tmp_path, "Sets", workers="2", hash_seed="random")
    try:
        async with opened(server) as one, opened(server) as other:
            assert (await one.call("where")).text != (await other.call("where")).text
            assert (await one.call("names")).text != (await other.call("names")).text
            assert (await one.get("/environments")).json()[0]["hash_seed"] is None
    finally:
        server.process.end()
    assert server.rows("select distinct hash_seed from sessions") == [(None,)]


@pytest.mark.conformance("L7")
@pytest.mark.parametrize(("variable", "seed"), [("5", 5), ("random", None)])
async def test_the_local_runtime_has_the_hash_seed_of_the_server(variable: str, seed: int | None) -> None:
    process = ServerProcess(
        ["--port", "0", "--runtime", "local", f"{COUNTING}:Sets"], {"PYTHONHASHSEED": variable}
    )
    try:
        process.wait_for_url()
        async with api_for(process.url) as api:
            assert (await api.get("/environments")).json()[0]["hash_seed"] == seed
    finally:
        process.end()


@pytest.mark.conformance("L7")
@pytest.mark.parametrize("immortal", ["Sets"], indirect=True)
async def test_a_session_that_printed_a_set_goes_on_in_another_worker_and_server(immortal: Immortal) -> None:
    async with opened(immortal) as api, opened(immortal) as bystander:
        assert (await api.get("/environments")).json()[0]["hash_seed"] == 0
        printed = (await api.call("names")).text
        os.kill(int((await bystander.call("where")).text), signal.SIGKILL)
        await until(lambda: immortal.process.events("session_suspended"))
        assert (await patiently(lambda: api.call("names"))).text == printed
        await immortal.kill()
        assert (await patiently(lambda: api.call("names"))).text == printed
    await until(lambda: immortal.process.events("session_rebuilt"))
    assert immortal.rows("select distinct hash_seed from sessions") == [(0,)]


@pytest.mark.conformance("L7")
async def test_a_session_of_another_hash_seed_is_gone(tmp_path: Path) -> None:
    server = Immortal(tmp_path, "Sets", hash_seed="3")
    try:
        async with opened(server) as api:
            assert (await api.call("add", number=1)).text == "6"  # in which no set shows
            server.change(hash_seed="random")
            await server.kill()
            gone = await patiently(lambda: api.call("add", number=1))
    finally:
        server.process.end()
    assert (gone.status, gone.response.headers["x-orsay-fault"]) == (410, "session_gone")
    assert "it was played with the hash seed 3" in gone.response.json()["detail"]


@pytest.mark.conformance("L7")
@pytest.mark.parametrize("immortal", ["Sets"], indirect=True)
async def test_a_session_from_before_hash_seeds_were_fixed_is_compared_as_ever(immortal: Immortal) -> None:
    async with opened(immortal) as silent, opened(immortal) as printing:
        assert (await silent.call("add", number=1)).text == "6"
        await printing.call("names")
        immortal.process.signal(signal.SIGTERM)  # the file has it all then
        await asyncio.to_thread(immortal.process.end)
        with closing(sqlite3.connect(immortal.file)) as connection, connection:
            connection.execute("update sessions set hash_seed = null")
        immortal.change(hash_seed="4")
        await immortal.kill()
        assert (await patiently(lambda: silent.call("add", number=1))).text == "7"
        gone = await patiently(lambda: printing.call("add", number=1))
        assert gone.status == 410 and "'names' differs from the recorded" in gone.response.json()["detail"]


@pytest.mark.conformance("L6", "L7")
@pytest.mark.parametrize("immortal", ["Witness"], indirect=True)
async def test_an_episode_goes_on_after_a_restart_in_order(immortal: Immortal, tmp_path: Path) -> None:
    torn_down = tmp_path / "teardowns"
    async with opened(immortal, file=str(torn_down)) as api:
        assert (await api.call("add", number=1)).text == "6"
        await immortal.restart()
        assert torn_down.read_text() == "6\n"
        assert (await patiently(lambda: api.call("add", number=2))).text == "8"
        await api.delete()
    assert torn_down.read_text() == "6\n8\n"
    assert immortal.rows("select calls, end_reason from sessions") == [(2, "Session deleted")]


@pytest.mark.conformance("L6", "L7")
@pytest.mark.parametrize("immortal", ["Witness"], indirect=True)
async def test_whoever_asks_while_the_server_stops_is_answered_with_retry_after(
    immortal: Immortal, tmp_path: Path
) -> None:
    quick, slow = tmp_path / "quick", tmp_path / "slow"
    async with (
        opened(immortal, file=str(quick)) as api,
        opened(immortal, file=str(slow), teardown_s=2) as other,
    ):
        await asyncio.gather(api.call("add", number=1), other.call("add", number=1))
        immortal.process.signal(signal.SIGTERM)
        await until(lambda: quick.exists() and slow.exists(), timeout_s=WAIT_S)
        reply = await api.call("add", number=2)
        assert (reply.status, reply.response.headers["x-backend-state"]) == (503, "starting")
        await immortal.restart()
        assert (await patiently(lambda: api.call("add", number=2))).text == "8"


@pytest.mark.conformance("D6")
@pytest.mark.parametrize("immortal", ["Broken"], indirect=True)
async def test_sessions_that_failed_are_in_the_journal_and_requests_that_were_refused_are_not(
    immortal: Immortal,
) -> None:
    async with api_for(immortal.url) as api:
        for broken, status in (("constructor", 500), ("setup", 200)):
            body = {"env_name": "", "task_spec": {"first": 1, "broken": broken}}
            session = api.other()
            assert (await session.post("/create", body)).status_code == status
            await session.get("/prompt")
            assert (await session.post("/delete")).status_code == 200
        refused = await api.other().post("/create", {"env_name": "", "split": "train", "index": 10_000})
        assert refused.status_code == 400
    await until(
        lambda: len(immortal.rows("select 1 from sessions where ended_at > 0")) == 2, timeout_s=WAIT_S
    )
    assert immortal.rows("select fault from sessions") == [("setup_error",), ("setup_error",)]


@pytest.mark.conformance("L4", "L2")
async def test_a_journal_that_cannot_be_opened_leaves_the_life_of_sessions_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with server(f"{COUNTING}:Sum", journal=str(tmp_path / "file" / "journal.db")) as found:
        async with api_for(found.url) as api, asyncio.timeout(WAIT_S):
            await api.create("", first=1)
            assert (await api.call("add", number=2)).text == "3"
            await api.delete()
            assert (await api.call("add", number=2)).status == 410
            await api.delete()


@pytest.mark.conformance("L7")
async def test_a_gateway_that_was_killed_goes_on_with_a_new_session_behind_it(tmp_path: Path) -> None:
    with server(f"{COUNTING}:Sum") as behind:
        gateway = Immortal(tmp_path, behind.url)
        try:
            async with opened(gateway) as api:
                assert (await api.call("add", number=1)).text == "6"
                await gateway.kill()
                assert (await patiently(lambda: api.call("add", number=2))).text == "8"
                assert (await api.call("end")).result["output"]["reward"] == pytest.approx(8.02)
        finally:
            gateway.process.end()


@pytest.mark.conformance("D6")
@pytest.mark.parametrize("immortal", ["Mortal"], indirect=True)
async def test_what_a_client_was_answered_is_in_the_journal_when_the_server_is_killed(
    immortal: Immortal,
) -> None:
    seen: dict[str, tuple[str, str]] = {}

    async def play(api: Api) -> None:
        while True:
            reply = await api.call("add", number=1)
            seen[reply.task_id] = (api.sid, reply.text)

    async with api_for(immortal.url) as api:
        players = [api.other() for _ in range(30)]
        for player in players:
            await player.create("", first=0)
        tasks = [asyncio.create_task(play(player)) for player in players]
        await until(lambda: len(seen) > 500, timeout_s=WAIT_S)
        immortal.process.signal(signal.SIGKILL)
        await asyncio.gather(*tasks, return_exceptions=True)
    with existing(JournalOptions(journal_url(str(immortal.file)))):
        pass  # as any reader does
    written = immortal.rows(
        "select task_id, sid, result, calls.reward from calls join sessions on sessions.id = calls.session"
    )
    kept = {task_id: (sid, result, reward) for task_id, sid, result, reward in written}
    for task_id, (sid, text) in seen.items():
        output = json.loads(kept[task_id][1])["output"]
        assert (kept[task_id][0], output["blocks"][0]["text"]) == (sid, text)
        assert kept[task_id][2] == output["reward"] == 0.0


@pytest.mark.timeout(400)
@pytest.mark.conformance("L7", "D6", "D2")
@pytest.mark.parametrize("immortal", ["Sum on 2"], indirect=True)
async def test_two_hundred_episodes_outlive_five_kills(immortal: Immortal) -> None:
    rewards: dict[int, float | None] = {}

    async def play(client: AsyncClient, number: int) -> None:
        draw = random.Random(number)
        async with client.environment().session(task_spec={"first": number}) as session:
            for n in range(8):
                seconds = draw.choice((0.0, 0.0, 0.05, 0.3))
                answer = await session.call("add", {"number": n, "seconds": seconds})
                expected = number + n * (n + 1) // 2
                assert [block.model_dump()["text"] for block in answer.blocks] == [str(expected)]
            rewards[number] = (await session.call("end", {})).reward

    room = asyncio.Semaphore(50)

    async def one(client: AsyncClient, number: int) -> None:
        async with room:
            await play(client, number)

    async with (
        AsyncClient(immortal.url, retry=PATIENT) as client,
        asyncio.timeout(300),
        asyncio.TaskGroup() as group,
    ):
        for number in range(200):
            group.create_task(one(client, number))
        for kill in range(5):
            enough = 30 * kill + 5
            while len(rewards) < enough:
                await asyncio.sleep(0.01)
            await immortal.kill()
    assert rewards == {number: pytest.approx(number + 28 + 0.08) for number in range(200)}
    await until(lambda: not immortal.rows("select 1 from sessions where ended_at is null"), timeout_s=WAIT_S)
    counted = immortal.rows(
        "select count(*), min(calls), max(calls), sum(finished), count(fault) from sessions"
    )
    assert counted == [(200, 9, 9, 200, 0)]
    assert immortal.rows("select count(*) from calls where number is null") == [(0,)]
