"""What containers use of the disk: what one has changed is a folder of the engine's machine.

Where this process can read that, it is measured by ``du``, files too; elsewhere the engine is asked for its
size.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Collection, Mapping, Sequence

from ..errors import NotThere
from ..runtimes.docker.engine import Engine
from .disk import DU_BYTES, DU_FILES, Used, read_du

__all__ = ["DockerDisks"]


class DockerDisks:
    """Sizes of containers with the ``labels``."""

    def __init__(self, engine: Engine, labels: Mapping[str, str]) -> None:
        self._engine = engine
        self._labels = labels
        self._folders: dict[str, str] = {}
        """Folders of changes by container; "" where this process cannot read it."""
        self.sees_folders = shutil.which("du") is not None

    async def measure(self, containers: Collection[str]) -> Mapping[str, Used]:
        """What those containers use, by id. Raises EngineError, OSError, ValueError."""
        for container in containers:
            if container not in self._folders:
                with contextlib.suppress(NotThere):
                    self._folders[container] = await self._folder_of(container)
        self._folders = {name: folder for name, folder in self._folders.items() if name in containers}
        names = {folder: name for name, folder in self._folders.items() if folder and self.sees_folders}
        found = {names[path]: used for path, used in (await _of_folders([*names])).items()}
        if len(names) < len(self._folders):
            for each in await self._engine.containers(self._labels, sizes=True):
                found.setdefault(each["Id"], (int(each.get("SizeRw") or 0), 0))
        return found

    async def _folder_of(self, container: str) -> str:
        told = await self._engine.inspect(container)
        folder = str((told.get("GraphDriver", {}).get("Data") or {}).get("UpperDir", ""))
        return folder if folder and os.access(folder, os.R_OK | os.X_OK) else ""


async def _of_folders(folders: Sequence[str]) -> dict[str, Used]:
    if not folders:
        return {}
    sizes, files = await asyncio.gather(_du(DU_BYTES, folders), _du(DU_FILES, folders))
    return {each: (sizes[each], files[each]) for each in folders if each in sizes and each in files}


async def _du(program: Sequence[str], folders: Sequence[str]) -> dict[str, int]:
    """What ``du`` says of each; files that go while it looks are no error."""
    process = await asyncio.create_subprocess_exec(
        *program,
        *folders,
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
    return read_du(output)
