"""What the log says, and that writing it never stops the server."""

from __future__ import annotations

import asyncio
import json
import signal

import pytest
from orsay_protocol.headers import encode_secrets

from ..support.author_log import Log
from ..support.server_process import ENVIRONMENTS, server
from ..support.session_api import api_for
from ..support.sockets import connect
from ..support.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.conformance("O1")]


async def test_one_line_per_session_and_per_fault_and_none_for_pings() -> None:
    with server(f"{ENVIRONMENTS}:Scripted") as found:
        async with api_for(found.url) as api:
            for _ in range(3):
                session = await api.other().create()
                for _ in range(5):
                    assert await session.ping() == 200
                    await session.call("say", text="x")
                await session.call("do", how="ValueError")
                await session.call("win")
                await session.call("nope")
                await session.delete()
            async with asyncio.timeout(5):
                while len(found.events("session_ended")) < 3:
                    await asyncio.sleep(0.02)
        found.end()
        lines = [json.loads(line) for line in found.log]  # every line is JSON
        assert all({"event", "level", "timestamp", "module"} <= set(line) for line in lines)
        played = [line for line in lines if line.get("session")]
        assert sorted(line["event"] for line in played) == ["fault"] * 3 + ["session_ended"] * 3
        ended = found.events("session_ended")[0]
        assert (ended["calls"], ended["reward"], ended["finished"], ended["reason"]) == (
            8,
            1.0,
            True,
            "Session deleted",
        )
        assert "ping" not in "".join(found.log)


async def test_a_session_is_logged_with_the_labels_of_its_run() -> None:
    with server(f"{ENVIRONMENTS}:Scripted") as found:
        async with api_for(found.url) as api:
            for labels in ('{"run":"night","step":7,"rollout":"ab12"}', "plain", "x" * 5000, None):
                headers = {"X-Orsay-Run": labels} if labels else {}
                session = api.other()
                answer = await session.post("/create", {"env_name": "scripted", "task_spec": {}}, **headers)
                assert answer.status_code == 200, answer.text
                await session.call("do", how="ValueError")
                await session.delete()
            async with asyncio.timeout(5):
                while len(found.events("session_ended")) < 4:
                    await asyncio.sleep(0.02)
        for event in ("fault", "session_ended"):
            runs = [line.get("run") for line in found.events(event)]
            assert runs == ['{"run":"night","step":7,"rollout":"ab12"}', "plain", "x" * 512, None]


async def test_calls_are_logged_at_debug() -> None:
    with server(f"{ENVIRONMENTS}:Scripted", log_level="debug") as found:
        async with api_for(found.url) as api:
            await api.create()
            await api.call("say", text="private words")
            await api.ping()
            await api.delete()
        found.end()
        calls = [
            line
            for line in map(json.loads, found.log)
            if line["level"] == "debug" and line.get("tool") == "say"
        ]
        assert len(calls) == 1 and calls[0]["session"] == api.sid
        assert "private words" not in found.everything and "ping" not in "".join(found.log)


async def test_what_libraries_log_is_json_too() -> None:
    with server(f"{ENVIRONMENTS}:Scripted") as found:
        reader, writer = await connect(found.url)
        writer.write(b"\x00\x01\x02\r\n\r\n")
        await writer.drain()
        await reader.read(1000)
        writer.close()
        found.end()
        assert found.log and all(json.loads(line)["event"] for line in found.log)


def test_on_a_terminal_the_log_is_for_people() -> None:
    with server(f"{ENVIRONMENTS}:Scripted", options=["--log-format", "console"]) as found:
        found.signal(signal.SIGTERM)
        assert found.wait() == 0
        assert any("shutting_down" in line and not line.startswith("{") for line in found.log)


@pytest.mark.conformance("I2")
async def test_a_log_that_nobody_reads_does_not_stop_the_server(log: Log) -> None:
    with server(f"{ENVIRONMENTS}:Scripted", drained=False) as found:
        async with api_for(found.url, **{"X-Secrets": encode_secrets({"token": "unused"})}) as api:
            await api.create(log=str(log.path))
            for _ in range(30):  # some 3 MB of tracebacks; a pipe takes 64 KiB
                await asyncio.gather(*(api.call("do", how="say:" + "x" * 10_000) for _ in range(5)))
            for _ in range(20):
                assert (await api.call("say", text="alive")).text == "alive"
                assert await api.ping() == 200
        found.signal(signal.SIGTERM)
        await until(lambda: found.code is not None)
        assert found.code == 0
        assert log.count("gone") == 1
