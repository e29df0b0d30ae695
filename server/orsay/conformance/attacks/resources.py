"""Attacks that use up what a sandbox has. Each is bounded by itself, and leaves the machine room.

Memory is used up only where a limit below that of the machine is seen inside, or where the user asks for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

from ..failures import NotSupported
from .attack import Broken, Lost, Weak, attack
from .bench import LARGEST_ANSWER, Bench, Episode
from .scripts import python

__all__: list[str] = []

_PROCESSES = 2_000
_MEMORY = 4 << 30
_DISK = 2 << 30
_ROOM = 4 * _DISK
"""Free space below which the disk is left alone."""
_FILES = 20_000
_OPEN = 50_000
_OUTPUTS = (LARGEST_ANSWER + (8 << 20), 1_000_000_000)
_LIMIT_S = 3.0
_ENDED_S = 20.0

_LIMITS = """
for f in /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max; do
  [ -r "$f" ] && say memory "$(cat $f)"
done
while read -r k v u; do
  case "$k" in MemTotal:) say total "$((v*1024))";; MemAvailable:) say available "$((v*1024))";; esac
done </proc/meminfo
say rlimit "$(ulimit -v)"
for d in . /tmp; do set -- $(df -Pk $d | tail -1); say free "$(($4*1024))"; done
"""
_FORKS = """
import os, sys, time
end, alive = time.time() + 5, 0
null = os.open("/dev/null", os.O_RDWR)
try:
    while alive < int(sys.argv[1]) and time.time() < end:
        if os.fork() == 0:
            for each in (0, 1, 2):
                os.dup2(null, each)
            time.sleep(8)
            os._exit(0)
        alive += 1
except OSError:
    pass
print("orsay-" + "seen", "alive", alive)
"""


@attack(
    "processes",
    "resources",
    tried=f"Started up to {_PROCESSES:,} processes within five seconds.",
    matters="A fork bomb without a limit takes the processes of the whole machine.",
    change="Set a limit of processes: sandbox(processes=...), or --pids-limit of an engine.",
)
async def processes(bench: Bench) -> str:
    await bench.neighbour()
    async with bench.episode() as episode:
        script = f"""
if [ -n "$PY" ]; then
{python(_FORKS, str(_PROCESSES))}
else
  end=$(( $(date +%s) + 5 )); n=0
  while [ $n -lt {_PROCESSES} ] && [ $(date +%s) -lt $end ]; do
    i=0; while [ $i -lt 100 ]; do sleep 8 & i=$((i+1)); done 2>/dev/null
    n=$((n+100))
  done >/dev/null 2>&1 </dev/null
  say alive "$(ls -d /proc/[0-9]* | wc -l)"
fi
"""
        seen = None
        with contextlib.suppress(Lost):
            seen = await episode.seen(script, 40)
        await asyncio.sleep(5)  # they end by themselves
        after = await bench.expect_fine(episode, may_be_lost=True)
    most = int((seen or {"alive": ["0"]})["alive"][0]) if seen and seen["alive"] else 0
    if most >= _PROCESSES:
        raise Weak(f"{most:,} processes ran at once, and nothing refused more")
    return f"{f'{most:,} processes ran at once' if most else 'the shell was refused more processes'}; {after}"


@attack(
    "memory",
    "resources",
    tried="Used more memory than the sandbox may have.",
    matters="Without a limit, the kernel ends processes of others, the server among them.",
    change="Set a limit of memory: sandbox(memory=...), or --memory of an engine.",
)
async def memory(bench: Bench) -> str:
    await bench.neighbour()
    async with bench.episode() as episode:
        limits = await episode.seen(_LIMITS)
        total = int((limits["total"] or ["0"])[0])
        found = [int(each) for each in limits["memory"] if each.isdigit()]
        found += [int(each) * 1024 for each in limits["rlimit"] if each.isdigit()]
        limit = min([each for each in found if each < total], default=0)
        size = min(_MEMORY, limit * 3 // 2)
        if not limit:
            if not bench.options.resources:
                raise NotSupported(
                    "no limit below the machine's memory is seen inside; --attack-resources tries nonetheless"
                )
            size = min(_MEMORY, int((limits["available"] or ["0"])[0]) // 2)
        elif size < limit:
            return f"the limit seen inside is {limit >> 20} MiB, more than this attack uses"
        script = f"head -c {size} /dev/zero | tail >/dev/null; say ended $?"
        seen = None
        with contextlib.suppress(Lost):
            seen = await episode.seen(script)
        after = await bench.expect_fine(episode, may_be_lost=True)
    if seen and seen["ended"] == ["0"]:
        raise Weak(f"a command used {size >> 20} MiB, and nothing stopped it")
    known = f" (the limit is {limit >> 20} MiB)" if limit else ""
    return f"{size >> 20} MiB were refused{known}; {after}"


@attack(
    "disk",
    "resources",
    tried=f"Wrote {_DISK >> 30} GiB to the disk.",
    matters="A full disk stops the engine, the journal of the server and every other sandbox.",
    change="Set a limit of the disk: sandbox(disk=...), or a quota of the engine.",
)
async def disk(bench: Bench) -> str:
    await bench.neighbour()
    async with bench.episode() as episode:
        limits = await episode.seen(_LIMITS)
        free = min((int(each) for each in limits["free"]), default=0)
        if _DISK <= free < _ROOM and not bench.options.resources:
            raise NotSupported(
                f"{free >> 30} GiB of the disk are free: too little to fill {_DISK >> 30} of them"
            )
        script = f"""
f=$(pwd)/.orsay-disk; ( : >"$f" ) 2>/dev/null || f=/tmp/.orsay-disk
if fallocate -l {_DISK} "$f" 2>/dev/null; then :; else
  dd if=/dev/zero of="$f" bs=1048576 count={_DISK >> 20} 2>/dev/null
fi
sleep 2
say size $(( $(stat -c %b "$f" 2>/dev/null || echo 0) * 512 ))
rm -f "$f"
"""
        seen = None
        with contextlib.suppress(Lost):
            seen = await episode.seen(script, 100)
        after = await bench.expect_fine(episode, may_be_lost=True)
    size = int(seen["size"][0]) if seen and seen["size"] else 0
    if size >= _DISK:
        raise Weak(f"{size >> 20} MiB were written, and nothing refused more")
    return f"{f'after {size >> 20} MiB, more was refused' if size else 'the writing was stopped'}; {after}"


@attack(
    "many-files",
    "resources",
    tried=f"Made up to {_FILES:,} files within ten seconds, and opened up to {_OPEN:,}.",
    matters="Files use up inodes and descriptors, which a machine has in a number of its own.",
    change="Limit the disk of sandboxes, and their open files (ulimit -n).",
)
async def many_files(bench: Bench) -> str:
    await bench.neighbour()
    async with bench.episode() as episode:
        script = f"""
mkdir -p /tmp/.orsay-many && cd /tmp/.orsay-many
end=$(( $(date +%s) + 10 )); n=0
while [ $n -lt {_FILES} ] && [ $(date +%s) -lt $end ]; do
  i=0; while [ $i -lt 200 ]; do : >"f$n-$i" || break; i=$((i+1)); done; n=$((n+200))
done 2>/dev/null
say made "$n"
if [ -n "$PY" ]; then timeout 20 "$PY" -c '
import os, resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = []
try:
    while len(held) < {_OPEN}:
        held.append(os.open("/dev/null", 0))
except OSError:
    pass
print("orsay-" + "seen", "open", len(held))
'; fi
"""
        seen = await episode.seen(script)
        after = await bench.expect_fine(episode)
    return (
        f"{' '.join(seen['made'])} files were made, {' '.join(seen['open']) or 'none'} open at once; {after}"
    )


@attack(
    "output",
    "resources",
    tried=f"Printed {_OUTPUTS[-1] // 10**9} GB.",
    matters="An output that is kept whole fills the server's memory, its journal, and the model's context.",
    change="Bound what a tool returns: box.run(max_bytes=...), or a toolset of orsay.toolsets.",
)
async def output(bench: Bench) -> str:
    await bench.neighbour()
    async with bench.episode() as episode:
        for size in _OUTPUTS:  # what is not bounded shows in the first
            with contextlib.suppress(Lost):
                text = await episode.run(f"head -c {size} /dev/zero | tr '\\000' x", 100)
                happened = f"{size:,} bytes became {len(text):,} characters"
        after = await bench.expect_fine(episode)
    return f"{happened}; {after}"


@attack(
    "time-limit",
    "resources",
    tried=f"Ran a command past its limit of {_LIMIT_S:g} s that ignores SIGTERM and has detached children.",
    matters="A command that outlives its limit holds up the episode, and with it the batch.",
    change="Give box.run a timeout_s, which kills all that the command has started.",
)
async def time_limit(bench: Bench) -> str:
    if bench.command.time is None:
        raise NotSupported(f"the tool {bench.command.name} has no parameter for a time limit")
    async with bench.episode() as episode:
        started = time.monotonic()
        try:
            await episode.run(
                f"{_stubborn(episode, 300)}\ntrap '' TERM INT HUP\nwhile :; do sleep 1; done", _LIMIT_S
            )
        except Lost as exc:
            if time.monotonic() - started > _LIMIT_S + 10:
                raise Broken(f"a command with a limit of {_LIMIT_S:g} s did not end: {exc}") from exc
        took = time.monotonic() - started
        await bench.expect_fine(episode)
        left = await _alive(episode)
    if left:
        raise Weak(f"it was answered after {took:.1f} s, and {left} of its processes live on")
    return f"it was answered after {took:.1f} s, and nothing of it lives on"


@attack(
    "afterlife",
    "resources",
    tried="Left processes in sessions of their own that ignore SIGTERM, and ended the session.",
    matters="What lives on after its episode uses the machine until somebody notices.",
    change="End the sandbox with its session: self.sandbox(...) does; else in teardown().",
)
async def afterlife(bench: Bench) -> str:
    async with bench.episode() as episode:
        await episode.run(_stubborn(episode, 120))
        word = episode.token
        alive = await _alive(episode)
        seen = bench.seen_from_here(word)
        if not alive:
            raise Lost("the processes did not start")
        if not seen:
            raise NotSupported("the processes of the sandbox are not seen from here")
    end = time.monotonic() + _ENDED_S
    while left := bench.seen_from_here(word):
        if time.monotonic() > end:
            raise Broken(f"{left} processes still run {_ENDED_S:g} s after their session was deleted")
        await asyncio.sleep(0.2)
    return f"{alive} processes ended with their session"


def _stubborn(episode: Episode, seconds: int) -> str:
    """Processes that are hard to end: orphans in sessions of their own that ignore signals."""
    loop = f"n=0; while [ $n -lt {seconds} ]; do sleep 1; n=$((n+1)); done"
    body = f"trap '' TERM INT HUP; {loop}; : {episode.token}"
    quoted = body.replace("'", "'\\''")
    return f"""
(setsid sh -c '{quoted}' >/dev/null 2>&1 </dev/null &)
(nohup sh -c '{quoted}' >/dev/null 2>&1 </dev/null &)
( ( sh -c '{quoted}' >/dev/null 2>&1 </dev/null & ) & )
sleep 0.3"""


async def _alive(episode: Episode) -> int:
    half = len(episode.token) // 2
    word = f"{episode.token[:half]}[{episode.token[half]}]{episode.token[half + 1 :]}"
    seen = await episode.seen(
        f"""
n=0
for p in /proc/[0-9]*/cmdline; do tr '\\000' ' ' <"$p" 2>/dev/null | grep -q '{word}' && n=$((n+1)); done
say alive $n"""
    )
    return int((seen["alive"] or ["0"])[0])
