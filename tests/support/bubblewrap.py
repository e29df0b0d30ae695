"""Sandboxes by bubblewrap for tests, where this machine allows them."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import pytest
from orsay.errors import ConfigError
from orsay.sandboxes.base import SandboxSpec
from orsay.sandboxes.bubblewrap.backend import HOST, BubblewrapSandboxes
from orsay.sandboxes.sandbox import Sandbox

from .engine import BASE, skip_without_engine

__all__ = ["bubblewrap_sandbox", "bubblewrap_sandboxes", "skip_without_bubblewrap", "unpacked_base"]


@cache
def _problem() -> str | None:
    """Why tests cannot use bubblewrap here; None when they can."""

    async def attempt() -> None:
        await (await BubblewrapSandboxes.open()).close()

    try:
        asyncio.run(attempt())
    except ConfigError as exc:
        return str(exc)
    return None


def skip_without_bubblewrap() -> None:
    """Skip where there can be no sandboxes by bubblewrap."""
    if (why := _problem()) is not None:
        pytest.skip(why)


@asynccontextmanager
async def bubblewrap_sandboxes(state: Path, *, lease_s: float = 60) -> AsyncIterator[BubblewrapSandboxes]:
    """A back end with its changes in a folder, of which none is left. Skips where there can be none."""
    await asyncio.to_thread(skip_without_bubblewrap)
    sandboxes = await BubblewrapSandboxes.open(lease_s=lease_s, state=state)
    try:
        yield sandboxes
    finally:
        await sandboxes.close()
        assert list(state.iterdir()) == []


@asynccontextmanager
async def bubblewrap_sandbox(state: Path, **spec: object) -> AsyncIterator[Sandbox]:
    """A sandbox of this machine's own system."""
    async with bubblewrap_sandboxes(state) as sandboxes:
        yield await sandboxes.create(SandboxSpec(**{"image": HOST, **spec}))  # type: ignore[arg-type]  # any


def unpacked_base(folder: Path) -> str:
    """The base image of the engine as a folder."""
    skip_without_engine()
    docker = shutil.which("docker")
    if docker is None:
        pytest.skip("needs the docker command, to unpack an image")
    made = subprocess.run([docker, "create", BASE], check=True, capture_output=True, text=True).stdout.strip()
    try:
        with subprocess.Popen([docker, "export", made], stdout=subprocess.PIPE) as export:
            subprocess.run(["tar", "-x", "-C", str(folder)], stdin=export.stdout, check=True)
    finally:
        subprocess.run([docker, "rm", made], check=True, capture_output=True)
    return str(folder)
