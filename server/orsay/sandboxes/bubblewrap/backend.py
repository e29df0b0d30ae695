"""The back end: images, limits that are promised or refused, and the talk with the keeper."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import math
import os
import platform
import shutil
import socket
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any, BinaryIO

from ...errors import ConfigError, ImageMissing, SandboxError, SandboxRefused
from ...logs import get_logger
from ..agent import agent_program
from ..agent.connection import AgentConnection
from ..base import SandboxSpec
from ..egress.gate import through_gate
from ..sandbox import Sandbox
from .keeper import Setup
from .roots import HOST

__all__ = ["HOST", "BubblewrapSandboxes", "require_bubblewrap"]

_START_LIMIT_S = 60.0
_READY_LIMIT_S = 60.0
_END_LIMIT_S = 30.0
_ENDED = "it ended as it began"
_PACKET = 1 << 16
_PACKAGE = Path(__file__).parent
_KEEPER = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from bubblewrap.keeper import main; main(sys.argv[1:])"
)
_CONTROLLERS = {"memory_bytes": "memory", "cpus": "cpu", "processes": "pids"}

_log = get_logger(__name__)


def require_bubblewrap() -> str:
    """The program. Raises ConfigError where there is none, or it cannot work on this machine."""
    if sys.platform != "linux":
        raise ConfigError("sandboxes by bubblewrap need Linux")
    program = shutil.which("bwrap")
    if program is None:
        raise ConfigError("sandboxes by bubblewrap need the program bwrap: apt install bubblewrap")
    return program


class BubblewrapSandboxes:
    """Back end over a keeper, a process that it starts and that ends with it, however that happens.

    A sandbox that hears nothing of the server for ``lease_s`` ends.
    """

    def __init__(self, program: str, lease_s: float, state: Path) -> None:
        self._program = program
        self._lease_s = lease_s
        self._state = state
        self._keeper: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._launching = asyncio.Lock()
        self._facts: dict[str, Any] = {}
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._starting: dict[str, asyncio.Future[None]] = {}
        self._ending: dict[str, asyncio.Future[None]] = {}
        self._open: set[Sandbox] = set()
        self._closed = False

    @classmethod
    async def open(cls, *, lease_s: float = 60, state: Path | None = None) -> BubblewrapSandboxes:
        """A back end that has made a sandbox, to know that it can.

        ``state`` is where changes of sandboxes are kept. Raises ConfigError where bubblewrap is missing or
        not allowed here.
        """
        agent_program(platform.machine())  # raises
        backend = cls(require_bubblewrap(), lease_s, state or _state_folder())
        try:
            attempt = SandboxSpec(image=HOST, processes=None)
            await (await backend.create(attempt)).close()
        except SandboxError as exc:
            await backend.close()
            raise ConfigError(
                f"bubblewrap cannot make sandboxes here ({exc}): it needs user namespaces, or root with"
                " CAP_SYS_ADMIN, and overlayfs"
            ) from exc
        except BaseException:
            await backend.close()
            raise
        return backend

    async def _launched(self) -> None:
        """Start a keeper if none lives. Raises SandboxError."""
        async with self._launching:
            if self._closed:
                raise SandboxError("sandboxes are closed")
            if self._control is not None:
                return
            await self._buried()
            await self._launch()
            if self._facts["swept"]:
                _log.warning("sandboxes_of_a_killed_server_removed", servers=self._facts["swept"])

    async def _launch(self) -> None:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        setup = Setup(
            control=its.fileno(),
            state=str(self._state),
            agent=str(_PACKAGE.parent / "agent" / _machine()),
            machine=_machine(),
            bubblewrap=self._program,
            slirp=shutil.which("slirp4netns"),
            lease_s=math.ceil(self._lease_s),
        )
        with its:
            try:
                self._keeper = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-I", "-S", "-c", _KEEPER),
                    *(str(_PACKAGE.parent), json.dumps(dataclasses.asdict(setup))),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    pass_fds=[its.fileno()],
                    env={"PATH": os.defpath},
                    cwd="/",
                    start_new_session=True,
                )
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        self._control = ours
        self._ready = loop.create_future()
        self._ready.add_done_callback(_noticed)
        loop.add_reader(ours.fileno(), self._hear, ours)
        try:
            async with asyncio.timeout(_START_LIMIT_S):
                await asyncio.shield(self._ready)
        except TimeoutError:
            self._lose()
            raise SandboxError(f"its keeper did not start in {_START_LIMIT_S:g} s") from None
        except BaseException:
            self._lose()
            raise
        self._facts["network"] = setup.slirp is not None

    async def _buried(self) -> None:
        """Wait for the end of the keeper, once it has lost its socket."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        try:
            async with asyncio.timeout(_END_LIMIT_S):
                await keeper.wait()
        except TimeoutError:
            _log.warning("keeper_killed")
            keeper.kill()
            await keeper.wait()

    # the keeper

    def _hear(self, control: socket.socket) -> None:
        while True:
            try:
                packet = control.recv(_PACKET)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                packet = b""
            if not packet:
                self._lose()
                return
            message = json.loads(packet)
            match message["event"]:
                case "ready":
                    self._facts = message
                    _settle(self._ready)
                case "failed":
                    _settle(self._ready, message["reason"])
                case "started":
                    _settle(self._starting.get(message["id"]))
                case "ended":
                    _settle(self._starting.get(message["id"]), message["reason"] or _ENDED)
                    _settle(self._ending.get(message["id"]))

    def _lose(self) -> None:
        """The keeper has ended, and with it all sandboxes."""
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()
            self._control = None
        _settle(self._ready, "the process that makes sandboxes has ended")
        for each in self._starting.values():
            _settle(each, "the process that makes sandboxes has ended")
        for each in self._ending.values():
            _settle(each)

    async def _tell(self, order: dict[str, str], descriptors: list[int]) -> None:
        packet = json.dumps(order).encode()
        while True:
            if self._control is None:
                raise SandboxError("the process that makes sandboxes has ended")
            try:
                socket.send_fds(self._control, [packet], descriptors)
                return
            except BlockingIOError:
                await asyncio.sleep(0.01)
            except OSError as exc:
                raise SandboxError(f"the process that makes sandboxes has ended: {exc}") from exc

    # the contract

    async def create(self, spec: SandboxSpec, *, sandbox_id: str = "") -> Sandbox:
        """Make a sandbox that answers, under that id or a new one.

        Raises ImageMissing, SandboxError, and SandboxRefused for limits and networks that cannot be promised
        here.
        """
        if not isinstance(spec.network, str):
            return await through_gate(self.create, spec, sandbox_id)
        await self._launched()
        request = self._request(spec)
        sandbox_id = sandbox_id or f"sb-{uuid.uuid4().hex}"
        name = uuid.uuid4().hex
        loop = asyncio.get_running_loop()
        started, ended = loop.create_future(), loop.create_future()
        started.add_done_callback(_noticed)
        self._starting[name], self._ending[name] = started, ended
        connection = AgentConnection(self._lease_s)
        ours, its = socket.socketpair()
        reasons, its_reasons = os.pipe()
        os.set_blocking(reasons, False)

        async def remove() -> None:
            self._open.discard(sandbox)
            try:
                with contextlib.suppress(SandboxError):  # then all have ended
                    await self._tell({"do": "end", "id": name}, [])
                    async with asyncio.timeout(_END_LIMIT_S):
                        await asyncio.shield(ended)
            except TimeoutError:
                raise SandboxError(f"sandbox {sandbox_id} did not end in {_END_LIMIT_S:g} s") from None
            finally:
                self._ending.pop(name, None)
                os.close(reasons)

        sandbox = Sandbox(sandbox_id, connection, remove)
        self._open.add(sandbox)
        try:
            try:
                ours.setblocking(False)
                await loop.create_connection(lambda: _Stream(connection, reasons), sock=ours)
                with _in_memory(request) as wanted:
                    await self._tell({"do": "make", "id": name}, [wanted.fileno(), its.fileno(), its_reasons])
            except BaseException:
                ours.close()
                raise
            finally:
                its.close()
                os.close(its_reasons)
            async with asyncio.timeout(_READY_LIMIT_S):
                await connection.ready()
                if spec.network == "open":
                    await self._tell({"do": "connect", "id": name}, [])
                await asyncio.shield(started)
        except TimeoutError:
            await sandbox.close()
            raise SandboxError(f"a sandbox of {spec.image} did not answer in {_READY_LIMIT_S:g} s") from None
        except SandboxError as exc:
            await sandbox.close()  # and so has heard what the keeper says of it
            said = str(started.exception() or _ENDED) if started.done() else _ENDED
            reason = exc if said == _ENDED else said
            raise SandboxError(f"a sandbox of {spec.image or HOST} could not be made: {reason}") from exc
        except BaseException:
            await sandbox.close()
            raise
        finally:
            del self._starting[name]
        return sandbox

    def _request(self, spec: SandboxSpec) -> bytes:
        limits = {name: getattr(spec, name) for name in _CONTROLLERS}
        for name, controller in _CONTROLLERS.items():
            held = controller in self._facts["limits"] or (name == "processes" and self._facts["rlimits"])
            if limits[name] is not None and not held:
                raise SandboxRefused(
                    f"bubblewrap cannot hold the limit {name} here: it needs the control group {controller},"
                    " as root, or delegated to the user (Delegate=yes in a unit of systemd). Set no such"
                    " limit, or use docker"
                )
        if spec.snapshot or spec.disk_bytes is not None:
            what = "begin with a snapshot" if spec.snapshot else "hold a limit of the disk"
            raise SandboxRefused(f"bubblewrap cannot {what}: use docker")
        if spec.network == "open" and not self._facts["network"]:
            raise SandboxRefused(
                "bubblewrap has no open network here: install slirp4netns, ask for no network"
                " (block_network), or use docker"
            )
        for source in spec.folders.values():
            if not Path(source).exists():
                raise SandboxError(f"there is no folder {source}")
        wanted = {
            "image": _image(spec.image),
            "variables": dict(spec.variables),
            "folders": {target: str(Path(source).resolve()) for target, source in spec.folders.items()},
            "network": spec.network,
            **limits,
        }
        return json.dumps(wanted).encode()

    async def snapshot(self, sandbox: Sandbox) -> str:
        """Raises SandboxError: it has none."""
        raise SandboxError("bubblewrap has no snapshots: use docker")

    async def drop(self, snapshot: str) -> None:
        """There is none to drop."""

    async def close(self) -> None:
        """End all sandboxes and the keeper; safe to call twice."""
        self._closed = True
        ended = await asyncio.gather(*(each.close() for each in [*self._open]), return_exceptions=True)
        for error in ended:
            if isinstance(error, BaseException):
                _log.warning("sandbox_not_removed", error=str(error))
        async with self._launching:
            self._lose()
            await self._buried()


class _Stream(asyncio.Protocol):
    """The agent's stream; what bubblewrap and it said at its end is why it ended."""

    def __init__(self, connection: AgentConnection, reasons: int) -> None:
        self._connection = connection
        self._reasons = reasons

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._connection.data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._connection.gone is None:  # else the descriptor may be another's by now
            with contextlib.suppress(OSError):
                if said := os.read(self._reasons, 1000):
                    self._connection.lose(said.decode(errors="replace").strip())
        self._connection.connection_lost(exc)


def _image(name: str) -> str:
    """``host``, or the folder of an unpacked root file system. Raises ImageMissing."""
    if name in ("", HOST):
        return HOST
    path = Path(name)
    if path.is_absolute() and path.is_dir():
        return str(path.resolve())
    if path.is_absolute():
        raise ImageMissing(f"there is no folder {name} with the root file system of an image")
    raise ImageMissing(
        f"bubblewrap knows no image {name}: it takes 'host', this machine's own system, or the folder of an"
        " unpacked one. Unpack it: docker export $(docker create IMAGE) | tar -x -C FOLDER; then write, in"
        f' orsay.toml under [sandboxes.images], "{name}" = "FOLDER" (or "host")'
    )


def _machine() -> str:
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())


def _state_folder() -> Path:
    """On disk, where it can be: /tmp is memory on many machines."""
    top = tempfile.gettempdir()
    if top == "/tmp" and os.access("/var/tmp", os.W_OK):
        top = "/var/tmp"
    return Path(top) / f"orsay-sandboxes-{os.geteuid()}"


def _in_memory(content: bytes) -> BinaryIO:
    """A file that the keeper reads it from, of any length."""
    file = os.fdopen(os.memfd_create("request"), "w+b")
    file.write(content)
    file.flush()
    file.seek(0)
    return file


def _settle(future: asyncio.Future[None] | None, failure: str = "") -> None:
    if future is None or future.done():
        return
    if failure:
        future.set_exception(SandboxError(failure))
    else:
        future.set_result(None)


def _noticed(future: asyncio.Future[None]) -> None:
    """Have asyncio not complain of an exception that nobody waits for."""
    if not future.cancelled():
        future.exception()
