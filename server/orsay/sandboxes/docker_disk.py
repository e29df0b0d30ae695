"""Limits of the disk of containers, by looking at what they use: Docker itself has none on ext4.

What a container has changed is a folder of the engine's machine. Where this process can read that, it is
measured by ``du``, files too; elsewhere the engine is asked for its size.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..errors import EngineError, NotThere
from ..logs import get_logger
from ..runtimes.docker.engine import Engine

__all__ = ["BYTES_PER_FILE", "DiskWatch"]

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
    exceeded: Callable[[str, bool], None]
    folder: str | None = None
    """Folder of its changes; "" where this process cannot read it; None before the first look."""
    used: tuple[int, int] = (0, 0)
    """Bytes and files, at the last look."""
    settles: bool = False
    """Its commands were killed at the last look: what they wrote before they died counts for no other."""


class DiskWatch:
    """Looks at containers with the ``labels``, as long as there are any with a limit."""

    def __init__(self, engine: Engine, labels: Mapping[str, str]) -> None:
        self._engine = engine
        self._labels = labels
        self._watched: dict[str, _Watched] = {}
        self._looking: asyncio.Task[None] | None = None

    def add(self, container: str, limit_bytes: int, exceeded: Callable[[str, bool], None]) -> None:
        """Call ``exceeded`` whenever it has more than its limit and wrote since the last look.

        It gets what to tell the author, and whether the container has twice its limit or more.
        """
        self._watched[container] = _Watched(limit_bytes, exceeded)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())

    def remove(self, container: str) -> None:
        """Look at it no longer; safe to call twice."""
        self._watched.pop(container, None)

    async def close(self) -> None:
        """Look at none any longer."""
        self._watched.clear()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    async def _look(self) -> None:
        pause_s = _LOOK_S
        while self._watched:
            await asyncio.sleep(pause_s)
            began = time.monotonic()
            try:
                used = await self._measured()
            except (EngineError, OSError, ValueError) as exc:
                _log.warning("disk_not_measured", error=str(exc))
                used = {}
            for container, now in used.items():
                if (watched := self._watched.get(container)) is not None:
                    _judge(watched, now)
            pause_s = max(_LOOK_S, _SHARE * (time.monotonic() - began))

    async def _measured(self) -> dict[str, tuple[int, int]]:
        """Bytes and files of each container; 0 files where the engine tells."""
        for container, watched in [*self._watched.items()]:
            if watched.folder is None:
                with contextlib.suppress(NotThere):
                    watched.folder = await self._folder_of(container)
        folders = {each.folder: name for name, each in self._watched.items() if each.folder}
        found = {folders[path]: used for path, used in (await _of_folders([*folders])).items()}
        if any(each.folder == "" for each in self._watched.values()):
            for each in await self._engine.containers(self._labels, sizes=True):
                found.setdefault(each["Id"], (int(each.get("SizeRw") or 0), 0))
        return found

    async def _folder_of(self, container: str) -> str:
        told = await self._engine.inspect(container)
        folder = str((told.get("GraphDriver", {}).get("Data") or {}).get("UpperDir", ""))
        readable = folder and os.access(folder, os.R_OK | os.X_OK) and shutil.which("du")
        return folder if readable else ""


async def _of_folders(folders: list[str]) -> dict[str, tuple[int, int]]:
    if not folders:
        return {}
    sizes, files = await asyncio.gather(_du("--block-size=1", folders), _du("--inodes", folders))
    return {each: (sizes[each], files[each]) for each in folders if each in sizes and each in files}


async def _du(what: str, folders: list[str]) -> dict[str, int]:
    """What ``du`` says of each; files that go while it looks are no error."""
    process = await asyncio.create_subprocess_exec(
        *("du", "--summarize", "--one-file-system", what, "--", *folders),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        output, _ = await process.communicate()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    lines = (line.partition(b"\t") for line in output.splitlines())
    return {os.fsdecode(path): int(number) for number, _, path in lines}


def _judge(watched: _Watched, now: tuple[int, int]) -> None:
    before, watched.used = watched.used, now
    limit, most = watched.limit_bytes, watched.limit_bytes // BYTES_PER_FILE
    far = now[0] >= 2 * limit or now[1] >= 2 * most
    if watched.settles and not far:
        watched.settles = False
    elif now[0] > limit and now[0] > before[0]:
        watched.settles = True
        watched.exceeded(f"disk limit: it uses {_mib(now[0])} of {_mib(limit)}; {_REMEDY}", far)
    elif now[1] > most and now[1] > before[1]:
        watched.settles = True
        watched.exceeded(f"disk limit: it has {now[1]} files of {most} for {_mib(limit)}; {_REMEDY}", far)


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.0f} MiB"
