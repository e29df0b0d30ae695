"""Limits of the disk, by looking at what sandboxes use: file systems have none for a folder.

How much that is, the back end tells; what happens beyond a limit is the same for all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ..errors import OrsayError
from ..logs import get_logger
from .agent.connection import AgentConnection
from .sandbox import Sandbox

__all__ = ["BYTES_PER_FILE", "DU_BYTES", "DU_FILES", "DiskWatch", "Used", "read_du"]

Used: TypeAlias = tuple[int, int]
"""Bytes and files; 0 files where they are not known."""

DU_BYTES = ("du", "--summarize", "--one-file-system", "--block-size=1", "--")
DU_FILES = ("du", "--summarize", "--one-file-system", "--inodes", "--")
"""Programs that measure the folders whose names follow."""

_LOOK_S = 1.0
_SHARE = 20
"""Pauses last this many times what a look has taken, and a second at least."""
BYTES_PER_FILE = 16384
"""A limit of bytes is one of files too, as on a file system of that size (mke2fs.conf(5), inode_ratio)."""
_REMEDY = "remove files to go on"

_log = get_logger(__name__)


@dataclass(eq=False)
class _Watched:
    limit_bytes: int
    sandbox: Sandbox
    connection: AgentConnection
    used: Used = (0, 0)
    """At the last look."""
    settles: bool = False
    """Its commands were killed at the last look: what they wrote before they died counts for no other."""


class DiskWatch:
    """Looks at sandboxes, as long as there are any with a limit.

    ``measure`` tells what those of some names use; it may raise OrsayError, OSError and ValueError.
    """

    def __init__(self, measure: Callable[[Collection[str]], Awaitable[Mapping[str, Used]]]) -> None:
        self._measure = measure
        self._watched: dict[str, _Watched] = {}
        self._looking: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Future[None]] = set()

    def add(self, name: str, limit_bytes: int, sandbox: Sandbox, connection: AgentConnection) -> None:
        """Whenever it has more than its limit and wrote since the last look, kill its commands.

        Where none is to blame, and where it has twice its limit or more, it ends.
        """
        self._watched[name] = _Watched(limit_bytes, sandbox, connection)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())

    def remove(self, name: str) -> None:
        """Look at it no longer; safe to call twice."""
        self._watched.pop(name, None)

    async def close(self) -> None:
        """Look at none any longer."""
        self._watched.clear()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        await asyncio.gather(*self._ending)

    async def _look(self) -> None:
        pause_s = _LOOK_S
        while self._watched:
            await asyncio.sleep(pause_s)
            began = time.monotonic()
            used: Mapping[str, Used] = {}
            try:
                used = await self._measure([*self._watched])
            except (OrsayError, OSError, ValueError) as exc:
                _log.warning("disk_not_measured", error=str(exc))
            for name, now in used.items():
                if (watched := self._watched.get(name)) is not None:
                    self._judge(watched, now)
            pause_s = max(_LOOK_S, _SHARE * (time.monotonic() - began))

    def _judge(self, watched: _Watched, now: Used) -> None:
        before, watched.used = watched.used, now
        limit, most = watched.limit_bytes, watched.limit_bytes // BYTES_PER_FILE
        far = now[0] >= 2 * limit or now[1] >= 2 * most
        if watched.settles and not far:
            watched.settles = False
        elif now[0] > limit and now[0] > before[0]:
            self._exceeded(watched, f"it uses {_mib(now[0])} of {_mib(limit)}", far)
        elif now[1] > most and now[1] > before[1]:
            self._exceeded(watched, f"it has {now[1]} files of {most} for {_mib(limit)}", far)

    def _exceeded(self, watched: _Watched, what: str, far: bool) -> None:
        watched.settles = True
        reason = f"disk limit: {what}; {_REMEDY}"
        if not watched.connection.kill_all(reason) or far:
            watched.connection.lose(reason)
            ending = asyncio.ensure_future(_closed(watched.sandbox))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)


async def _closed(sandbox: Sandbox) -> None:
    with contextlib.suppress(OrsayError):
        await sandbox.close()


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.0f} MiB"


def read_du(output: bytes) -> dict[str, int]:
    """What ``du`` says of each folder. Raises ValueError."""
    lines = (line.partition(b"\t") for line in output.splitlines())
    return {os.fsdecode(path): int(number) for number, _, path in lines}
