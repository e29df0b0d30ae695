"""The environment server is killed while an evaluation runs."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from orsay_eval import Evaluation, Turn, evaluate_async

from tests.evaluation.conftest import ENVIRONMENTS
from tests.support.server_process import ServerProcess
from tests.support.servers import ROOT

pytestmark = pytest.mark.process


def start(folder: Path, port: int = 0) -> ServerProcess:
    process = ServerProcess(
        ["--port", str(port), "--workers", "1", f"{ENVIRONMENTS}:Sums"],
        {"EVALUATION_DIARY": str(folder), "ORSAY_JOURNAL": "off", "PYTHONPATH": str(ROOT)},
    )
    try:
        process.wait_for_url()
    except BaseException:
        process.end()
        raise
    return process


async def test_every_episode_ends_with_the_right_reward_when_the_server_is_killed(tmp_path: Path) -> None:
    server = start(tmp_path)
    port = int(server.url.rsplit(":", 1)[1])
    in_the_middle, killed = asyncio.Event(), asyncio.Event()

    async def solve(turn: Turn) -> Any:
        if turn.number == 1 and turn.index == 3:
            in_the_middle.set()
            await killed.wait()
        if turn.number < 2:
            return "peek", {}
        assert turn.task is not None
        return "answer", {"value": turn.task["a"] + turn.task["b"]}

    try:
        evaluation = Evaluation("sums", reward="sum")
        work = asyncio.create_task(
            evaluate_async(evaluation, server.url, solve, concurrency=4, request_tries=10, journal=False)
        )
        await asyncio.wait_for(in_the_middle.wait(), 60)
        os.killpg(server.pid, signal.SIGKILL)
        await asyncio.to_thread(server.end)
        server = await asyncio.to_thread(start, tmp_path, port)
        killed.set()
        report = await asyncio.wait_for(work, 100)
    finally:
        await asyncio.to_thread(server.end)
    assert report.summary.faults == {} and report.summary.retried.get("session_gone", 0) >= 1
    assert [episode.rewards for episode in report.episodes] == [[0.25, 0.25, 1.0]] * 12
