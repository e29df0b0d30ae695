"""Sessions that used a sandbox, after a kill of their server or worker."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..support.engine import needs_engine
from ..support.server_process import children
from ..support.servers import ROOT
from ..support.waiting import until
from ..system.test_recovery import Immortal, opened, patiently

pytestmark = needs_engine

SANDBOXED = str(ROOT / "tests" / "system" / "sandboxed.py")
GONE = "its sandbox is gone, and commands are not declared repeatable"


@pytest.fixture
def immortal(tmp_path: Path) -> Iterator[Immortal]:
    targets = [f"{SANDBOXED}:{name}" for name in ("Lost", "Repeated")]
    server = Immortal(tmp_path, *targets, sandboxes_backend="docker", server_name="orsay-test-recovery")
    try:
        yield server
    finally:
        server.process.end()
        print("".join(server.log + server.process.log))  # shown when the test failed


async def test_a_session_whose_sandbox_is_gone_is_lost_with_the_reason(immortal: Immortal) -> None:
    async with opened(immortal, "lost") as api, opened(immortal, "lost") as other:
        assert (await api.call("run", command="echo one > /f; cat /f")).text == "one\n"
        assert (await other.call("wait")).text == "waited"
        await immortal.kill()
        lost = await patiently(lambda: api.call("wait"))
        assert lost.status == 410 and GONE in lost.detail, lost.detail
        assert (await patiently(lambda: other.call("wait"))).text == "waited", "it used no sandbox"
        assert (await other.call("run", command="cat /f; echo $?")).text.endswith("1\n")
    reasons = immortal.rows("SELECT end_reason FROM sessions WHERE ended_at IS NOT NULL")
    assert [GONE in reason for (reason,) in reasons] == [True]


async def test_repeatable_commands_are_run_again_in_a_new_sandbox(immortal: Immortal) -> None:
    async with opened(immortal, "repeated") as api:
        for number in (1, 2):
            reply = await api.call("run", command="echo line >> /f; wc -l < /f")
            assert reply.text == f"{number}\n"
        for number in (3, 4):  # a session that was rebuilt is one as any other
            await immortal.kill()
            reply = await patiently(lambda: api.call("run", command="echo line >> /f; wc -l < /f"))
            assert reply.text == f"{number}\n"
        await api.delete()
    events = immortal.rows("SELECT kind, sandbox, call FROM sandbox_events ORDER BY id")
    commands = [call for kind, _, call in events if kind == "command"]
    assert len(commands) == len(set(commands)) == 4, "what is replayed has no second rows"
    assert len({sandbox for kind, sandbox, _ in events if kind == "made"}) == 3


async def test_commands_that_are_answered_differently_are_noticed(immortal: Immortal) -> None:
    async with opened(immortal, "repeated") as api:
        await api.call("run", command="cat /proc/sys/kernel/random/uuid")
        await immortal.kill()
        lost = await patiently(lambda: api.call("wait"))
        assert lost.status == 410 and "differs from the recorded one" in lost.detail, lost.detail


async def test_a_session_of_a_dead_worker_is_lost_with_the_reason(immortal: Immortal) -> None:
    async with opened(immortal, "lost") as lost, opened(immortal, "repeated") as repeated:
        for api in (lost, repeated):
            assert (await api.call("run", command="echo one > /f; cat /f")).text == "one\n"
        for worker in children(immortal.process.pid):
            os.kill(worker, signal.SIGKILL)
        await until(lambda: any("session_suspended" in line for line in immortal.process.log), timeout_s=30)
        answer = await patiently(lambda: lost.call("wait"))
        assert answer.status == 410 and GONE in answer.detail, answer.detail
        assert (await patiently(lambda: repeated.call("run", command="cat /f"))).text == "one\n"
