"""Cost of a server, from /proc: CPU time, memory, threads and files of a process and all below it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a process or a process tree; `pss_kib` counts a page shared by n processes as 1/n."""

    rss_kib: int
    pss_kib: int
    threads: int
    files: int


@dataclass(frozen=True, slots=True)
class Stat:
    """The part of /proc/PID/stat that counts: the parent, and the CPU time with that of reaped children."""

    parent: int
    cpu_s: float


def parse_stat(text: str) -> Stat:
    # the command name may hold spaces and brackets; what follows its last bracket does not
    fields = text.rsplit(")", 1)[1].split()
    return Stat(parent=int(fields[1]), cpu_s=sum(int(x) for x in fields[11:15]) / TICK)


def parse_fields(text: str) -> dict[str, int]:
    """Lines such as `Rss:   1234 kB` of smaps_rollup and status, the numeric ones only."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            found[name] = int(words[0])
    return found


def _read(path: Path) -> str:
    """The file, or an empty text when its process is gone (files below /proc vanish at any time)."""
    try:
        return path.read_text()
    except OSError:
        return ""


def is_running(pid: int) -> bool:
    """Alive; a dead process that nobody has reaped yet is not."""
    text = _read(Path(f"/proc/{pid}/stat"))
    return bool(text) and text.rsplit(")", 1)[1].split()[0] not in "ZX"


class ProcessTree:
    """A server process and everything below it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def pids(self) -> list[int]:
        children: dict[int, list[int]] = {}
        for name in os.listdir("/proc"):
            if name.isdigit() and (text := _read(Path("/proc", name, "stat"))):
                children.setdefault(parse_stat(text).parent, []).append(int(name))
        found: list[int] = []
        todo = [self.pid]
        while todo:
            pid = todo.pop()
            found.append(pid)
            todo += children.get(pid, [])
        return found

    def cpu_s(self) -> float:
        texts = (_read(Path(f"/proc/{pid}/stat")) for pid in self.pids())
        return sum(parse_stat(text).cpu_s for text in texts if text)

    def cpu_by_pid(self) -> dict[int, float]:
        texts = {pid: _read(Path(f"/proc/{pid}/stat")) for pid in self.pids()}
        return {pid: parse_stat(text).cpu_s for pid, text in texts.items() if text}

    def memory(self) -> Memory:
        parts = [memory_of(pid) for pid in self.pids()]
        return Memory(
            rss_kib=sum(m.rss_kib for m in parts),
            pss_kib=sum(m.pss_kib for m in parts),
            threads=sum(m.threads for m in parts),
            files=sum(m.files for m in parts),
        )

    def waited_s(self) -> float:
        """Time its threads were ready to run while something else held the core."""
        total = 0
        for pid in self.pids():
            for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                fields = _read(task).split()
                total += int(fields[1]) if len(fields) > 1 else 0
        return total / 1e9

    def outside(self, cores: set[int]) -> list[int]:
        """Processes that may run on a core other than these."""
        found = []
        for pid in self.pids():
            try:
                if os.sched_getaffinity(pid) - cores:
                    found.append(pid)
            except ProcessLookupError:
                continue
        return found


def memory_of(pid: int) -> Memory:
    rollup = parse_fields(_read(Path(f"/proc/{pid}/smaps_rollup")))
    status = parse_fields(_read(Path(f"/proc/{pid}/status")))
    try:
        files = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        files = 0
    rss = rollup.get("Rss", status.get("VmRSS", 0))
    return Memory(rss_kib=rss, pss_kib=rollup.get("Pss", rss), threads=status.get("Threads", 0), files=files)


def busy_s() -> float:
    """CPU time spent by the whole machine since it started, all cores together."""
    fields = [int(x) for x in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / TICK


class Clock:
    """Wall time, CPU of generator and server and everything else, between start and stop."""

    def __init__(self, server: ProcessTree | None) -> None:
        self._server = server
        self._wall = self._own = self._cpu = self._busy = self._waited = 0.0

    def start(self) -> None:
        self._cpu = self._server.cpu_s() if self._server else 0.0
        self._waited = self._server.waited_s() if self._server else 0.0
        self._busy = busy_s()
        self._own = time.process_time()
        self._wall = time.perf_counter()

    def stop(self, requests: int) -> dict[str, float]:
        wall = time.perf_counter() - self._wall
        own = time.process_time() - self._own
        busy = busy_s() - self._busy
        figures = {
            "wall_s": round(wall, 3),
            "n": float(requests),
            "per_s": round(requests / wall, 1),
            "generator_cpu": round(own / wall, 3),
        }
        if self._server:
            cpu = self._server.cpu_s() - self._cpu
            figures["server_cpu"] = round(cpu / wall, 3)
            figures["other_cpu"] = round(max(0.0, busy - cpu - own) / wall, 3)
            figures["server_waited_s"] = round(self._server.waited_s() - self._waited, 3)
            if requests:
                figures["server_us_per_request"] = round(cpu / requests * 1e6, 1)
            if cpu:
                figures["per_cpu_s"] = round(requests / cpu, 1)
        return figures
