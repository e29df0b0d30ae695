"""System calls for namespaces and mounts that the standard library lacks. All raise OSError."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

__all__ = [
    "NEW_MOUNTS",
    "NEW_USERS",
    "attach",
    "become_subreaper",
    "copy_tree",
    "die_with_parent",
    "enter",
    "map_ids",
    "mount",
    "private_mounts",
    "unshare",
]

NEW_MOUNTS = 0x20000
NEW_USERS = 0x10000000

_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442  # the same on all machines that have an agent
_HERE = -100  # AT_FDCWD
_EMPTY_PATH, _RECURSIVE = 0x1000, 0x8000
_CLONE, _CLOSE_ON_EXEC = 1, os.O_CLOEXEC
_FROM_DESCRIPTOR = 4
_MAP_IDS = 0x100000
_PRIVATE_RECURSIVE = 0x40000 | 0x4000
_PDEATHSIG, _SUBREAPER = 1, 36
_KILL = 9

_libc: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class _Attributes(ctypes.Structure):
    """``struct mount_attr``."""

    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("users", ctypes.c_uint64),
    )


def _checked(result: int, about: str = "") -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), about)
    return result


def unshare(flags: int) -> None:
    """Leave namespaces for new ones."""
    _checked(_libc.unshare(flags), "namespaces")


def enter(namespace: int) -> None:
    """Enter the namespace of a descriptor."""
    _checked(_libc.setns(namespace, 0), "namespace")


def private_mounts() -> None:
    """Have mounts of this namespace reach no other."""
    _checked(_libc.mount(None, b"/", None, _PRIVATE_RECURSIVE, None), "/")


def mount(kind: str, target: str, options: str, flags: int = 0) -> None:
    """Mount a file system without a device."""
    name = kind.encode()
    _checked(_libc.mount(name, os.fsencode(target), name, flags, options.encode()), f"{kind} on {target}")


def copy_tree(path: str, *, below: bool) -> int:
    """A folder or file as a mount of its own that is nowhere yet, with the mounts ``below`` it if wanted."""
    flags = _CLONE | _CLOSE_ON_EXEC | (_RECURSIVE if below else 0)
    return _checked(_libc.syscall(_OPEN_TREE, _HERE, os.fsencode(path), flags), path)


def map_ids(tree: int, users: int, *, below: bool) -> None:
    """Shift owners in such a mount as the user namespace of that descriptor does."""
    wanted = _Attributes(set=_MAP_IDS, users=users)
    flags = _EMPTY_PATH | (_RECURSIVE if below else 0)
    size = ctypes.c_size_t(ctypes.sizeof(wanted))
    _checked(_libc.syscall(_MOUNT_SETATTR, tree, b"", flags, ctypes.byref(wanted), size), "owners of a mount")


def attach(tree: int, target: str) -> None:
    """Give such a mount its place."""
    _checked(_libc.syscall(_MOVE_MOUNT, tree, b"", _HERE, os.fsencode(target), _FROM_DESCRIPTOR), target)


def become_subreaper() -> None:
    """Become the parent of orphans below."""
    _checked(_libc.prctl(_SUBREAPER, 1, 0, 0, 0))


def die_with_parent() -> None:
    """Be killed when the parent ends."""
    _checked(_libc.prctl(_PDEATHSIG, _KILL, 0, 0, 0))
