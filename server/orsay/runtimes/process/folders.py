"""Folders of this machine at paths that code expects, for one process and its children alone.

The process gets a mount namespace of its own, so nothing changes for others; without the privilege for that
it gets a user namespace too, where the system allows it. A path that exists is covered. For one that does
not, the root becomes a folder in memory with all that the root has, and the path beside it: the machine's
own root is not written to.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["show_folders"]

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_READ_ONLY, _REMOUNT, _BIND, _TREE, _SLAVE = 1, 32, 4096, 16384, 1 << 19
_DETACH = 2
_KEPT_FLAGS = {2: 2, 4: 4, 8: 8, 1024: 1024, 2048: 2048, 4096: 1 << 21}
"""Flags of a mount by those of statvfs: a user namespace cannot take them away."""
_OLD = ".orsay-root"


def show_folders(folders: Mapping[str, str]) -> None:
    """Make each folder visible at its path, read-only. Call it before there are other threads.

    Raises OSError where the system has no way to, or forbids it; the text says what was tried.
    """
    wanted = {
        path: folder for path, folder in folders.items() if os.path.realpath(path) != os.path.realpath(folder)
    }
    for path, folder in wanted.items():
        if not os.path.isdir(folder):
            raise FileNotFoundError(f"there is no folder {folder}")
        top = "/" + path.strip("/").partition("/")[0]
        if not os.path.isdir(path) and os.path.lexists(top):
            raise FileNotFoundError(f"there is no folder {path} to mount it at; create it, empty")
    if not wanted:
        return
    if sys.platform != "linux":
        raise OSError("only Linux has mounts of one process")
    here = os.getcwd()
    try:
        _own_namespace()
        _mount("none", "/", _TREE | _SLAVE)
        if all(os.path.isdir(path) for path in wanted):
            _show(wanted, above="")
        else:
            _move_root(os.path.realpath(next(iter(wanted.values()))))
            _show(wanted, above=f"/{_OLD}")
            _call("umount2", f"/{_OLD}".encode(), _DETACH)
            os.rmdir(f"/{_OLD}")
    finally:
        os.chdir(here)


def _own_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    try:
        _call("unshare", _NEW_MOUNTS)
    except PermissionError:
        _call("unshare", _NEW_MOUNTS | _NEW_USER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def _move_root(staging: str) -> None:
    """Make a folder in memory the root, with what the root had, and the whole old one at ``_OLD``."""
    _mount("tmpfs", staging, 0, kind="tmpfs", options="mode=0755")
    os.chdir(staging)
    os.mkdir(_OLD)
    _call("pivot_root", b".", _OLD.encode())
    os.chdir("/")
    with os.scandir(f"/{_OLD}") as entries:
        for entry in entries:
            target = f"/{entry.name}"
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), target)
                continue
            if entry.is_dir():
                os.mkdir(target)
            else:
                Path(target).touch()
            _mount(entry.path, target, _BIND | _TREE)


def _show(folders: Mapping[str, str], *, above: str) -> None:
    """Mount the folders, found below ``above``."""
    for path, folder in folders.items():
        source = above + os.path.realpath(folder)
        os.makedirs(path, exist_ok=True)
        _mount(source, path, _BIND | _TREE)
        flags = os.statvfs(path).f_flag
        kept = sum(flag for known, flag in _KEPT_FLAGS.items() if flags & known)
        _mount("none", path, _BIND | _REMOUNT | _READ_ONLY | kept)


def _mount(source: str, target: str, flags: int, *, kind: str = "", options: str = "") -> None:
    words = (source.encode(), os.fsencode(target), kind.encode() or None)
    _call("mount", *words, ctypes.c_ulong(flags), options.encode() or None)


def _call(name: str, *arguments: object) -> None:
    """Call the C library. Raises OSError."""
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    if function(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
