"""Control groups of sandboxes: version 2, or 1 with its hierarchy for each controller (cgroups(7))."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Groups", "find_groups", "remove_group"]

CONTROLLERS = ("memory", "cpu", "pids")
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

    def make(
        self, name: str, *, memory_bytes: int | None, cpus: float | None, processes: int | None
    ) -> list[Path]:
        """The groups of a new sandbox, with its limits. Raises OSError, and leaves none then."""
        made = [base / name for base in self.folders]
        with contextlib.ExitStack() as undo:
            for each in made:
                each.mkdir()
                undo.callback(remove_group, each)
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
        for controller in CONTROLLERS:
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
                if option in CONTROLLERS:
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


def remove_group(group: Path) -> None:
    """End what is in a group, and remove it with those below it."""
    with contextlib.suppress(OSError):
        for each in [*group.iterdir()]:
            if each.is_dir():
                remove_group(each)
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
