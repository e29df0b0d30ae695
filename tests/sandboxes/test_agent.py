"""The agent alone: its lease, its end, its program."""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
import subprocess
from pathlib import Path

import pytest
from orsay.errors import SandboxError, SandboxGone
from orsay.sandboxes.agent import agent_program

from ..interop.venvs import COMPILER, python_for
from ..support.sandboxes import bare_agent
from ..support.waiting import until

ROOT = Path(__file__).parents[2]
AGENT = ROOT / "server" / "orsay" / "sandboxes" / "agent"


@pytest.mark.process
async def test_an_agent_that_hears_nothing_for_its_lease_ends(tmp_path: Path) -> None:
    async with bare_agent(tmp_path, lease_s=1) as sandbox:
        await asyncio.sleep(2)
        assert (await sandbox.run("echo alive")).output == b"alive\n"
        beat = sandbox._connection._beat
        assert beat is not None
        beat.cancel()
        with pytest.raises(SandboxGone, match="connection to it broke"):
            await sandbox.run("sleep 60")


@pytest.mark.process
async def test_commands_end_with_the_agent(tmp_path: Path) -> None:
    async with bare_agent(tmp_path) as sandbox:
        running = asyncio.create_task(sandbox.run("echo $$ > pid; exec sleep 60"))
        await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        pid = int((tmp_path / "pid").read_text())
        supervisor = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        await sandbox.close()
        with pytest.raises(SandboxGone):
            await running
    await until(lambda: not Path(f"/proc/{supervisor}").exists())
    os.kill(pid, 9)  # outside a namespace of its own, a command outlives its supervisor


def test_a_machine_without_an_agent_is_refused() -> None:
    assert agent_program("amd64") == agent_program("x86_64") != agent_program("arm64")
    for machine in ("riscv64", "__init__.py", "source", "../agent/x86_64"):
        with pytest.raises(SandboxError, match="no agent for"):
            agent_program(machine)


def test_the_programs_are_of_these_sources() -> None:
    recorded = (AGENT / "sources.sha256").read_text().splitlines()
    sources = [
        f"{hashlib.sha256(each.read_bytes()).hexdigest()}  ./{each.name}"
        for each in sorted((AGENT / "source").iterdir())
    ]
    assert recorded == sources, "build them again: scripts/agent"


@pytest.mark.venv
@pytest.mark.timeout(400)
def test_building_the_agent_again_gives_the_same_program(tmp_path: Path) -> None:
    machine = platform.machine()
    subprocess.run(
        ["bash", str(ROOT / "scripts" / "agent"), str(tmp_path), machine],
        env={
            **os.environ,
            "PYTHON": str(python_for(*COMPILER)),
            "ZIG_GLOBAL_CACHE_DIR": str(tmp_path / "cache"),
        },
        check=True,
        timeout=380,
    )
    assert (tmp_path / machine).read_bytes() == agent_program(machine)
