"""A sandbox: commands and files, the same on every back end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import posixpath
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..authoring.sandbox.model import FileInfo, Limit, RunResult
from ..errors import SandboxError, SandboxGone
from .agent.connection import AgentConnection, JobEnd, Reason

__all__ = ["FileInfo", "RunResult", "Sandbox"]

_LONGEST_ARGUMENT = 120_000  # bytes; Linux allows 128 KiB (MAX_ARG_STRLEN, execve(2))
_LATE_S = 15.0  # after a time limit: the sandbox is stuck, and not the command
_FULL = 2**63 - 1
_LARGEST_READ = 256 << 20
_MOST_LISTED = 50_000
_LARGEST_LIST = _MOST_LISTED * 400  # bytes: a name has 255 at most
_FILE_LIMIT_S = 600.0
_STILL_S = 20.0
"""A file operation of which nothing is heard for so long has been stopped."""
_GLANCE_S = 5.0
_TRIES = 3
_PAUSE_S = 0.1
_ONCE = ("@commit", "@remove")
"""Operations that, done a second time, find nothing."""
_LEAST_SIGNAL = 128
_KILLED = _LEAST_SIGNAL + 9
_MEMORY_EVENTS = ("/sys/fs/cgroup/memory/memory.oom_control", "/sys/fs/cgroup/memory.events")
"""Of control groups of version 1 and 2, as the sandbox sees them."""
_MEMORY_KILLS = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)
_KINDS: Mapping[str, Literal["file", "folder", "link", "other"]] = {"f": "file", "d": "folder", "l": "link"}


class Sandbox:
    """A machine of a session's own.

    Every method raises SandboxGone once it has ended, and SandboxError where its machinery fails. File
    methods raise OSError, by its errno, for what the file system says; paths are absolute, and a link as the
    last part of one is an error (ELOOP), except for ``stat`` and ``remove``.

    A file operation is a process beside those of commands, which can starve, stop or kill it. It is then
    done again, at last with all of these killed. Where even that does not help, it raises OSError (EAGAIN).
    """

    def __init__(
        self,
        sandbox_id: str,
        connection: AgentConnection,
        remove: Callable[[], Awaitable[None]],
        *,
        variables: Mapping[str, str] | None = None,
        memory_events: Path | None = None,
    ) -> None:
        """``memory_events``: the file of its control group that tells of kills, else one inside does."""
        self.id = sandbox_id
        self.variables = {**(variables or {})}
        """Variables of all its commands; those of one command win."""
        self._connection = connection
        self._remove = remove
        self._closing: asyncio.Task[None] | None = None
        self._memory_events = memory_events
        self._killed_for_memory = 0
        self._alone = asyncio.Lock()
        self._afterwards: list[Callable[[], Awaitable[None]]] = []

    @property
    def gone(self) -> SandboxGone | None:
        """Why it can no longer be used; None while it can."""
        return self._connection.gone

    async def close(self) -> None:
        """End it, with all that is in it; safe to call twice."""
        if self._closing is None:
            self._connection.lose("it was closed")
            self._closing = asyncio.ensure_future(self._end())
        await asyncio.shield(self._closing)

    async def _end(self) -> None:
        try:
            await self._remove()
        finally:
            for step in self._afterwards:
                await step()

    def afterwards(self, step: Callable[[], Awaitable[None]]) -> None:
        """Have ``step()`` awaited once it is removed."""
        self._afterwards.append(step)

    async def __aenter__(self) -> Sandbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # commands

    async def run(
        self,
        command: str | Sequence[str],
        *,
        timeout_s: float | None = None,
        max_bytes: int | None = None,
        stdin: bytes | None = None,
        user: str = "",
        folder: str = "",
        variables: Mapping[str, str] | None = None,
        on_output: Callable[[bytes], None] = lambda data: None,
        kept_bytes: int | None = None,
    ) -> RunResult:
        """Run a command of bash, of any length, or a program with its arguments.

        At ``timeout_s`` all that it has started is killed, and so it is when the caller is cancelled. What it
        leaves in the background lives on and holds nothing up. Output beyond ``max_bytes`` is dropped.
        ``on_output`` gets output as it comes; beyond ``kept_bytes``, it alone does. Raises ValueError for
        what cannot be a command: see ``AgentConnection.start``.
        """
        kept: list[bytes] = []
        size = 0

        def output(data: bytes) -> None:
            nonlocal size
            if kept_bytes is None or size < kept_bytes:
                kept.append(data)
            size += len(data)
            on_output(data)

        words, script = _of_bash(command) if isinstance(command, str) else (command, b"")
        end = await self._ended(
            words,
            script=script,
            timeout_s=timeout_s,
            max_bytes=max_bytes,
            stdin=stdin,
            user=user,
            folder=folder,
            variables=variables,
            on_output=output,
        )
        truncated = end.output_bytes > size
        if end.reason is Reason.NOT_STARTED or (end.reason is Reason.KILLED and end.error):
            output(f"{end.error}\n".encode())
        limit = await self._limit(end)
        return RunResult(
            output=b"".join(kept),
            return_code=end.status,
            timed_out=end.reason is Reason.TIMED_OUT,
            truncated=truncated,
            duration_s=end.duration_s,
            output_bytes=max(end.output_bytes, size),
            limit=limit,
        )

    async def _limit(self, end: JobEnd) -> Limit | None:
        """The limit that ended a command, if one did."""
        if end.reason is Reason.TIMED_OUT:
            return "time"
        if end.reason is Reason.KILLED and end.error:
            return "disk"
        if end.status != _KILLED:
            return None
        before, self._killed_for_memory = self._killed_for_memory, await self._memory_kills()
        return "memory" if self._killed_for_memory > before else None

    async def _memory_kills(self) -> int:
        """Processes that the kernel has killed for want of memory; 0 where it does not tell."""
        outside = self._memory_events
        for path in _MEMORY_EVENTS if outside is None else (outside,):
            with contextlib.suppress(OSError, SandboxError):
                told = self._glance(path) if isinstance(path, str) else asyncio.to_thread(path.read_bytes)
                found = _MEMORY_KILLS.search(await told)
                if found is not None:
                    return int(found[1])
        return 0

    async def _glance(self, path: str) -> bytes:
        """Content of a file, or nothing: not worth to kill what disturbs it."""
        return (await self._attempt(("@read", path, "0", str(_FULL)), None, still_s=_GLANCE_S)).content

    async def _ended(
        self,
        words: Sequence[str],
        *,
        script: bytes = b"",
        timeout_s: float | None = None,
        max_bytes: int | None = None,
        stdin: bytes | None = None,
        user: str = "",
        folder: str = "",
        variables: Mapping[str, str] | None = None,
        on_output: Callable[[bytes], None],
    ) -> JobEnd:
        job = self._connection.start(
            words,
            script=script,
            timeout_s=timeout_s,
            max_bytes=max_bytes,
            with_input=stdin is not None,
            user=user,
            folder=folder,
            variables={**self.variables, **(variables or {})},
            on_output=on_output,
        )
        try:
            async with asyncio.timeout(None if timeout_s is None else timeout_s + _LATE_S):
                if stdin is not None:
                    await self._connection.feed(job, stdin)
                return await asyncio.shield(job.end)
        except TimeoutError:
            self._connection.lose("a command that was killed did not end")
            return await job.end
        except asyncio.CancelledError:
            self._connection.abandon(job)
            raise

    # files

    async def stat(self, path: str) -> FileInfo:
        """Description of a file, folder or link."""
        return _described(await self._file("@stat", path))[0]

    async def list(self, path: str) -> list[FileInfo]:
        """What a folder holds, by name. Raises OSError (EFBIG) over 50,000 names."""
        output = await self._file("@list", path, most=_LARGEST_LIST)
        if output.count(b"\0") > _MOST_LISTED:
            raise OSError(errno.EFBIG, f"the folder has more than {_MOST_LISTED} entries", path)
        return await asyncio.to_thread(_listed, output)

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Content of a file, or part of it: nothing past its end. Raises OSError (EFBIG) over 256 MiB."""
        return await self._file("@read", path, str(offset), str(_FULL if length is None else length))

    async def write(
        self, path: str, content: bytes, *, mode: int | None = None, folders: bool = True
    ) -> None:
        """Write a file whole or not at all: others see the old content or the new one.

        It keeps owner and mode of the file that it replaces; what is there and no file is an error.
        ``folders``: make those above it. A file that is a mount of its own, such as ``/etc/hosts`` of a
        container, cannot be replaced and is written in place.
        """
        folder, name = posixpath.split(path)
        temporary = posixpath.join(folder, f".{name[:100]}.{secrets.token_hex(4)}.part")
        try:
            await self.write_part(temporary, content, folders=folders)
            await self.commit(temporary, path, size=len(content), mode=mode)
        except BaseException as exc:
            await self._quietly_remove(temporary)
            if not (isinstance(exc, OSError) and exc.errno == errno.EBUSY):
                raise
            await self.write_part(path, content)

    async def write_part(self, path: str, content: bytes, *, offset: int = 0, folders: bool = False) -> None:
        """Write a part of a file at an offset; at offset 0 the file is emptied first."""
        await self._file("@write", path, str(offset), "folders" if folders else "", stdin=content)

    async def commit(self, temporary: str, path: str, *, size: int, mode: int | None = None) -> None:
        """Give a file that was written in parts its name. Raises OSError (EMSGSIZE) for another size."""
        await self._file("@commit", temporary, path, str(size), "" if mode is None else f"{mode:o}")

    async def remove(self, path: str) -> None:
        """Remove a file or link."""
        await self._file("@remove", path)

    async def netlink(self, protocol: int, messages: bytes) -> None:
        """Send messages to its kernel, by netlink(7). Raises OSError for the first that is refused."""
        done = await self._attempt(("@netlink", str(protocol)), messages)
        if done.end is None:
            raise SandboxError("netlink: it stood still")
        done.result(again=False)

    async def relay(self, port: int, path: str, *, on_ready: Callable[[], None]) -> None:
        """Carry connections to a port of its loopback on to the socket at a path, until it ends.

        ``on_ready`` is called once it listens. Raises OSError, and SandboxError where a command killed it.
        """
        words = ("@relay", str(port), path)
        job = self._connection.start(
            words, file_operation=True, is_service=True, on_output=lambda _: on_ready()
        )
        try:
            _raise_for(await asyncio.shield(job.end), *words)
        except asyncio.CancelledError:
            self._connection.abandon(job)
            raise

    async def _quietly_remove(self, path: str) -> None:
        removing = asyncio.ensure_future(self._file("@remove", path))
        try:
            await asyncio.shield(removing)
        except (OSError, SandboxError):
            return

    async def _file(
        self,
        operation: str,
        path: str,
        *words: str,
        stdin: bytes | None = None,
        most: int = _LARGEST_READ,
    ) -> bytes:
        if not path.startswith("/") or "\0" in path:
            raise OSError(errno.EINVAL, "not an absolute path", path)
        try:
            path.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as exc:
            raise OSError(errno.EINVAL, "not a path of bytes", path) from exc
        words = (operation, path, *words)
        for attempt in range(_TRIES):
            if attempt:
                await asyncio.sleep(_PAUSE_S)
            done = await self._attempt(words, stdin, most)
            if done.is_own:
                return done.result(again=attempt > 0)
            if done.end is None:  # stopped, and so would be the next
                break
        async with self._alone:  # or others would halt this one
            for _ in range(_TRIES):
                self._connection.halt()
                done = await self._attempt(words, stdin, most)
                if done.is_own:
                    return done.result(again=True)
                await asyncio.sleep(_PAUSE_S)
        raise OSError(errno.EAGAIN, f"what runs in the sandbox leaves no room for it ({done.why})", path)

    async def _attempt(
        self,
        words: Sequence[str],
        stdin: bytes | None,
        most: int = _LARGEST_READ,
        still_s: float | None = None,
    ) -> _Attempt:
        """Do a file operation once; its process is killed where it stands still for so long."""
        kept: list[bytes] = []
        job = self._connection.start(
            words,
            with_input=stdin is not None,
            timeout_s=_FILE_LIMIT_S,
            max_bytes=most,
            file_operation=True,
            on_output=kept.append,
        )
        feeding = asyncio.ensure_future(_nothing() if stdin is None else self._connection.feed(job, stdin))
        before: tuple[int, int] | None = None
        try:
            while not job.end.done() and before != (before := (len(kept), job.credit)):
                await asyncio.wait([job.end], timeout=_STILL_S if still_s is None else still_s)
            if job.end.done():
                return _Attempt(words, job.end.result(), b"".join(kept), most)
            self._connection.abandon(job)
            return _Attempt(words, None, b"", most)
        except asyncio.CancelledError:
            self._connection.abandon(job)
            raise
        finally:
            feeding.cancel()


@dataclass(frozen=True)
class _Attempt:
    """A file operation that was done once."""

    words: Sequence[str]
    end: JobEnd | None
    """None where it stood still."""
    content: bytes
    most: int
    """Bytes of output that are not too many."""

    @property
    def is_own(self) -> bool:
        """True where it ended itself, or was killed for what the server holds against it."""
        if self.end is None:
            return False
        if self.end.reason is Reason.KILLED and self.end.error:
            return True
        return self.end.reason is Reason.EXITED and self.end.status < _LEAST_SIGNAL

    @property
    def why(self) -> str:
        """Why it has no result of its own."""
        if self.end is None:
            return "it was stopped"
        return self.end.error or "it was killed"

    def result(self, *, again: bool) -> bytes:
        """Its output. Raises OSError. ``again``: an earlier attempt may have done it before it was killed."""
        assert self.end is not None
        operation, path = self.words[:2]
        if again and self.end.status == errno.ENOENT and operation in _ONCE:
            return b""
        _raise_for(self.end, operation, path)
        if self.end.output_bytes > self.most:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        return self.content


async def _nothing() -> None:
    """Feed nothing."""


def _raise_for(end: JobEnd, operation: str, path: str, *_: str) -> None:
    """Raise OSError for the errno that an operation ended with, SandboxError where it did not end itself."""
    if end.reason is Reason.KILLED and end.error:
        raise OSError(errno.ENOSPC, end.error, path)
    if end.reason is not Reason.EXITED or end.status >= _LEAST_SIGNAL:
        raise SandboxError(f"{operation[1:]} {path}: {end.error or end.reason.name.lower()}")
    if end.status:
        raise OSError(end.status, os.strerror(end.status), path)


def _of_bash(command: str) -> tuple[Sequence[str], bytes]:
    """A command of bash; a long one is sourced from descriptor 3."""
    if "\0" in command:
        raise ValueError("a command cannot hold a NUL")
    raw = command.encode("utf-8", "surrogateescape")
    if len(raw) <= _LONGEST_ARGUMENT:
        return ("/bin/bash", "-c", command), b""
    return ("/bin/bash", "-c", ". /proc/self/fd/3"), b"exec 3<&-; " + raw


def _listed(output: bytes) -> list[FileInfo]:
    return sorted(_described(output), key=lambda each: each.name)


def _described(output: bytes) -> list[FileInfo]:
    found = []
    for line in output.split(b"\0")[:-1]:
        kind, size, mode, changed_at, user, group, name = line.split(b" ", 6)
        found.append(
            FileInfo(
                name=name.decode("utf-8", "surrogateescape"),
                kind=_KINDS.get(kind.decode(), "other"),
                size=int(size),
                mode=int(mode, 8),
                changed_at=int(changed_at),
                user=int(user),
                group=int(group),
            )
        )
    return found
