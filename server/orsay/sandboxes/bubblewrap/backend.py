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
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from ...errors import ConfigError, ImageMissing, SandboxError, SandboxRefused
from ...logs import get_logger
from ..agent import agent_program
from ..agent.connection import AgentConnection
from ..base import SandboxSpec
from ..disk import BYTES_PER_FILE, DU_BYTES, DU_FILES, DiskWatch, Used, read_du
from ..egress.gate import through_gate
from ..sandbox import Sandbox
from ..snapshot_tree import Snapshot
from .keeper import Setup
from .roots import HOST
from .snapshots import BubblewrapSnapshots, layers_of

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


@dataclass(frozen=True)
class _Made:
    """What is known of a sandbox."""

    name: str
    """For the keeper: its id, and a part that is never the same."""
    image: str
    begun_with: Snapshot | None
    connection: AgentConnection
    snapshots: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One is made at a time."""


class BubblewrapSandboxes:
    """Back end over a keeper, a process that it starts and that ends with it, however that happens.

    A sandbox that hears nothing of the server for ``lease_s`` ends. ``disk_bytes`` is the limit where none is
    asked.
    """

    def __init__(self, program: str, lease_s: float, state: Path, disk_bytes: int | None) -> None:
        self._program = program
        self._lease_s = lease_s
        self._state = state
        self._disk_bytes = disk_bytes
        self._keeper: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._launching = asyncio.Lock()
        self._facts: dict[str, Any] = {}
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._starting: dict[str, asyncio.Future[None]] = {}
        self._ending: dict[str, asyncio.Future[None]] = {}
        self._keeping: dict[str, asyncio.Future[None]] = {}
        self._open: dict[Sandbox, _Made] = {}
        self._snapshots = BubblewrapSnapshots(self._keep, self._drop)
        self._disks = DiskWatch(self._measure)
        self._closed = False

    @classmethod
    async def open(
        cls, *, lease_s: float = 60, state: Path | None = None, disk_bytes: int | None = None
    ) -> BubblewrapSandboxes:
        """A back end that has made a sandbox, to know that it can.

        ``state`` is where changes of sandboxes are kept. Raises ConfigError where bubblewrap is missing or
        not allowed here.
        """
        agent_program(platform.machine())  # raises
        backend = cls(require_bubblewrap(), lease_s, state or _state_folder(), disk_bytes)
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
                case "kept":
                    _settle(self._keeping.get(message["id"]), message["reason"])

    def _lose(self) -> None:
        """The keeper has ended, and with it all sandboxes."""
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()
            self._control = None
        self._snapshots.forget()  # the next keeper removes them
        _settle(self._ready, "the process that makes sandboxes has ended")
        for each in [*self._starting.values(), *self._keeping.values()]:
            _settle(each, "the process that makes sandboxes has ended")
        for each in self._ending.values():
            _settle(each)

    async def _tell(self, order: Mapping[str, object], descriptors: Sequence[int] = ()) -> None:
        packet = json.dumps(order).encode()
        while True:
            if self._control is None:
                raise SandboxError("the process that makes sandboxes has ended")
            try:
                socket.send_fds(self._control, [packet], [*descriptors])
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
        begun_with = self._snapshots.hold(spec.snapshot) if spec.snapshot else None
        if begun_with is not None:
            spec = replace(spec, image=begun_with.image)
        try:
            return await self._create(spec, sandbox_id or f"sb-{uuid.uuid4().hex}", begun_with)
        except BaseException:
            await self._snapshots.let_go(begun_with)
            raise

    async def _create(self, spec: SandboxSpec, sandbox_id: str, begun_with: Snapshot | None) -> Sandbox:
        disk_bytes = spec.disk_bytes or self._disk_bytes
        request = self._request(spec, layers_of(begun_with), disk_bytes)
        name = f"{sandbox_id}.{uuid.uuid4().hex[:8]}"
        answered = False
        loop = asyncio.get_running_loop()
        started, ended = loop.create_future(), loop.create_future()
        started.add_done_callback(_noticed)
        self._starting[name], self._ending[name] = started, ended
        connection = AgentConnection(self._lease_s)
        ours, its = socket.socketpair()
        reasons, its_reasons = os.pipe()
        os.set_blocking(reasons, False)

        async def remove() -> None:
            self._disks.remove(name)
            self._open.pop(sandbox, None)
            try:
                with contextlib.suppress(SandboxError):  # then all have ended
                    await self._tell({"do": "end", "id": name})
                    async with asyncio.timeout(_END_LIMIT_S):
                        await asyncio.shield(ended)
            except TimeoutError:
                raise SandboxError(f"sandbox {sandbox_id} did not end in {_END_LIMIT_S:g} s") from None
            finally:
                self._ending.pop(name, None)
                os.close(reasons)
                if answered:
                    await self._snapshots.let_go(begun_with)

        events = self._facts["memory_events"]
        sandbox = Sandbox(
            sandbox_id,
            connection,
            remove,
            variables=spec.variables,
            memory_events=events and Path(events.format(name=name)),
        )
        self._open[sandbox] = _Made(name, spec.image, begun_with, connection)
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
                    await self._tell({"do": "connect", "id": name})
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
        answered = True
        if disk_bytes is not None and not self._facts["in_memory"]:
            self._disks.add(name, disk_bytes, sandbox, connection)
        return sandbox

    async def image_id(self, image: str) -> str:
        """What an image's name stands for now: a folder may be replaced. Raises ImageMissing."""
        return _identity(_image(image))

    def _request(self, spec: SandboxSpec, snapshots: Sequence[str], disk_bytes: int | None) -> bytes:
        limits = {name: getattr(spec, name) for name in _CONTROLLERS}
        for name, controller in _CONTROLLERS.items():
            held = controller in self._facts["limits"] or (name == "processes" and self._facts["rlimits"])
            if limits[name] is not None and not held:
                raise SandboxRefused(
                    f"bubblewrap cannot hold the limit {name} here: it needs the control group {controller},"
                    " as root, or delegated to the user (Delegate=yes in a unit of systemd). Set no such"
                    " limit, or use docker"
                )
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
            "snapshots": snapshots,
            "memory_options": ""
            if disk_bytes is None
            else f",size={disk_bytes},nr_inodes={disk_bytes // BYTES_PER_FILE}",
            "folders": {target: str(Path(source).resolve()) for target, source in spec.folders.items()},
            "network": spec.network,
            **limits,
        }
        return json.dumps(wanted).encode()

    # snapshots and sizes

    async def snapshot(self, sandbox: Sandbox) -> str:
        """Keep what a sandbox has changed, as of a moment at which its processes wait.

        Raises SandboxGone, SandboxError.
        """
        if sandbox.gone is not None:
            raise sandbox.gone
        made = self._open.get(sandbox)
        if made is None:
            raise SandboxError(f"sandbox {sandbox.id} is not one of these")
        if self._facts["in_memory"]:
            raise SandboxError("changes are kept in memory here, of which there are no snapshots: use docker")
        taking = asyncio.ensure_future(self._take(made))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            with contextlib.suppress(SandboxError):
                await self.drop(await taking)
            raise

    async def _take(self, made: _Made) -> str:
        async with made.snapshots:
            with made.connection.paused():
                return await self._snapshots.take(made.name, made.begun_with, image=made.image)

    async def drop(self, snapshot: str) -> None:
        """Keep a snapshot no longer; sandboxes that began with it live on. Safe to call twice."""
        await self._snapshots.drop(snapshot)

    async def _keep(self, snapshot: str, name: str) -> None:
        """Have the keeper copy a sandbox's changes. Raises SandboxError."""
        kept = self._keeping[snapshot] = asyncio.get_running_loop().create_future()
        kept.add_done_callback(_noticed)
        try:
            await self._tell({"do": "keep", "id": name, "snapshot": snapshot})
            await kept
        except SandboxError as exc:
            raise SandboxError(f"its files could not be kept: {exc}") from exc
        finally:
            del self._keeping[snapshot]

    async def _drop(self, snapshot: str) -> None:
        with contextlib.suppress(SandboxError):  # it is gone with the keeper
            await self._tell({"do": "drop", "id": snapshot})

    async def _measure(self, names: Collection[str]) -> Mapping[str, Used]:
        sizes, files = await asyncio.gather(self._du(DU_BYTES, names), self._du(DU_FILES, names))
        return {each: (sizes[each], files[each]) for each in names if each in sizes and each in files}

    async def _du(self, program: Sequence[str], names: Collection[str]) -> Mapping[str, int]:
        """What the keeper measures: only it may read files of all users of a sandbox."""
        said, saying = os.pipe()
        file = os.fdopen(said, "rb")
        try:
            with _in_memory(json.dumps([*names]).encode()) as wanted:
                await self._tell({"do": "measure", "id": "", "program": program}, [wanted.fileno(), saying])
        except BaseException:
            file.close()
            raise
        finally:
            os.close(saying)
        return read_du(await asyncio.to_thread(_content, file))

    async def close(self) -> None:
        """End all sandboxes and the keeper; safe to call twice."""
        self._closed = True
        await self._disks.close()
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


def _identity(image: str) -> str:
    found = Path("/" if image == HOST else image).stat()
    return f"{image} {found.st_dev} {found.st_ino} {found.st_ctime_ns}"


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


def _content(file: BinaryIO) -> bytes:
    with file:
        return file.read()


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
