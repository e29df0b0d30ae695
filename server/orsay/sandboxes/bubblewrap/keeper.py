"""The keeper of a back end: a small process with one thread that starts sandboxes, and clears up after them.

It hears its server over a socket of packets, each a JSON object, some with descriptors. It ends with the
socket, and all its sandboxes with it: bubblewrap dies with its parent. So nothing depends on threads of the
server, and what is mounted for a sandbox is seen by that alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import resource
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import linux
from .cgroups import find_groups, freezer_of, remove_groups, set_frozen
from .copies import copy_folder
from .freezing import frozen
from .processes import close_others, forked, has_ended, in_memory_file, joined, pass_on, rlimits_hold
from .roots import HOST, PLACE, Parts, assemble, check_places, name_machine, prepare_host
from .seccomp import filter_program
from .state import REMOVE, State
from .users import new_users, own_users

__all__ = ["Setup", "main"]

AGENT = "/dev/.orsay-agent"
_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "SETUID", "SETGID", "KILL")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_HOST_NAME = "sandbox"
_HOSTS = f"127.0.0.1 localhost {_HOST_NAME}\n::1 localhost ip6-localhost ip6-loopback\n"
_NAME_SERVER = "10.0.2.3"  # of slirp4netns
_NO_NETWORK = "slirp4netns could not open its network: it needs /dev/net/tun, open to the user"
_SHARED_MEMORY = 64 << 20  # as Docker gives
_REQUEST_LIMIT = 1 << 16
_CLOSE_ON_EXEC = 0x40000000  # MSG_CMSG_CLOEXEC
_LAST_WAIT_S = 15.0
_RETRY_S = 1.0
_MEMORY_MODE = "mode=700"


@dataclasses.dataclass(frozen=True)
class Setup:
    """What a keeper is started with."""

    control: int
    state: str
    agent: str
    machine: str
    bubblewrap: str
    slirp: str | None
    lease_s: int


@dataclasses.dataclass
class _Kept:
    """A sandbox, until nothing of it is left."""

    name: str
    wanted: Mapping[str, Any]
    groups: list[Path]
    monitor: int  # the process of bubblewrap
    told: bytes = b""  # by bubblewrap, of the agent
    agent: int | None = None
    answers: bool = False
    network: int | None = None  # the process of slirp4netns, and what ends it
    network_end: int | None = None
    removal: int | None = None
    monitor_ended: bool = False
    copying: _Copying | None = None


@dataclasses.dataclass
class _Copying:
    """A snapshot that is made by a process, which says on a pipe why it failed."""

    snapshot: str
    process: int
    errors: int


class Keeper:
    """The state of this process. Raises OSError where sandboxes cannot be made here."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._control = socket.socket(fileno=setup.control)
        self._control.set_inheritable(False)
        self._selector = selectors.DefaultSelector()
        self._kept: dict[str, _Kept] = {}
        self._retries = False
        linux.become_subreaper()
        as_root = os.geteuid() == 0
        state = Path(setup.state)
        self._state = State(state)
        self._groups = find_groups(f"orsay-{self._state.word}")
        self._state.note_groups(self._groups.folders)
        self._users: int | None = None
        self._single = False
        if as_root:
            with contextlib.suppress(OSError):
                self._users = self._shifted()
        else:
            self._single = not own_users(several="pids" in self._groups.bases)
        self._rlimits = self._single and "pids" not in self._groups.bases and rlimits_hold()
        self._in_users = not as_root
        self._in_memory = not self._attempt(in_memory=False)
        if self._in_memory and not self._attempt(in_memory=True):
            raise OSError("neither the state folder nor memory takes the changes of an overlay")
        self._host = self._state.folder / "host"
        self._snapshots = self._state.folder / "snapshots"
        self._snapshots.mkdir()
        self._others: set[int] = set()  # processes that only need to be reaped
        self._agent = self._state.folder / "agent"
        self._agent.write_bytes(Path(setup.agent).read_bytes())
        self._agent.chmod(0o755)
        self._swept = self._state.sweep()

    def _shifted(self) -> int:
        """The user namespace of the sandboxes, where this kernel and the state folder can shift owners."""
        users = new_users()
        tree = linux.copy_tree(str(self._state.folder), below=False)
        try:
            linux.map_ids(tree, users, below=False)
        except OSError:
            os.close(users)
            raise
        finally:
            os.close(tree)
        return users

    def _attempt(self, *, in_memory: bool) -> bool:
        """Whether a root can be made, tried in a process of its own."""
        folder = self._state.folder / "attempt"
        image = folder / "image"
        own = folder / "own"
        for each in (folder, image, own):
            each.mkdir(exist_ok=True)
        parts = Parts(image=str(image), own=own, host=folder, agent=image)
        pid = os.fork()
        if not pid:
            code = 1
            with contextlib.suppress(BaseException):
                options = _MEMORY_MODE if in_memory else None
                assemble(parts, users=self._users, in_users=self._in_users, memory_options=options)
                code = 0
            os._exit(code)
        ended = os.waitpid(pid, 0)[1]
        removal = os.spawnvp(os.P_WAIT, REMOVE[0], [*REMOVE, str(folder)])
        return ended == 0 and removal == 0

    # the loop

    def run(self) -> None:
        """Serve until the socket ends."""
        ours, its = socket.socketpair()
        ours.setblocking(False)
        its.setblocking(False)
        signal.set_wakeup_fd(its.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._selector.register(ours, selectors.EVENT_READ, lambda: ours.recv(4096))
        self._selector.register(self._control, selectors.EVENT_READ, self._hear)
        users = "own" if self._in_users else "same" if self._users is None else "shifted"
        self._say(
            event="ready",
            users=users,
            in_memory=self._in_memory,
            limits=sorted(self._groups.bases),
            rlimits=self._rlimits,
            memory_events=self._groups.memory_events(),
            swept=self._swept,
        )
        self._serving = True
        while self._serving:
            self._step(None)
        self._selector.unregister(self._control)
        for each in [*self._kept.values()]:
            self._end(each)
        until = time.monotonic() + _LAST_WAIT_S
        while (self._kept or self._others) and time.monotonic() < until:
            self._step(1.0)
        remove_groups(self._groups.folders)
        self._state.close()

    def _step(self, timeout_s: float | None) -> None:
        for key, _ in self._selector.select(_RETRY_S if self._retries else timeout_s):
            _safely(key.data)
        self._others = {pid for pid in self._others if not has_ended(pid)}
        looked = [_safely(self._look_at, each) for each in [*self._kept.values()]]
        self._retries = not all(looked)

    def _say(self, **message: object) -> None:
        with contextlib.suppress(OSError):  # a server that is gone
            self._control.send(json.dumps(message).encode())

    def _hear(self) -> None:
        try:
            message, descriptors, _, _ = socket.recv_fds(self._control, _REQUEST_LIMIT, 3, _CLOSE_ON_EXEC)
        except OSError:
            message, descriptors = b"", []
        if not message:
            self._serving = False
            return
        order = json.loads(message)
        name = order["id"]
        try:
            match order["do"]:
                case "make":
                    self._make(name, *descriptors)
                case "connect" if name in self._kept:
                    self._answers(self._kept[name])
                case "keep" if name in self._kept:
                    self._keep(self._kept[name], order["snapshot"])
                case "keep":
                    self._say(event="kept", id=order["snapshot"], reason="the sandbox has ended")
                case "drop":
                    self._remove(self._snapshots / name)
                case "measure":
                    self._measure(order["program"], *descriptors)
                case "end" if name in self._kept:
                    self._end(self._kept[name])
                case _:
                    self._say(event="ended", id=name, reason="")
        except Exception as exc:  # of one sandbox, and not of the others
            traceback.print_exc()
            self._say(event="ended", id=name, reason=str(exc))
        finally:
            for each in descriptors:
                os.close(each)

    # life of a sandbox

    def _make(self, name: str, request: int, stream: int, errors: int) -> None:
        with os.fdopen(os.dup(request), "rb") as file:
            wanted = json.load(file)
        if wanted["image"] == HOST and not self._in_memory and not self._host.exists():
            prepare_host(self._host, self._users)
        own = self._own(name)
        with contextlib.ExitStack() as undo:
            own.mkdir(mode=0o755)
            undo.callback(own.rmdir)
            groups = self._groups.make(
                name,
                memory_bytes=wanted["memory_bytes"],
                cpus=wanted["cpus"],
                processes=None if self._rlimits else wanted["processes"],
            )
            undo.callback(remove_groups, groups)
            told, telling = os.pipe()
            undo.callback(os.close, told)
            undo.callback(os.close, telling)
            os.set_blocking(told, False)

            def launch() -> None:
                for group in groups:
                    (group / "cgroup.procs").write_text("0")
                self._become_sandbox(wanted, own, stream, errors, telling)

            kept = _Kept(name, wanted, groups, forked(launch, errors))
            undo.pop_all()
        os.close(telling)
        self._kept[name] = kept
        self._selector.register(told, selectors.EVENT_READ, lambda: self._started(kept, told))

    def _own(self, name: str) -> Path:
        return self._state.folder / name

    def _become_sandbox(
        self, wanted: Mapping[str, Any], own: Path, stream: int, errors: int, telling: int
    ) -> None:
        """In a process of its own, which bubblewrap replaces. Raises OSError."""
        folders: Mapping[str, str] = wanted["folders"]
        parts = Parts(
            image=wanted["image"],
            own=own,
            host=self._host,
            agent=self._agent,
            folders=[*folders.values()],
            kept=self._snapshots,
            snapshots=wanted["snapshots"],
        )
        options = _MEMORY_MODE + wanted["memory_options"] if self._in_memory else None
        assemble(parts, users=self._users, in_users=self._in_users, memory_options=options)
        if parts.snapshots:
            check_places(["/proc", "/dev", *folders])
        if self._users is not None:
            linux.enter(self._users)
            os.setgroups([])
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
        is_open = wanted["network"] == "open"
        servers = f"nameserver {_NAME_SERVER}\n" if is_open else ""
        name_machine({"hosts": _HOSTS, "hostname": f"{_HOST_NAME}\n", "resolv.conf": servers})
        rules = in_memory_file("rules", filter_program(self._setup.machine))
        words = in_memory_file("words", joined(self._words(wanted, rules, telling)))
        os.dup2(stream, 0)
        os.dup2(stream, 1)
        os.dup2(errors, 2)
        pass_on(rules, words, telling)
        program = self._setup.bubblewrap
        arguments = ["bwrap", "--args", str(words), "--", AGENT, str(self._setup.lease_s)]
        os.execve(program, arguments, {})

    def _words(self, wanted: Mapping[str, Any], rules: int, telling: int) -> list[str]:
        variables = {"PATH": _PATH, "HOME": "/root", "HOSTNAME": _HOST_NAME}
        words = [
            *("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"),
            *("--unshare-user", "--uid", "0", "--gid", "0") * self._single,
            *("--as-pid-1", "--die-with-parent", "--new-session", "--hostname", _HOST_NAME),
            *("--seccomp", str(rules), "--info-fd", str(telling)),
            *("--cap-drop", "ALL"),
            *(word for each in _CAPABILITIES for word in ("--cap-add", f"CAP_{each}")),
            *("--bind", f"{PLACE}/root", "/", "--proc", "/proc", "--dev", "/dev"),
            *("--ro-bind", f"{PLACE}/agent", AGENT, "--remount-ro", "/dev"),
            *("--size", str(_SHARED_MEMORY), "--perms", "1777", "--tmpfs", "/dev/shm"),
        ]
        for number, target in enumerate(wanted["folders"]):
            words += ["--ro-bind", f"{PLACE}/folder-{number}", target]
        work = wanted["image"] == HOST and Path(f"{PLACE}/root/work")
        begins_there = work and work.is_dir() and not work.is_symlink()  # a snapshot may have removed it
        words += ["--chdir", "/work" if begins_there else "/", "--clearenv"]
        for name, value in variables.items():
            words += ["--setenv", name, value]
        return words

    def _started(self, kept: _Kept, told: int) -> None:
        """Read the id of the agent's process; without one, bubblewrap has failed, and ends."""
        data = os.read(told, 4096)
        kept.told += data
        if data and b"}" not in kept.told:
            return
        self._selector.unregister(told)
        os.close(told)
        if not data:
            return
        kept.agent = int(json.loads(kept.told)["child-pid"])
        processes = kept.wanted["processes"]
        if self._rlimits and processes is not None:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(kept.agent, resource.RLIMIT_NPROC, (processes, processes))
        if kept.wanted["network"] != "open":
            self._say(event="started", id=kept.name)
        elif kept.answers and not kept.monitor_ended:
            self._open_network(kept)

    def _answers(self, kept: _Kept) -> None:
        """Open its network, now that bubblewrap is done with it: at once, they disturb each other."""
        kept.answers = True
        if kept.agent is not None and not kept.monitor_ended:
            self._open_network(kept)

    def _open_network(self, kept: _Kept) -> None:
        program = self._setup.slirp
        assert program is not None
        ready, its_ready = os.pipe()
        end, kept.network_end = os.pipe()
        users = (
            ["--userns-path", f"/proc/{kept.agent}/ns/user"]
            if self._users is not None or self._single
            else []
        )
        options = ["--configure", "--mtu", "65520", "--disable-host-loopback", "--enable-sandbox"]
        fds = ["--ready-fd", str(its_ready), "--exit-fd", str(end)]

        def launch() -> None:
            linux.die_with_parent()
            pass_on(its_ready, end)
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, 0)
            os.dup2(nothing, 1)
            os.dup2(nothing, 2)
            os.execve(program, ["slirp4netns", *options, *fds, *users, str(kept.agent), "tap0"], {})

        kept.network = forked(launch, 2)
        os.close(its_ready)
        os.close(end)
        os.set_blocking(ready, False)

        def configured() -> None:
            answered = os.read(ready, 1)
            self._selector.unregister(ready)
            os.close(ready)
            if answered:
                self._say(event="started", id=kept.name)
            else:
                kept.wanted = {**kept.wanted, "failure": _NO_NETWORK}
                self._end(kept)

        self._selector.register(ready, selectors.EVENT_READ, configured)

    # snapshots and sizes

    def _keep(self, kept: _Kept, snapshot: str) -> None:
        """Copy what it has changed, in a process of its own, while those of the sandbox wait."""
        if kept.agent is None or kept.monitor_ended or kept.copying is not None:
            busy = "it begins or ends just now, or another snapshot of it is being made"
            self._say(event="kept", id=snapshot, reason=busy)
            return
        agent, target = kept.agent, self._snapshots / snapshot
        said, saying = os.pipe()
        os.set_blocking(said, False)

        def copy() -> None:
            linux.die_with_parent()
            close_others(saying)
            target.mkdir()
            with frozen(freezer_of(kept.groups), agent):
                for each in self._own(kept.name).iterdir():
                    copy_folder(each / "upper", target / each.name)
            os._exit(0)

        try:
            kept.copying = _Copying(snapshot, forked(copy, saying), said)
        finally:
            os.close(saying)

    def _look_at_copy(self, kept: _Kept, copying: _Copying) -> None:
        """Tell of a snapshot, once its process has ended."""
        pid, status = os.waitpid(copying.process, os.WNOHANG)
        if not pid:
            return
        kept.copying = None
        failure = os.read(copying.errors, 1000).decode(errors="replace").strip() if status else ""
        os.close(copying.errors)
        if status:
            self._thaw(kept)
            self._remove(self._snapshots / copying.snapshot)
            failure = failure or "the sandbox has ended"
        self._say(event="kept", id=copying.snapshot, reason=failure)

    def _thaw(self, kept: _Kept) -> None:
        if (freezer := freezer_of(kept.groups)) is not None:
            with contextlib.suppress(OSError):
                set_frozen(freezer, False)

    def _remove(self, folder: Path) -> None:
        self._others.add(forked(lambda: os.execvp(REMOVE[0], [*REMOVE, str(folder)]), 2))

    def _measure(self, program: Sequence[str], names: int, output: int) -> None:
        """Run ``du`` on the changes of some sandboxes; the server reads what it says."""
        with os.fdopen(os.dup(names), "rb") as file:
            folders: Sequence[str] = json.load(file)

        def launch() -> None:
            linux.die_with_parent()
            os.chdir(self._state.folder)
            os.dup2(output, 1)
            os.execvp(program[0], [*program, *folders])

        self._others.add(forked(launch, 2))

    # its end

    def _end(self, kept: _Kept) -> None:
        if kept.copying is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(kept.copying.process, signal.SIGKILL)
            self._thaw(kept)  # what is frozen cannot be killed
        if not kept.monitor_ended:
            with contextlib.suppress(ProcessLookupError):
                os.kill(kept.monitor, signal.SIGKILL)

    def _look_at(self, kept: _Kept) -> None:
        """Reap what has ended of it, and remove the rest."""
        if kept.copying is not None:
            self._look_at_copy(kept, kept.copying)
        if not kept.monitor_ended:
            if not has_ended(kept.monitor):
                return
            kept.monitor_ended = True
            if kept.network is not None and kept.network_end is not None:
                os.close(kept.network_end)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(kept.network, signal.SIGKILL)
        if kept.agent is not None:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                if not has_ended(kept.agent):  # now a child of ours
                    os.kill(kept.agent, signal.SIGKILL)
                    return
            kept.agent = None
        if kept.network is not None:
            if not has_ended(kept.network):
                return
            kept.network = None
        if kept.copying is not None:
            self._end(kept)
            return
        if kept.removal is None:
            remove_groups(kept.groups)
            own = str(self._own(kept.name))
            kept.removal = forked(lambda: os.execvp(REMOVE[0], [*REMOVE, own]), 2)
        if has_ended(kept.removal):
            del self._kept[kept.name]
            self._say(event="ended", id=kept.name, reason=kept.wanted.get("failure", ""))


def _safely(work: Callable[..., object], *arguments: object) -> bool:
    """Do it; False where it failed, which concerns one sandbox and not the others."""
    try:
        work(*arguments)
    except Exception:
        traceback.print_exc()
        return False
    return True


def main(arguments: Sequence[str]) -> None:
    """Be a keeper. What is missing here is said to the server."""
    setup = Setup(**json.loads(arguments[0]))
    os.umask(0o022)
    try:
        keeper = Keeper(setup)
    except OSError as exc:
        with socket.socket(fileno=setup.control) as control, contextlib.suppress(OSError):
            control.send(json.dumps({"event": "failed", "reason": str(exc)}).encode())
        sys.exit(1)
    keeper.run()
