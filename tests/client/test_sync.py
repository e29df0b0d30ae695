"""The synchronous client: no event loop of the caller's is needed, and none is held up."""

from __future__ import annotations

import asyncio
import gc
import inspect
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from multiprocessing.connection import Connection
from typing import Any
from unittest.mock import patch

import pytest
from orsay_client import (
    AsyncClient,
    AsyncEnvironment,
    AsyncSession,
    AsyncTasks,
    Client,
    ClientClosed,
    Environment,
    Session,
    Tasks,
)
from orsay_client.loop_thread import LoopThread

from ..support.scripted_server import Reply, Request, ScriptedServer, ors
from ..support.waiting import until_true

pytestmark = pytest.mark.process


def client_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "orsay-client"]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    async def call(request: Request, reply: Reply) -> None:
        if request.json()["name"] == "slow":
            await asyncio.sleep(60)
        await ors()(request, reply)

    thread = LoopThread("scripted-server")
    scripted = ScriptedServer(ors(call=call))
    thread.run(scripted.__aenter__())
    yield scripted
    thread.run(scripted.__aexit__(None, None, None))
    thread.stop()


@pytest.mark.parametrize(
    ("blocking", "original"),
    [(Client, AsyncClient), (Environment, AsyncEnvironment), (Tasks, AsyncTasks), (Session, AsyncSession)],
)
def test_the_two_clients_have_the_same_methods(blocking: type, original: type) -> None:
    renamed = {"aclose": "close"}
    for name, member in vars(original).items():
        if name.startswith("_") or name in ("ping", "touched_at", "pages"):
            continue
        twin = inspect.getattr_static(blocking, renamed.get(name, name), None)
        assert twin is not None, f"{blocking.__name__} has no {name}"
        if inspect.isfunction(member):
            ours, theirs = inspect.signature(twin).parameters, inspect.signature(member).parameters
            assert list(ours) == list(theirs), f"{blocking.__name__}.{name}"


def test_the_constructors_take_the_same() -> None:
    theirs = set(inspect.signature(AsyncClient).parameters) - {"transport"}
    assert set(inspect.signature(Client).parameters) == theirs


def test_pings_go_on_while_the_caller_computes(server: ScriptedServer) -> None:
    with Client(server.url, keepalive_s=0.02) as client, client.environment().session(task_spec={}):
        deadline = time.monotonic() + 20
        while len(server.sent("/ping")) < 3 and time.monotonic() < deadline:
            sum(range(1000))
        assert len(server.sent("/ping")) >= 3


def test_many_threads_share_one_client(server: ScriptedServer) -> None:
    with Client(server.url) as client:

        def episode(_: int) -> bool:
            with client.environment().session(task_spec={}) as session:
                return bool(session.call("x").blocks)

        with ThreadPoolExecutor(16) as pool:
            assert all(pool.map(episode, range(100)))
        assert len(client_threads()) == 1


def test_closing_ends_sessions_and_the_thread(server: ScriptedServer) -> None:
    client = Client(server.url)
    session = client.environment().session(task_spec={})
    session.open()
    assert client_threads()
    client.close()
    client.close()
    assert not client_threads()
    assert len(server.sent("/delete")) == 1
    with pytest.raises(ClientClosed):
        session.call("x")


def test_a_forgotten_client_ends_when_nobody_holds_it(server: ScriptedServer) -> None:
    session = Client(server.url).environment().session(task_spec={})
    session.open()
    session.call("x")
    gc.collect()
    assert client_threads()
    del session
    until_true(lambda: not client_threads())
    assert len(server.sent("/delete")) == 1


def test_a_client_that_its_own_thread_forgets_ends_too(server: ScriptedServer) -> None:
    """Garbage is collected on any thread, the client's own among them."""
    session = Client(server.url).environment().session(task_spec={})
    session.open()
    held, thread = [session], session._thread
    del session

    async def forget() -> None:
        held.clear()
        gc.collect()

    thread.start(forget())
    until_true(lambda: not client_threads())
    assert len(server.sent("/delete")) == 1
    with pytest.raises(ClientClosed):
        thread.run(asyncio.sleep(0))


def test_clients_that_forget_one_another_end_too(server: ScriptedServer) -> None:
    """A finalizer waits for no other loop, whose own may wait for this one."""
    here, there = [Client(server.url).environment().session(task_spec={}) for _ in range(2)]
    here.open()
    there.open()
    threads, held = (here._thread, there._thread), ([there], [here])
    del here, there
    both = threading.Barrier(2)

    async def forget(other: list[Session]) -> None:
        both.wait(20)
        other.clear()

    for thread, other in zip(threads, held, strict=True):
        thread.start(forget(other))
    until_true(lambda: not client_threads())
    assert len(server.sent("/delete")) == 2


_ENDS = """
import os, sys
from orsay_client import Client
def opened():
    session = Client(sys.argv[1]).environment().session(task_spec={})
    session.open()
    return session
in_use, forgotten = opened(), [opened()]
thread = forgotten[0]._thread
async def forget():
    forgotten.clear()
if os.fork() == 0:
    forgotten.clear()
    sys.exit()
os.wait()
thread.run(forget())
"""


def test_sessions_end_with_the_process_that_opened_them(server: ScriptedServer) -> None:
    """Those in use and those forgotten at the last moment; a fork ends none, and says nothing."""
    ended = subprocess.run(
        [sys.executable, "-c", _ENDS, server.url], capture_output=True, text=True, timeout=90
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert len(server.sent("/create")) == len(server.sent("/delete")) == 2


def _forget_one(url: str) -> None:
    """In a child of multiprocessing, which leaves by ``os._exit``."""
    Client(url).environment().session(task_spec={}).open()


def test_sessions_that_a_child_forgets_end_with_it(server: ScriptedServer) -> None:
    child = multiprocessing.get_context("fork").Process(target=_forget_one, args=(server.url,))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert len(server.sent("/create")) == len(server.sent("/delete")) == 1


_FORKS = """
import asyncio, os, sys, threading
from orsay_client.loop_thread import LoopThread
go_on = threading.Event()
ending = LoopThread("ending")
ending.end_with(asyncio.to_thread(go_on.wait), ending.stop)
if os.fork() == 0:
    own = LoopThread("own")
    own.end_with(asyncio.sleep(0), own.stop)
    sys.exit()
os.wait()
go_on.set()
"""


def test_a_fork_does_not_wait_for_what_its_parent_ends() -> None:
    ended = subprocess.run([sys.executable, "-c", _FORKS], capture_output=True, text=True, timeout=50)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_work_beside_the_end_of_its_loop_is_refused_or_done() -> None:
    """Never queued behind the end, where nobody would run it."""
    thread = LoopThread("ending")
    stopping = threading.Thread(target=thread.stop)
    queue = asyncio.run_coroutine_threadsafe

    def late(work: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> Future[None]:
        stopping.start()
        stopping.join(0.1)
        return queue(work, loop)

    with patch("asyncio.run_coroutine_threadsafe", late):
        asked = thread.start(asyncio.sleep(0))
    assert wait([asked], 20).done
    stopping.join(20)


def test_a_blocking_call_on_the_clients_own_thread_is_refused(server: ScriptedServer) -> None:
    with Client(server.url) as client:
        for blocking in (client.environments, client.close):

            async def call(blocking: Callable[[], object] = blocking) -> None:
                blocking()

            with pytest.raises(RuntimeError, match="use AsyncClient there"):
                client._thread.run(call())


def test_an_interrupt_cancels_the_call_and_the_session_goes_on(server: ScriptedServer) -> None:
    with Client(server.url) as client, client.environment().session(task_spec={}) as session:

        def interrupt() -> None:
            deadline = time.monotonic() + 20
            while not server.sent("/call") and time.monotonic() < deadline:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            session.call("slow")
        thread.join()
        session.call("x")


def test_a_close_from_another_thread_frees_the_waiting_one(server: ScriptedServer) -> None:
    client = Client(server.url)
    session = client.environment().session(task_spec={})
    session.open()

    def close() -> None:
        deadline = time.monotonic() + 20
        while not server.sent("/call") and time.monotonic() < deadline:
            time.sleep(0.01)
        client.close()

    thread = threading.Thread(target=close)
    thread.start()
    with pytest.raises(Exception, match=r"closed|broke"):
        session.call("slow")
    thread.join()


def _call_in_child(client: Client, pipe: Connection) -> None:
    try:
        client.environments()
    except RuntimeError as exc:
        pipe.send(str(exc))
    os._exit(0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking with threads is what this is about
def test_a_client_taken_through_a_fork_says_so_instead_of_hanging(server: ScriptedServer) -> None:
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    with Client(server.url) as client:
        child = fork.Process(target=_call_in_child, args=(client, theirs))
        child.start()
        assert ours.poll(20)
        assert "before the process forked" in ours.recv()
        child.join(20)
    ours.close()
    theirs.close()
