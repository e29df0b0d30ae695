"""Sandboxes for code that is not async: one event loop, on a thread of its own, for all of a process."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from .model import CommandResult, FileInfo
from .processes import BackgroundProcess
from .sandbox import Content, Sandbox, Snapshot

__all__ = ["BlockingProcess", "BlockingSandbox", "BlockingSnapshot"]

T = TypeVar("T")


_LOOK_S = 0.2
_making = threading.Lock()


def _loop(pid: int) -> asyncio.AbstractEventLoop:
    """The event loop of the process ``pid``; a forked one has its own."""
    with _making:
        return _made_loop(pid)


@functools.cache
def _made_loop(pid: int) -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="orsay-sandboxes", daemon=True).start()
    return loop


def _wait(work: Coroutine[Any, Any, T]) -> T:
    """Result of ``work``, which is cancelled where this thread is interrupted."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        work.close()
        raise RuntimeError("this would block the event loop: use the async form, with await")
    loop = _loop(os.getpid())
    context = contextvars.copy_context()

    async def run() -> T:
        return await asyncio.create_task(work, context=context)

    done = threading.Lock()
    done.acquire()
    started = asyncio.run_coroutine_threadsafe(run(), loop)
    started.add_done_callback(lambda _: done.release())
    try:
        while not done.acquire(timeout=_LOOK_S):
            pass  # an interrupt, as of a call past its limit, reaches running Python only
        return started.result()
    except BaseException:
        started.cancel()
        raise


class BlockingSandbox:
    """``Sandbox`` with methods that block; see there."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    @classmethod
    def open(cls, make: Callable[[], Coroutine[Any, Any, Sandbox]]) -> BlockingSandbox:
        """Make one."""
        return cls(_wait(make()))

    @property
    def id(self) -> str:
        return self._sandbox.id

    def __enter__(self) -> BlockingSandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        _wait(self._sandbox.close())

    def reset(self) -> None:
        _wait(self._sandbox.reset())

    def snapshot(self) -> BlockingSnapshot:
        return BlockingSnapshot(_wait(self._sandbox.snapshot()))

    def fork(self) -> BlockingSandbox:
        return BlockingSandbox(_wait(self._sandbox.fork()))

    def run(self, command: str | Sequence[str], **options: Any) -> CommandResult:
        return _wait(self._sandbox.run(command, **options))

    def check(self, command: str | Sequence[str], **options: Any) -> str:
        return _wait(self._sandbox.check(command, **options))

    def start(self, command: str, **options: Any) -> BlockingProcess:
        return BlockingProcess(_wait(self._sandbox.start(command, **options)))

    def read(self, path: str) -> bytes:
        return _wait(self._sandbox.read(path))

    def read_text(self, path: str) -> str:
        return _wait(self._sandbox.read_text(path))

    def write(self, path: str, content: Content, *, mode: int | None = None) -> None:
        _wait(self._sandbox.write(path, content, mode=mode))

    def upload(self, local: str | os.PathLike[str], path: str) -> None:
        _wait(self._sandbox.upload(local, path))

    def download(self, path: str, local: str | os.PathLike[str]) -> None:
        _wait(self._sandbox.download(path, local))

    def stat(self, path: str) -> FileInfo:
        return _wait(self._sandbox.stat(path))

    def list(self, path: str) -> list[FileInfo]:
        return _wait(self._sandbox.list(path))

    def exists(self, path: str) -> bool:
        return _wait(self._sandbox.exists(path))

    def remove(self, path: str) -> None:
        _wait(self._sandbox.remove(path))

    def grade(
        self,
        command: str | Sequence[str],
        *,
        artifacts: Sequence[str] = (),
        files: Mapping[str, Content] | None = None,
        **options: Any,
    ) -> CommandResult:
        return _wait(self._sandbox.grade(command, artifacts=artifacts, files=files, **options))


class BlockingSnapshot:
    """``Snapshot`` with methods that block; see there."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.id = snapshot.id

    def open(self) -> BlockingSandbox:
        return BlockingSandbox(_wait(self._snapshot.open()))

    def drop(self) -> None:
        _wait(self._snapshot.drop())


class BlockingProcess:
    """``BackgroundProcess`` with methods that block; see there."""

    def __init__(self, process: BackgroundProcess) -> None:
        self._process = process
        self.pid = process.pid
        self.log_path = process.log_path

    def logs(self) -> str:
        return _wait(self._process.logs())

    def is_running(self) -> bool:
        return _wait(self._process.is_running())

    def wait_for_port(self, port: int, *, timeout_s: float = 30) -> None:
        _wait(self._process.wait_for_port(port, timeout_s=timeout_s))

    def stop(self) -> None:
        _wait(self._process.stop())
