"""What must hold in a sandbox in the end.

No check runs a program of the policy's sandbox. Files are read by the sandbox's own first process, and what
needs a program (git, sqlite3, tar) is done by ``Printed`` in a fresh sandbox with copies. Expected values are
compared here, and are in no sandbox at all.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import posixpath
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from orsay import Sandbox

__all__ = [
    "WORK",
    "Absent",
    "Alive",
    "Check",
    "Content",
    "Data",
    "Gone",
    "Links",
    "Modes",
    "NoCommand",
    "Owners",
    "Printed",
    "Replies",
    "Started",
    "Tree",
    "started",
]

WORK = "/work"
_LARGEST = 4 << 20
_REPLY_LIMIT_S = 6.0
_LOOKS = 40

Started = tuple[int, int]
"""Identity of a process: its id, and its start in clock ticks since boot."""


class Check(Protocol):
    async def holds(self, box: Sandbox, processes: Mapping[str, Started]) -> bool:
        """True where it does. ``processes`` are those of the setup. OSError counts as False."""
        ...


@dataclass(frozen=True)
class Content:
    """A plain file has this content; line ends at its end do not count in a text."""

    path: str
    content: str | bytes

    async def holds(self, box: Sandbox, processes: Mapping[str, Started]) -> bool:
        return await _matches(box, _absolute(self.path), self.content)


@dataclass(frozen=True)
class Data:
    """A plain file holds this JSON; the order of keys does not count."""

    path: str
    value: Any

    async def holds(self, box: Sandbox, processes: Mapping[str, Started]) -> bool:
        try:
            found = json.loads(await _read(box, _absolute(self.path)))
        except (ValueError, RecursionError):
            return False
        # As texts: 1, 1.0 and true are equal in Python.
        return json.dumps(found, sort_keys=True) == json.dumps(self.value, sort_keys=True)


@dataclass(frozen=True)
class Tree:
    """A folder holds these files, by their paths in it, and nothing else, but for folders that it may"
    " have."""

    path: str
    files: Mapping[str, str | bytes]
    may_have: frozenset[str] = frozenset()

    async def holds(self, box: Sandbox, processes: Mapping[str, Started]) -> bool:
        root = _absolute(self.path)
        parents = {parent for name in self.files for parent in _parents(name)}
        allowed = parents | {parent for name in self.may_have for parent in (name, *_parents(name))}
        seen: set[str] = set()
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            for entry in await box.list(posixpath.join(root, folder)):
                path = posixpath.join(folder, entry.name)
                if entry.kind == "file" and path in self.files:
                    seen.add(path)
                elif entry.kind == "folder" and path in allowed:
                    waiting.append(path)
                else:
                    return False
        if len(seen) < len(self.files):
            return False
        for path, content in self.files.items():
            if not await _matches(box, posixpath.join(root, path), content):
                return False
        return True


@dataclass(frozen=True)
class Absent:
    """There is nothing at these paths."""

    paths: tuple[str, ...]

    async def holds(self, box: Sandbox, processes: Mapping[str, Started]) -> bool:
        for path in self.paths:
            if await box.exists(_absolute(path)):
                return False
        return True


@dataclass(frozen=True)
class Links:
    """A link leads to a folder that holds a file of this content, without being a copy of it."""

    path: str
    target: str
    """As it is written in the link: relative or absolute."""
    name: str
    content: str

    async def holds(self, box: Sandbox, processes: Mapping[str, Started]) -> bool:
        path = _absolute(self.path)
        info = await box.stat(path)
        if info.kind != "link" or info.size not in (len(self.target), len(_absolute(self.target))):
            return False
        return await _matches(box, posixpath.join(path, self.name), self.content)


@dataclass(frozen=True)
class Modes:
    """Files and folders below a folder have these permissions."""

    path: str
    modes: Mapping[str, int]

    async def holds(self, box: Sandbox, processes: Mapping[str, Started]) -> bool:
        for name, mode in self.modes.items():
            info = await box.stat(posixpath.join(_absolute(self.path), name))
            if info.kind not in ("file", "folder") or info.mode != mode:
                return False
        return True


@dataclass(frozen=True)
class Owners:
    """Files and folders below a folder have these users and groups, by number."""

    path: str
    owners: Mapping[str, tuple[int, int]]

    async def holds(self, box: Sandbox, processes: Mapping[str, Started]) -> bool:
        for name, owner in self.owners.items():
            info = await box.stat(posixpath.join(_absolute(self.path), name))
            if info.kind not in ("file", "folder") or (info.user, info.group) != owner:
                return False
        return True


@dataclass(frozen=True)
class Alive:
    """Processes of the setup run, and are not stopped: the same ones, not others of their name."""

    names: tuple[str, ...]

    async def holds(self, box: Sandbox, processes: Mapping[str, Started]) -> bool:
        for name in self.names:
            if await _running(box, processes[name]) not in ("R", "S", "D"):
                return False
        return True


@dataclass(frozen=True)
class Gone:
    """Processes of the setup have ended."""

    names: tuple[str, ...]

    async def holds(self, box: Sandbox, processes: Mapping[str, Started]) -> bool:
        for name in self.names:
            if await _running(box, processes[name]) not in ("", "Z", "X"):
                return False
        return True


@dataclass(frozen=True)
class NoCommand:
    """No process runs whose command line contains this text."""

    text: str

    async def holds(self, box: Sandbox, processes: Mapping[str, Started]) -> bool:
        for entry in await box.list("/proc"):
            if not entry.name.isdecimal():
                continue
            try:
                words = await box.read(f"/proc/{entry.name}/cmdline")
            except OSError:  # it ended meanwhile
                continue
            if self.text.encode() in words.replace(b"\0", b" "):
                return False
        return True


@dataclass(frozen=True)
class Replies:
    """A service answers a message that nobody could know before: the SHA-256 of its key and the message.

    The message is a new file in ``inbox``, and the answer one of the same name in ``outbox``.
    """

    inbox: str
    outbox: str
    key: str

    async def holds(self, box: Sandbox, processes: Mapping[str, Started]) -> bool:
        name, message = secrets.token_hex(8), secrets.token_hex(16)
        await box.write(posixpath.join(_absolute(self.inbox), name), message)
        answer = posixpath.join(_absolute(self.outbox), name)
        for _ in range(_LOOKS):
            if await box.exists(answer):
                break
            await asyncio.sleep(_REPLY_LIMIT_S / _LOOKS)
        return await _matches(box, answer, hashlib.sha256(f"{self.key}{message}".encode()).hexdigest())


@dataclass(frozen=True)
class Printed:
    """Commands of bash print this, in a fresh sandbox with copies of the artifacts.

    They run in /work and must succeed. ``files`` are the grader's own.
    """

    command: str
    output: str
    artifacts: tuple[str, ...]
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    time_limit_s: float = 60

    async def holds(self, box: Sandbox, processes: Mapping[str, Started]) -> bool:
        result = await box.grade(
            f"mkdir -p {WORK} && cd {WORK} || exit 1\n{self.command}",
            artifacts=[_absolute(path) for path in self.artifacts],
            files={_absolute(path): content for path, content in self.files.items()},
            timeout_s=self.time_limit_s,
            max_bytes=_LARGEST,
        )
        return result.ok and result.output.rstrip() == self.output.rstrip()


async def started(box: Sandbox, pid: int) -> Started:
    """Identity of a running process. Raises OSError."""
    return pid, _status(await box.read(f"/proc/{pid}/stat"))[1]


async def _running(box: Sandbox, process: Started) -> str:
    """State of a process as in proc(5); empty once it is gone, also where its id was given to another."""
    try:
        state, start = _status(await box.read(f"/proc/{process[0]}/stat"))
    except OSError:
        return ""
    return state if start == process[1] else ""


def _status(stat: bytes) -> tuple[str, int]:
    """State and start of a process; its name may hold blanks and parentheses (proc(5))."""
    fields = stat.rpartition(b")")[2].split()
    return fields[0].decode(), int(fields[19])


def _absolute(path: str) -> str:
    return posixpath.join(WORK, path)


def _parents(path: str) -> set[str]:
    found = set()
    while path := posixpath.dirname(path):
        found.add(path)
    return found


async def _read(box: Sandbox, path: str) -> bytes:
    """Content of a plain file. Raises OSError, also for a large one."""
    info = await box.stat(path)
    if info.kind != "file" or info.size > _LARGEST:
        raise OSError(f"{path} is no plain file of reasonable size")
    return await box.read(path)


async def _matches(box: Sandbox, path: str, content: str | bytes) -> bool:
    found = await _read(box, path)
    if isinstance(content, bytes):
        return found == content
    return found.rstrip(b"\n") == content.encode().rstrip(b"\n")
