"""The filter of system calls in a sandbox, as a program of classic BPF (seccomp(2))."""

from __future__ import annotations

import struct

__all__ = ["filter_program"]

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _ANSWER = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _MACHINE, _FIRST, _SECOND = 0, 4, 16, 24  # offsets in struct seccomp_data; low halves of arguments
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_NEW_NAMESPACES = 0x7E020080  # CLONE_NEW* of clone(2)
_X32 = 0x40000000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

_MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE, _IOCTL = {"x86_64": 56, "aarch64": 220}, {"x86_64": 16, "aarch64": 29}
_CLONE3 = 435
_REFUSED = """
acct 163 89
add_key 248 217
adjtimex 159 171
bpf 321 280
clock_adjtime 305 266
clock_settime 227 112
delete_module 176 106
fanotify_init 300 262
finit_module 313 273
fsconfig 431 431
fsmount 432 432
fsopen 430 430
fspick 433 433
init_module 175 105
io_uring_enter 426 426
io_uring_register 427 427
io_uring_setup 425 425
ioperm 173 -
iopl 172 -
kexec_file_load 320 294
kexec_load 246 104
keyctl 250 219
lookup_dcookie 212 18
mbind 237 235
migrate_pages 256 238
mount 165 40
mount_setattr 442 442
move_mount 429 429
move_pages 279 239
open_by_handle_at 304 265
open_tree 428 428
perf_event_open 298 241
pivot_root 155 41
quotactl 179 60
reboot 169 142
request_key 249 218
set_mempolicy 238 237
setns 308 268
settimeofday 164 170
swapoff 168 225
swapon 167 224
syslog 103 116
umount2 166 39
unshare 272 97
userfaultfd 323 282
"""
"""Calls with their numbers on x86_64 and aarch64."""


def filter_program(machine: str) -> bytes:
    """The filter for a machine (``x86_64`` or ``aarch64``), as bubblewrap reads it.

    It refuses namespaces, mounts, keys, kernel modules, tracing of the kernel, io_uring, clocks, and input to
    terminals, with EPERM; and all calls by another machine's numbers. ``clone3``, whose flags it cannot see,
    is not there, so that libraries use ``clone``.
    """
    column = [*_MACHINES].index(machine) + 1
    numbers = [line.split()[column] for line in _REFUSED.strip().splitlines()]
    flags = [_line(_LOAD, _FIRST), *_refused(_ANY_BIT, _NEW_NAMESPACES, _EPERM), _line(_ANSWER, _ALLOW)]
    requests = [
        _line(_LOAD, _SECOND),
        *_refused(_EQUAL, _TIOCSTI, _EPERM),
        *_refused(_EQUAL, _TIOCLINUX, _EPERM),
        _line(_ANSWER, _ALLOW),
    ]
    lines = [
        _line(_LOAD, _MACHINE),
        _line(_EQUAL, _MACHINES[machine], 1, 0),
        _line(_ANSWER, _ERROR | _ENOSYS),
        _line(_LOAD, _NUMBER),
        *_refused(_AT_LEAST, _X32, _ENOSYS),
        *_refused(_EQUAL, _CLONE3, _ENOSYS),
        *(line for each in numbers if each != "-" for line in _refused(_EQUAL, int(each), _EPERM)),
        *(_line(_EQUAL, _CLONE[machine], 0, len(flags)), *flags),
        *(_line(_EQUAL, _IOCTL[machine], 0, len(requests)), *requests),
        _line(_ANSWER, _ALLOW),
    ]
    return b"".join(lines)


def _line(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, value)


def _refused(test: int, value: int, error: int) -> list[bytes]:
    return [_line(test, value, 0, 1), _line(_ANSWER, _ERROR | error)]
