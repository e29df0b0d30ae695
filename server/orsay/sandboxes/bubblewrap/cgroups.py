"""Control groups of sandboxes: version 2, or 1 with its hierarchy for each controller (cgroups(7))."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Groups", "find_groups", "freezer_of", "is_frozen", "remove_groups", "set_frozen"]

CONTROLLERS = ("memory", "cpu", "pids")
_FREEZER = "freezer"  # of version 1; in version 2, each group has it
_FREEZE, _FREEZER_STATE = "cgroup.freeze", "freezer.state"
_PERIOD_US = 100_000
_LEAST_QUOTA_US = 1000
_REMOVAL_LIMIT_S = 5.0


@dataclass(frozen=True)
class Groups:
    """Where groups of sandboxes can be made: by controller, folders that hold one for each sandbox."""

    version: int
    bases: Mapping[str, Path] = field(default_factory=dict)

    @property
    def folders(self) -> list[Path]:
        return list(dict.fromkeys(self.bases.values()))

    def memory_events(self) -> str | None:
        """Pattern of the file that tells of a sandbox's kills for want of memory, by its ``name``."""
        if "memory" not in self.bases:
            return None
        file = "memory.events" if self.version == 2 else "memory.oom_control"
        return f"{self.bases['memory']}/{{name}}/{file}"

    def make(
        self, name: str, *, memory_bytes: int | None, cpus: float | None, processes: int | None
    ) -> list[Path]:
        """The groups of a new sandbox, with its limits. Raises OSError, and leaves none then."""
        made = [base / name for base in self.folders]
        with contextlib.ExitStack() as undo:
            for each in made:
                each.mkdir()
                undo.callback(remove_groups, [each])
            for controller, file, value in self._limits(memory_bytes, cpus, processes):
                path = self.bases[controller] / name / file
                if path.exists() or not file.startswith(("memory.memsw", "memory.swap")):  # without swap
                    path.write_text(value)
            undo.pop_all()
        return made

    def _limits(
        self, memory_bytes: int | None, cpus: float | None, processes: int | None
    ) -> Iterable[tuple[str, str, str]]:
        if memory_bytes is not None and self.version == 2:
            yield "memory", "memory.max", str(memory_bytes)
            yield "memory", "memory.swap.max", "0"
        elif memory_bytes is not None:
            yield "memory", "memory.limit_in_bytes", str(memory_bytes)
            yield "memory", "memory.memsw.limit_in_bytes", str(memory_bytes)
        if cpus is not None:
            quota_us = max(_LEAST_QUOTA_US, round(cpus * _PERIOD_US))
            if self.version == 2:
                yield "cpu", "cpu.max", f"{quota_us} {_PERIOD_US}"
            else:
                yield "cpu", "cpu.cfs_period_us", str(_PERIOD_US)
                yield "cpu", "cpu.cfs_quota_us", str(quota_us)
        if processes is not None:
            yield "pids", "pids.max", str(processes)


def find_groups(name: str, *, system: Path = Path("/")) -> Groups:
    """What can be limited here, in new groups of that name, which are made. ``system`` is for tests."""
    mounts = _mounts(system)
    own = _own(system)
    if any(each in mounts for each in CONTROLLERS):
        bases = {}
        for controller in (*CONTROLLERS, _FREEZER):
            if controller in mounts:
                with contextlib.suppress(OSError):
                    bases[controller] = _below(mounts[controller], own.get(controller, "/")) / name
                    bases[controller].mkdir(exist_ok=True)
        return Groups(1, {each: base for each, base in bases.items() if base.is_dir()})
    if "" not in mounts:
        return Groups(2)
    with contextlib.suppress(OSError):
        top = mounts[""][1]
        above = top if os.geteuid() == 0 else _below(mounts[""], own.get("", "/")).parent
        base = above / name
        base.mkdir(exist_ok=True)
        _hand_down(above)
        return Groups(2, dict.fromkeys(_hand_down(base), base))
    return Groups(2)


def _hand_down(group: Path) -> list[str]:
    """Give groups below that one what it has; what they got."""
    given = []
    for each in CONTROLLERS:
        with contextlib.suppress(OSError):  # one that is not there, or that the group above did not get
            (group / "cgroup.subtree_control").write_text(f"+{each}")
            given.append(each)
    return given


def _mounts(system: Path) -> dict[str, tuple[str, Path]]:
    """Mounts of hierarchies, by controller ("" for version 2): the group at their top, and their place."""
    found: dict[str, tuple[str, Path]] = {}
    for line in (system / "proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        top, place = before.split()[3:5]
        kind, _, options = after.split(" ", 2)
        where = (top, system / place.lstrip("/"))
        if kind == "cgroup2":
            found.setdefault("", where)
        elif kind == "cgroup":
            for option in options.split(","):
                if option in (*CONTROLLERS, _FREEZER):
                    found.setdefault(option, where)
    return found


def _own(system: Path) -> dict[str, str]:
    found = {}
    for line in (system / "proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        found.update(dict.fromkeys(names.split(","), path))
    return found


def _below(mounted: tuple[str, Path], own: str) -> Path:
    top, place = mounted
    inside = own.removeprefix(top) if top != "/" and own.startswith(top) else own
    path = place / inside.lstrip("/")
    return path if path.is_dir() else place


def freezer_of(groups: Iterable[Path]) -> Path | None:
    """The one of a sandbox's groups that can freeze it, if any."""
    for each in groups:
        if (each / _FREEZE).exists() or (each / _FREEZER_STATE).exists():
            return each
    return None


def set_frozen(group: Path, value: bool) -> None:
    """Have the processes of such a group begin to wait, or go on. Raises OSError."""
    if (group / _FREEZE).exists():
        (group / _FREEZE).write_text(str(int(value)))
    else:
        (group / _FREEZER_STATE).write_text("FROZEN" if value else "THAWED")


def is_frozen(group: Path) -> bool:
    """Whether all processes of such a group wait. Raises OSError."""
    if (group / _FREEZE).exists():
        return "frozen 1" in (group / "cgroup.events").read_text()
    return (group / _FREEZER_STATE).read_text().strip() == "FROZEN"


def remove_groups(groups: Sequence[Path]) -> None:
    """End what is in some groups, and remove them with those below; all groups of a process are to be there.

    What is frozen by one of them (version 1) cannot be killed by another.
    """
    for each in groups:
        _thaw(each)
    for each in groups:
        _remove(each)


def _folders(group: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return [each for each in group.iterdir() if each.is_dir()]
    return []


def _thaw(group: Path) -> None:
    for each in _folders(group):
        _thaw(each)
    with contextlib.suppress(OSError):
        if freezer_of([group]):
            set_frozen(group, False)


def _remove(group: Path) -> None:
    for each in _folders(group):
        _remove(each)
    until = time.monotonic() + _REMOVAL_LIMIT_S
    while group.exists() and time.monotonic() < until:
        try:
            group.rmdir()
        except OSError:
            _kill_in(group)
            time.sleep(0.01)


def _kill_in(group: Path) -> None:
    with contextlib.suppress(OSError, ValueError):
        for pid in (group / "cgroup.procs").read_text().split():
            if int(pid):
                os.kill(int(pid), signal.SIGKILL)
