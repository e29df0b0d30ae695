"""Ownership of containers: labels on the engine, and a file lock that only a living server holds.

Each runtime labels its containers, networks and snapshots with the id of its server and with a claim, a
random word. Each claim has a locked file on the server's machine; the system unlocks it when the process
ends, however it ends. Objects with this server's id and a claim that nobody holds were left by a server that
was killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import EngineError
from ...logs import get_logger
from .engine import Engine

if sys.platform != "win32":
    import fcntl

__all__ = ["CLAIM_LABEL", "NAME_LABEL", "SERVER_LABEL", "SNAPSHOT_LABEL", "Claim"]

SERVER_LABEL = "orsay.server"
NAME_LABEL = "orsay.label"
CLAIM_LABEL = "orsay.claim"
SNAPSHOT_LABEL = "orsay.snapshot"
"""Marks images that we made from containers; one of `docker commit` has a container's other labels too."""
_OLD_S = 3600.0  # a file that was just made may not be locked yet
_WORD = re.compile("[0-9a-f]{16}")

_log = get_logger(__name__)


class Claim:
    """Ownership of one runtime's containers, from ``take`` to ``release``."""

    def __init__(self, server_id: str, label: str) -> None:
        self.word = secrets.token_hex(8)
        self.server_id = server_id
        self.label = label
        self._lock: int | None = None

    @property
    def labels(self) -> dict[str, str]:
        """Labels of everything the claim owns."""
        return {SERVER_LABEL: self.server_id, NAME_LABEL: self.label, CLAIM_LABEL: self.word}

    def take(self) -> None:
        """Lock the file, before any object with the labels is made."""
        if sys.platform == "win32":  # there, every claim of another process looks unheld
            return
        try:
            _sweep()
            lock = os.open(_path(self.word), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
            self._lock = lock
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            _log.warning(
                "claim_not_locked",
                error=str(exc),
                hint="another server with the same id may remove our containers",
            )

    def refresh(self) -> None:
        """Update the file's time, for programs that remove old temporary files; on any thread."""
        lock = self._lock
        if lock is not None:
            with contextlib.suppress(OSError):
                os.utime(lock)

    def release(self) -> None:
        """Release the claim, after all objects with its labels are removed; safe to call twice."""
        lock, self._lock = self._lock, None
        if lock is not None:
            with contextlib.suppress(OSError):
                os.unlink(_path(self.word))
            os.close(lock)

    async def clear_left(self, engine: Engine) -> int:
        """Remove objects of killed servers with this id; returns the number of containers."""
        mine = {SERVER_LABEL: self.server_id}
        left = self._ownerless(await engine.containers(mine))
        await asyncio.gather(*(engine.remove(each["Id"]) for each in left))
        for network in self._ownerless(await engine.networks(mine)):
            try:
                await engine.remove_network(network["Id"])
            except EngineError as exc:  # a container of another server is in it
                _log.warning("network_left", network=network["Name"], error=str(exc))
        try:
            await engine.remove_images(self._ownerless(await engine.images({**mine, SNAPSHOT_LABEL: "yes"})))
        except EngineError as exc:
            _log.warning("snapshots_left", error=str(exc))
        if left:
            _log.warning("containers_of_a_killed_server_removed", count=len(left))
        return len(left)

    def _ownerless(self, found: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        words = {each["Labels"].get(CLAIM_LABEL, "") for each in found}
        dead = {word for word in words if word != self.word and not _held(word)}
        return [each for each in found if each["Labels"].get(CLAIM_LABEL, "") in dead]


def _folder() -> Path:
    folder = Path(tempfile.gettempdir()) / "orsay-claims"
    if not folder.exists():
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            folder.chmod(0o1777)  # servers of several users may share an engine, as they share /tmp
    return folder


def _path(word: str) -> Path:
    return _folder() / word


def _sweep() -> None:
    """Remove files of claims that ended with their process, and had no containers left."""
    for each in _folder().iterdir():
        with contextlib.suppress(OSError):  # another server may do the same
            if time.time() - each.stat().st_mtime > _OLD_S:
                _held(each.name)


def _held(word: str) -> bool:
    """True if a living process holds the claim; removes the file otherwise."""
    if sys.platform == "win32" or not _WORD.fullmatch(word):  # a foreign label must not be used as a path
        return False
    try:
        lock = os.open(_path(word), os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with contextlib.suppress(OSError):
            _path(word).unlink()
    except OSError:
        return True
    finally:
        os.close(lock)
    return False
