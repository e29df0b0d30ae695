"""A sandbox of a session: commands, files, and grading where the policy never was."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import SandboxError
from .artifacts import collected, in_the_way, write_all
from .model import CommandResult, Connect, Driver, FileInfo, SandboxOptions
from .processes import BackgroundProcess

__all__ = ["Content", "Sandbox", "Snapshot", "made"]

_NOT_STARTED = 126
Content = str | bytes


class Sandbox:
    """A machine of a session's own, made by ``sandbox(...)``.

    Methods raise SandboxGone once it has ended and SandboxError where its machinery fails: neither is the
    model's doing, and as an error of a tool both end the session as ``worker_lost``. File methods raise
    OSError. Paths are absolute; a link as the last part of one is an error (ELOOP), except for ``stat`` and
    ``remove``. File methods need no program of the image, so nothing that runs inside can falsify them.
    """

    def __init__(
        self,
        connect: Connect,
        options: SandboxOptions,
        files: Mapping[str, Content],
        driver: Driver,
        note: Callable[[Sandbox], None] = lambda sandbox: None,
    ) -> None:
        self.options = options
        self._connect = connect
        self._files = files
        self._driver = driver
        self._note = note

    @property
    def id(self) -> str:
        """Its id, which containers and log lines bear."""
        return self._driver.id

    async def close(self) -> None:
        """End it, with all that is in it; safe to call twice."""
        await self._driver.close()

    async def __aenter__(self) -> Sandbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def reset(self) -> None:
        """Begin anew with the image and the files it was made with, under another id."""
        fresh = await made(self._connect, self.options, self._files)
        old, self._driver = self._driver, fresh
        await old.close()

    async def snapshot(self) -> Snapshot:
        """Keep its files as they are now; its processes are not kept."""
        return Snapshot(self, await self._driver.snapshot())

    async def fork(self) -> Sandbox:
        """Another sandbox like it, with the files that it has now."""
        snapshot = await self.snapshot()
        try:
            return await snapshot.open()
        finally:
            await asyncio.shield(snapshot.drop())

    # commands

    async def run(
        self,
        command: str | Sequence[str],
        *,
        timeout_s: float | None = 300,
        max_bytes: int | None = 1_000_000,
        stdin: Content | None = None,
        user: str = "",
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        on_output: Callable[[bytes], None] | None = None,
    ) -> CommandResult:
        """Run a command of bash, of any length, or a program with its arguments.

        Each is a process of its own, as ``user`` (root), in ``cwd`` (the image's folder). At ``timeout_s``
        (seconds; None: no limit) all that it has started is killed, and the code is 124. What it leaves in
        the background lives on. Output beyond ``max_bytes`` is dropped. ``on_output`` gets output as it
        comes. Raises ValueError for what cannot be a command.
        """
        result = await self._driver.run(
            command,
            timeout_s=timeout_s,
            max_bytes=max_bytes,
            stdin=_raw(stdin),
            user=user,
            folder=cwd,
            variables=env,
            on_output=on_output or (lambda data: None),
        )
        return CommandResult(
            result.output,
            result.return_code,
            result.timed_out,
            result.truncated,
            result.duration_s,
            result.limit,
        )

    async def check(self, command: str | Sequence[str], **options: Any) -> str:
        """Output of a command that must succeed; parameters of ``run``. Raises SandboxError if it fails."""
        result = await self.run(command, **options)
        if not result.ok:
            said = result.output[-2000:].strip()
            raise SandboxError(f"a command of the environment ended with {result.return_code}: {said}")
        return result.output

    async def start(
        self,
        command: str,
        *,
        user: str = "",
        cwd: str = "",
        env: Mapping[str, str] | None = None,
    ) -> BackgroundProcess:
        """Start a command of bash in the background; its output is kept in a file of the sandbox."""
        return await BackgroundProcess.start(self._driver, command, user=user, cwd=cwd, env=env)

    # files

    async def read(self, path: str) -> bytes:
        """Content of a file of at most 256 MiB."""
        return await self._driver.read(path)

    async def read_text(self, path: str) -> str:
        """Content of a file as UTF-8, with U+FFFD for what is none."""
        return (await self.read(path)).decode("utf-8", "replace")

    async def write(self, path: str, content: Content, *, mode: int | None = None) -> None:
        """Write a file whole or not at all, and the folders above it."""
        await self._driver.write(path, _raw(content) or b"", mode=mode)

    async def upload(self, local: str | os.PathLike[str], path: str) -> None:
        """Copy a file of this machine, with its mode, to ``path``."""
        source = Path(local)
        content, mode = await asyncio.to_thread(lambda: (source.read_bytes(), source.stat().st_mode & 0o777))
        await self._driver.write(path, content, mode=mode)

    async def download(self, path: str, local: str | os.PathLike[str]) -> None:
        """Copy a file to this machine, whole or not at all."""
        content = await self._driver.read(path)

        def keep() -> None:
            target = Path(local)
            temporary = target.with_name(f".{target.name}.part")
            temporary.write_bytes(content)
            temporary.replace(target)

        await asyncio.to_thread(keep)

    async def stat(self, path: str) -> FileInfo:
        """Description of a file, folder or link."""
        return await self._driver.stat(path)

    async def list(self, path: str) -> list[FileInfo]:
        """What a folder holds, by name."""
        return await self._driver.list(path)

    async def exists(self, path: str) -> bool:
        """True where there is a file, a folder or a link."""
        try:
            await self._driver.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def remove(self, path: str) -> None:
        """Remove a file or link."""
        await self._driver.remove(path)

    # copies

    async def artifacts(self, paths: Sequence[str]) -> dict[str, tuple[bytes, int]]:
        """Content and mode of plain files by path: those named, and those below named folders.

        Links and special files are left out, and so is what is missing or cannot be read. The first 20,000
        files and folders are looked at, and files are taken while they fit into 256 MiB together.
        """
        return (await collected(self._driver, paths)).files

    async def grade(
        self,
        command: str | Sequence[str],
        *,
        artifacts: Sequence[str] = (),
        files: Mapping[str, Content] | None = None,
        isolated: bool = True,
        image: str | None = None,
        timeout_s: float | None = 300,
        max_bytes: int | None = 1_000_000,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run a grader in a sandbox of its own, which ends with it, and which the policy never touched.

        It is made like this one (or from ``image``), without a network, and holds copies of the named
        ``artifacts`` and the grader's ``files`` only. Whatever the policy made of its artifacts, the command
        runs: those that are in the way of ``files``, too large (see ``artifacts``) or not to be read or
        written are left out, and ``left_out`` of the result has their paths. ``isolated=False`` runs it in
        this sandbox instead, where what the policy changed can falsify the result.
        """
        extra = dict(files or {})
        if not isolated:
            for path, content in extra.items():
                try:
                    await self.write(path, content)
                except OSError as exc:  # something is in its way
                    said = f"{path}: {exc.strerror}\n".encode("utf-8", "surrogateescape")
                    return CommandResult(said, _NOT_STARTED, False, False, 0.0)
            return await self.run(command, timeout_s=timeout_s, max_bytes=max_bytes, env=env)
        disk_bytes = self.options.disk_bytes
        copies = await collected(self._driver, artifacts, None if disk_bytes is None else disk_bytes // 2)
        copies.leave_out(in_the_way(copies.files, extra))
        options = replace(
            self.options,
            image=image or self.options.image,
            network="none",
            snapshot="",
            beside=self.id,
        )
        driver = await made(self._connect, options, {})
        grader = Sandbox(self._connect, options, {}, driver)
        async with grader:
            copies.leave_out(await write_all(driver, copies.files))
            for path, content in extra.items():
                await grader.write(path, content)
            result = await grader.run(command, timeout_s=timeout_s, max_bytes=max_bytes, env=env)
        return replace(result, left_out=tuple(copies.left_out))


class Snapshot:
    """The files of a sandbox at one moment; ends with its session at the latest."""

    def __init__(self, sandbox: Sandbox, snapshot_id: str) -> None:
        self.id = snapshot_id
        self._sandbox = sandbox

    async def open(self) -> Sandbox:
        """A new sandbox that begins with them, otherwise made like the one they were kept of."""
        of = self._sandbox
        driver = await of._connect.create(replace(of.options, snapshot=self.id))
        sandbox = Sandbox(of._connect, of.options, of._files, driver, of._note)
        of._note(sandbox)
        return sandbox

    async def drop(self) -> None:
        """Keep them no longer; sandboxes that began with them live on."""
        await self._sandbox._connect.drop(self.id)


async def made(connect: Connect, options: SandboxOptions, files: Mapping[str, Content]) -> Driver:
    """Make a sandbox with those files."""
    driver = await connect.create(options)
    try:
        for path, content in files.items():
            await driver.write(path, _raw(content) or b"")
    except BaseException:
        await asyncio.shield(driver.close())
        raise
    return driver


def _raw(content: Content | None) -> bytes | None:
    return content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
