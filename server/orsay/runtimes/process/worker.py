"""A worker process: loads the environments, plays episodes for the server at the other end of a socket.

Started as ``python -m orsay.runtimes.process.worker FD``. It ends on request, when the socket closes, or, if
its event loop is blocked, soon after the death of its parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import os
import signal
import socket
import sys
import threading
import time
import traceback
from functools import partial
from typing import Any, cast

from pydantic_core import to_json

from ...errors import Faulted, LoadError, Refused
from ...tracing import NOWHERE, mark_last_resort, mark_log_records, within
from ..base import OpenSession, Operation, TaskQuery
from ..execution.episode import Episode, Limits
from ..execution.event_loop import new_event_loop
from ..execution.host import EnvironmentHost
from ..execution.output_guard import Guard, guard_output
from ..execution.runs import Run
from ..loader import load
from ..outcome import Outcome
from .folders import show_folders
from .frames import (
    FrameReader,
    Kind,
    Outbox,
    WorkerConfig,
    error_frame,
    pack_outcome,
)

__all__ = ["main"]

_OPERATIONS: dict[int, Operation] = {
    Kind.CALL: "call",
    Kind.PROMPT: "prompt",
    Kind.MESSAGES: "messages",
    Kind.TASK_TOOLS: "task_tools",
    Kind.SCORE: "score_group",
}
_ORPHAN_LIMIT_S = 40.0
_BLOCKED_S = 2.0


class Worker(asyncio.Protocol):
    """The worker's end of the socket."""

    def __init__(
        self, host: EnvironmentHost, ended: asyncio.Event, guard: Guard, *, without_folders: str = ""
    ) -> None:
        self._host = host
        self._without_folders = without_folders
        self._guard = guard
        self._ended = ended
        self._reader = FrameReader()
        self._episodes: dict[int, Episode] = {}
        self._runs: dict[int, Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._outbox: Outbox

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._outbox = Outbox(cast("asyncio.WriteTransport", transport).write)
        hello = {"environments": self._host.environments, "without_folders": self._without_folders}
        self._outbox.send(Kind.HELLO, 0, to_json(hello))

    def connection_lost(self, exc: Exception | None) -> None:
        self._outbox.close()
        self._ended.set()

    def data_received(self, data: bytes) -> None:
        for kind, number, session, payload in self._reader.feed(data):
            operation = _OPERATIONS.get(kind)
            if operation is None:
                self._control(kind, number, session, payload)
                continue
            episode = self._episodes.get(session)
            if episode is None:
                gone = Faulted("session_gone", "the session is not in this worker any more")
                self._answer(number, None, gone)
                continue
            slow = partial(self._outbox.send, Kind.SLOW, number)
            run = episode.start(operation, payload, partial(self._answer, number), slow)
            if run is not None:
                self._runs[number] = run

    def _answer(self, number: int, value: Any, error: Faulted | Refused | None) -> None:
        self._runs.pop(number, None)
        if error is not None:
            self._outbox.send(Kind.ERROR, number, error_frame(error))
        elif isinstance(value, Outcome):
            self._outbox.send(Kind.OUTCOME, number, pack_outcome(value))
        else:
            self._outbox.send(Kind.DATA, number, value)

    def _control(self, kind: int, number: int, session: int, payload: bytes) -> None:
        match kind:
            case Kind.STOP:
                run = self._runs.get(number)
                if run is not None:
                    run.stop(Faulted("cancelled", payload.decode()))
            case Kind.OPEN:
                self._open(number, session, payload)
            case Kind.CLOSE:
                self._close(number, session)
            case Kind.TASKS:
                self._spawn(self._list_tasks(number, payload))
            case Kind.HEARTBEAT:
                context = self._host.context
                state = {
                    "rss_bytes": _rss_bytes(),
                    "threads": context.threads.count,
                    "stuck": context.runs.stuck,
                }
                self._outbox.send(Kind.STATE, number, to_json(state))
            case Kind.EXIT:
                self._ended.set()

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _open(self, number: int, session: int, body: bytes) -> None:
        request = OpenSession.model_validate_json(body)
        self._guard.remember(request.secrets)

        def opened(episode: Any, error: Faulted | Refused | None) -> None:
            if error is not None:
                self._answer(number, None, error)
                return
            self._runs.pop(number, None)
            self._episodes[session] = episode
            self._outbox.send(Kind.DATA, number, b"starting" if episode.needs_setup else b"ready")
            if episode.needs_setup:
                episode.start_setup(set_up)

        def set_up(_: Any, error: Faulted | Refused | None) -> None:
            if error is None:
                self._outbox.send(Kind.SETUP_DONE, 0, session=session)
            else:
                self._outbox.send(Kind.SETUP_ERROR, 0, error_frame(error), session=session)

        run = self._host.start_open(request, opened)
        if run is not None:
            self._runs[number] = run

    def _close(self, number: int, session: int) -> None:
        episode = self._episodes.pop(session, None)
        with within(NOWHERE if episode is None else episode.origin):
            if episode is None or episode.close_at_once():
                self._outbox.send(Kind.DATA, number, b"")
            else:
                self._spawn(self._tear_down(number, episode))

    async def _tear_down(self, number: int, episode: Episode) -> None:
        try:
            await episode.close()
        except (Faulted, Refused) as error:
            self._answer(number, None, error)
        else:
            self._outbox.send(Kind.DATA, number, b"")

    async def _list_tasks(self, number: int, payload: bytes) -> None:
        try:
            data = await self._host.tasks(TaskQuery.model_validate_json(payload))
        except (Faulted, Refused) as error:
            self._answer(number, None, error)
        else:
            self._outbox.send(Kind.DATA, number, data)

    async def close(self) -> None:
        """Tear down the remaining episodes, after EXIT or the loss of the server."""
        episodes, self._episodes = list(self._episodes.values()), {}
        if episodes:
            await asyncio.gather(*(episode.close() for episode in episodes), return_exceptions=True)
        self._host.close()


async def _serve(
    sock: socket.socket, classes: list[type], config: WorkerConfig, guard: Guard, without_folders: str
) -> None:
    limits = Limits(
        call_time_limit_s=config.call_time_limit_s,
        setup_time_limit_s=config.setup_time_limit_s,
        teardown_time_limit_s=config.teardown_time_limit_s,
        max_result_bytes=config.max_result_bytes,
        slow_after_s=config.slow_after_s,
    )
    host = EnvironmentHost(classes, limits, threads=config.threads)
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    sock.setblocking(False)
    ended = asyncio.Event()
    worker = Worker(host, ended, guard, without_folders=without_folders)
    await asyncio.get_running_loop().create_unix_connection(lambda: worker, sock=sock)
    await ended.wait()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(config.teardown_time_limit_s + 5):
            await worker.close()


def _read_config(sock: socket.socket) -> WorkerConfig:
    reader = FrameReader()
    while data := sock.recv(65536):
        for _, _, _, payload in reader.feed(data):
            return WorkerConfig.model_validate_json(payload)
    sys.exit(0)  # the server is gone already


def _show_folders(config: WorkerConfig) -> str:
    """Show the folders; the reason if that is impossible and they are not required. Raises LoadError."""
    try:
        show_folders(config.folders)
    except OSError as exc:
        places = ", ".join(f"{folder} at {path}" for path, folder in config.folders.items())
        reason = (
            f"its code does not see {places}: {exc}. Make that path a link to the folder, run the server with"
            " the right to mount (root, or user namespaces), or put the environment into a container"
        )
        if config.folders_required:
            raise LoadError(reason) from None
        return reason
    return ""


def _load(config: WorkerConfig) -> list[type]:
    sys.path[:] = config.sys_path
    sys.argv[:] = config.argv
    return [cls for target in config.targets for cls in load(target)]


def _report_load_error(sock: socket.socket, text: str) -> None:
    frames: list[bytes] = []
    loop = asyncio.new_event_loop()

    async def send() -> None:
        Outbox(frames.append).send(Kind.ERROR, 0, to_json({"load": text}))
        await asyncio.sleep(0)

    loop.run_until_complete(send())
    loop.close()
    sock.setblocking(True)
    sock.sendall(b"".join(frames))


def _watch_parent(parent: int, loops: list[asyncio.AbstractEventLoop]) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    if loops:
        responded = threading.Event()
        loops[0].call_soon_threadsafe(responded.set)
        if not responded.wait(_BLOCKED_S):
            os._exit(1)  # author code blocks the loop: no teardown can run
    time.sleep(_ORPHAN_LIMIT_S)
    os._exit(1)


def _rss_bytes() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def main() -> None:
    """Run one worker on the socket whose descriptor is the only argument."""
    sock = socket.socket(fileno=int(sys.argv[1]))
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)  # the server's request for the stacks of a blocked worker
    loops: list[asyncio.AbstractEventLoop] = []
    parent = os.getppid()
    config = _read_config(sock)
    try:
        without_folders = _show_folders(config)
    except LoadError as exc:
        _report_load_error(sock, str(exc))
        os._exit(1)
    threading.Thread(target=_watch_parent, args=(parent, loops), daemon=True).start()
    mark_log_records()
    mark_last_resort()
    guard = guard_output()
    try:
        classes = _load(config)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            loops.append(runner.get_loop())
            runner.run(_serve(sock, classes, config, guard, without_folders))
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)  # author threads that never return must not keep the process alive
    except LoadError as exc:
        _report_load_error(sock, str(exc))
    except BaseException:
        _report_load_error(sock, traceback.format_exc())
    os._exit(1)


if __name__ == "__main__":
    main()
