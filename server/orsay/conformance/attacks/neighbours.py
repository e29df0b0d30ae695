"""Attacks of one session on another of the same task."""

from __future__ import annotations

from .attack import Broken, Lost, attack
from .bench import Bench
from .scripts import find

_APART = "Make a sandbox for each session in setup(), and share no writable folder between them."


@attack(
    "neighbour-files",
    "neighbours",
    tried="Wrote files in one session, and looked for them in another of the same task.",
    matters="Episodes of a group copy from each other, and one spoils the work of the rest.",
    change=_APART,
)
async def neighbour_files(bench: Bench) -> str:
    explorer, neighbour = await bench.explorer(), await bench.neighbour()
    word = explorer.token
    folders = f'. "$HOME" / /tmp /var/tmp /dev/shm /run /mnt $({find("-type d -print")} | head -300)'
    wrote = await explorer.seen(
        f"""
n=0
for d in {folders}; do [ -d "$d" ] && : >"$d/{word}" && n=$((n+1)); done 2>/dev/null
say wrote $n"""
    )
    if not wrote["wrote"]:
        raise Lost("the files were not written")
    look = f"""
find / -path /proc -prune -o -name {word} -print | head -5 | while read -r f; do say file "$f"; done
say end"""
    seen = await neighbour.seen(look)
    await explorer.run(f"find / -path /proc -prune -o -name {word} -exec rm -f {{}} + 2>/dev/null")
    if seen["file"]:
        raise Broken(f"another session sees {', '.join(seen['file'])}")
    if not seen["end"]:
        raise Lost("the search did not end")
    return f"files in {wrote['wrote'][0]} folders are not seen by another session"


@attack(
    "neighbour-processes",
    "neighbours",
    tried="Left a process in one session, and looked for it in another.",
    matters="Who sees the processes of another episode can end them.",
    change=_APART,
)
async def neighbour_processes(bench: Bench) -> str:
    explorer, neighbour = await bench.explorer(), await bench.neighbour()
    await explorer.run(f"sh -c 'sleep 60; : {explorer.token}' >/dev/null 2>&1 </dev/null &")
    half = len(explorer.token) // 2
    word = f"{explorer.token[:half]}[{explorer.token[half]}]{explorer.token[half + 1 :]}"  # matches no script
    look = f"""
for p in /proc/[0-9]*/cmdline; do
  tr '\\000' ' ' <"$p" 2>/dev/null | grep -q '{word}' && say process "$p"
done
say end"""
    own, seen = await explorer.seen(look), await neighbour.seen(look)
    if seen["process"]:
        raise Broken(f"another session sees {', '.join(seen['process'][:5])}")
    if not own["process"] or not seen["end"]:
        raise Lost("the process was not seen in its own session either")
    return "a process is seen in its own session only"
