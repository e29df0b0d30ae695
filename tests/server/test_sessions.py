from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from orsay.errors import Faulted
from orsay.runtimes.base import OpenSession
from orsay.serving.server import Server
from orsay.settings import Settings

pytestmark = pytest.mark.process

WORLDS = Path(__file__).parents[1] / "runtimes" / "worlds.py"


@pytest.mark.contract("L4")
async def test_a_failed_session_can_be_asked_for_ever_without_growing() -> None:
    settings = Settings(port=0, runtime="local", log_level="error")
    async with Server([f"{WORLDS}:World"]).running(settings) as running:
        sessions = running.sessions
        info = running.runtime.environments[0]
        request = OpenSession(key="world", task_spec={"setup": "ValueError"})
        session = await sessions.create("sid", "", info, request)
        depths = set()
        for _ in range(20):
            with pytest.raises(Faulted) as caught:
                await session.ready()
            depths.add(len(caught.traceback))
        assert len(depths) <= 2


@pytest.mark.contract("D5", "I6")
async def test_results_of_all_sessions_together_stay_within_their_bound() -> None:
    settings = Settings(port=0, runtime="local", stored_bytes=20_000, log_level="error")
    async with Server([f"{WORLDS}:World"]).running(settings) as running:
        sessions, info = running.sessions, running.runtime.environments[0]
        request = OpenSession(key="world", task_spec={})
        for number in range(20):
            session = await sessions.create(str(number), "", info, request)
            handle = await session.ready()
            body = b'{"name":"fill","input":{"size":3000}}'
            call = session.start_call(handle, "call", "fill", body, None)
            async with asyncio.timeout(10):
                while call.outcome is None:
                    await asyncio.sleep(0.001)
            assert sessions.totals.stored_bytes <= 20_000
        assert sessions.totals.stored_bytes > 5_000
