"""Servers as separate processes, ours and released ones, on a free port, stopped when the test is done."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from orsay.conformance import Check, Outcome, Target, run_check

from tests.support.server_process import ServerProcess
from tests.support.servers import ROOT, RunningServer, running

__all__ = ["BUNDLED", "KIT", "ROOT", "ServerProcess", "outcomes_of", "released", "serve"]

KIT = ("tests/interop/kit.py:Kit", "tests/interop/kit.py:Second")
BUNDLED = (
    "echo_env.env:EchoEnvironment",
    "guess_env.env:GuessEnvironment",
    "arithmetic_env.env:ArithmeticEnvironment",
)


@contextmanager
def serve(
    *targets: str,
    runtime: str = "process",
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    paths: Sequence[Path] = (),
) -> Iterator[ServerProcess]:
    """Orsay with a journal, serving ``targets`` on a free port; ``paths`` are importable there too."""
    found = [*paths, *(ROOT / "envs" / name for name in ("echo", "guess", "arithmetic"))]
    named = [*map(str, found), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {"PYTHONPATH": os.pathsep.join(named)}
    with tempfile.TemporaryDirectory() as folder:
        variables["ORSAY_JOURNAL"] = str(Path(folder, "journal.db"))
        arguments = [*targets, "--host", "127.0.0.1", "--port", "0", "--runtime", runtime, *options]
        process = ServerProcess(arguments, {**variables, **(env or {})})
        try:
            process.wait_for_url()
            yield process
        finally:
            process.end()


@contextmanager
def released(python: Path, package: str) -> Iterator[RunningServer]:
    """The server of a released package, hosting the environments of ``kit.py``."""
    script = Path(__file__).with_name("serve_released.py")
    with running([str(python), str(script), package]) as server:
        yield server


async def outcomes_of(target: Target, checks: Sequence[Check], *, at_once: int = 8) -> list[Outcome]:
    """Several checks at a time: most of a check is waiting."""
    gate = asyncio.Semaphore(at_once)

    async def one(check: Check) -> Outcome:
        async with gate:
            return await run_check(check, target)

    return await asyncio.gather(*map(one, checks))
