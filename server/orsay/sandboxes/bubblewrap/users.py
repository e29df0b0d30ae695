"""User namespaces: root of a sandbox is nobody outside."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
from pathlib import Path

from . import linux

__all__ = ["FIRST_ID", "new_users", "own_users"]

FIRST_ID = 0x70000000  # above the ranges that systemd gives to containers and users (UIDS-GIDS of systemd)
_COUNT = 0x10000


def new_users() -> int:
    """A user namespace for root: its ids 0 to 65,535 are ids of nobody outside. Raises OSError."""
    ours, its = os.pipe()
    go, wait = os.pipe()[::-1]
    pid = os.fork()
    if not pid:
        try:
            os.close(go)
            linux.unshare(linux.NEW_USERS)
            os.write(its, b"1")
            os.read(wait, 1)
        finally:
            os._exit(0)
    os.close(its)
    os.close(wait)
    try:
        if not os.read(ours, 1):
            raise OSError("no user namespaces here")
        for kind in ("uid_map", "gid_map"):
            Path(f"/proc/{pid}/{kind}").write_text(f"0 {FIRST_ID} {_COUNT}\n")
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
    finally:
        os.close(ours)
        os.close(go)
        os.waitpid(pid, 0)


def own_users(*, several: bool) -> bool:
    """Become root of a new user namespace, with mounts of its own, as a user who is not root.

    ``several``: with the further ids that /etc/subuid has for the user, if any; True where that worked.
    Raises OSError.
    """
    uid, gid = os.geteuid(), os.getegid()
    commands = _mapping(uid, gid) if several else None
    go, wait = os.pipe()[::-1]
    pid = os.fork() if commands is not None else 0
    if commands is not None and not pid:
        code = 1
        try:
            os.close(go)
            if os.read(wait, 1):
                code = any(
                    subprocess.run(each, check=False, capture_output=True).returncode for each in commands
                )
        finally:
            os._exit(code)
    os.close(wait)
    try:
        linux.unshare(linux.NEW_USERS | linux.NEW_MOUNTS)
        mapped = False
        if pid:
            os.write(go, b"1")
            mapped = os.waitpid(pid, 0)[1] == 0
            pid = 0
        if not mapped:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
            Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        linux.private_mounts()
    finally:
        os.close(go)
        if pid:
            os.waitpid(pid, 0)
    return mapped


def _mapping(uid: int, gid: int) -> list[list[str]] | None:
    tools = shutil.which("newuidmap"), shutil.which("newgidmap")
    ranges = _further("/etc/subuid", uid), _further("/etc/subgid", uid)
    commands = []
    for tool, found, own in zip(tools, ranges, (uid, gid), strict=True):
        if tool is None or found is None:
            return None
        first, count = found
        commands.append([tool, str(os.getpid()), "0", str(own), "1", "1", first, count])
    return commands


def _further(path: str, uid: int) -> tuple[str, str] | None:
    names = {str(uid)}
    with contextlib.suppress(KeyError):
        names.add(pwd.getpwuid(uid).pw_name)
    with contextlib.suppress(OSError):
        for line in Path(path).read_text().splitlines():
            name, _, rest = line.partition(":")
            first, _, count = rest.partition(":")
            if name in names and first.isdecimal() and count.isdecimal():
                return first, count
    return None
