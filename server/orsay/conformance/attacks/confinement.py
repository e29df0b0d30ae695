"""Attacks on the border between a sandbox and the machine that it runs on."""

from __future__ import annotations

import re

from ..failures import NotSupported
from .attack import Broken, Lost, Weak, attack
from .bench import Bench
from .scripts import find, python

_DROP = (
    "Give sandboxes no privileges: drop capabilities, set no_new_privs, keep Docker's seccomp filter; never"
    " --privileged."
)
_CAPABILITIES = {
    16: "SYS_MODULE",
    17: "SYS_RAWIO",
    19: "SYS_PTRACE",
    21: "SYS_ADMIN",
    2: "DAC_READ_SEARCH",
    22: "SYS_BOOT",
    25: "SYS_TIME",
    12: "NET_ADMIN",
    32: "MAC_OVERRIDE",
    33: "MAC_ADMIN",
    39: "BPF",
}
"""Those with which a root in a container changes its machine, by their numbers."""
_LESSER = {13: "NET_RAW", 27: "MKNOD", 18: "SYS_CHROOT", 31: "SETFCAP", 34: "SYSLOG", 38: "PERFMON"}
_KERNEL_FILES = (
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/fs/binfmt_misc/register",
    "/proc/sysrq-trigger",
    "/sys/kernel/uevent_helper",
    "/sys/power/state",
    "/sys/fs/cgroup/*/release_agent",
    "/sys/fs/cgroup/release_agent",
    "/sys/fs/cgroup/cgroup.procs",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    "/sys/fs/cgroup/memory.max",
)
_DEVICES = (
    "/dev/mem /dev/kmem /dev/kmsg /dev/port /proc/kcore"
    " /dev/sd* /dev/vd* /dev/nvme* /dev/xvd* /dev/dm-* /dev/loop*"
)
_SOCKETS = (
    "docker.sock",
    "containerd.sock*",
    "podman.sock",
    "crio.sock",
    "buildkitd.sock",
    "dockershim.sock",
    "kubelet.sock",
)
_CALLS = """\
import ctypes, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def tell(name, result):
    print("orsay-" + "seen", name, "yes" if result >= 0 else "no " + os.strerror(ctypes.get_errno()))
def child(name, work):
    pid = os.fork()
    if pid == 0:
        try:
            tell(name, work())
        finally:
            sys.stdout.flush()
            os._exit(0)
    os.waitpid(pid, 0)
"""
_IDLE = re.compile(r"^(\S*/)?(sleep|tail|cat|sh|bash|docker-init|tini|dumb-init|catatonit|init)\b")
"""First processes that hold nothing and decide nothing."""
_PTRACE = """\
libc.ptrace.restype = ctypes.c_long
def attach():
    done = libc.ptrace(16, 1, None, None)
    if done == 0:
        os.waitpid(1, 0x40000000)
        libc.ptrace(17, 1, None, None)
    return done
child("attached", attach)
"""
_MOUNT = """\
target = b"/tmp/.orsay-m"
def mounted(*what):
    done = libc.mount(*what)
    if done == 0:
        libc.umount2(target, 2)
    return done
child("tmpfs", lambda: mounted(b"none", target, b"tmpfs", 0, None))
child("bind", lambda: mounted(b"/proc", target, None, 4096, None))
child("namespace", lambda: libc.unshare(0x00020000))
child("user-namespace", lambda: libc.unshare(0x10000000))
"""
_MODULE = """\
import platform
number = {"x86_64": 175, "aarch64": 105}.get(platform.machine(), -1)
done = libc.syscall(number, b"", 0, b"") if number > 0 else -1
print("orsay-" + "seen", "module", ctypes.get_errno())
"""


@attack(
    "read-memory",
    "confinement",
    tried="Opened the memory of processes that the model did not start, and attached to them as a debugger.",
    matters="Memory of the sandbox's own first process, or of the machine's, holds keys and decides what the"
    " environment sees.",
    change="Drop CAP_SYS_PTRACE; give sandboxes a process namespace and an undumpable first process.",
)
async def read_memory(bench: Bench) -> str:
    episode = await bench.explorer()
    seen = await episode.seen(
        f"""
say first "$(tr '\\000' ' ' </proc/1/cmdline | cut -c1-80)"
( : 9<>/proc/1/mem ) 2>/dev/null && say opened 1
if [ -n "$PY" ]; then
{python(_CALLS + _PTRACE)}
fi
say end"""
    )
    if not seen["end"]:
        raise Lost("the attack did not end")
    first = "".join(seen["first"])
    if "yes" in seen["attached"] or seen["opened"]:
        if _IDLE.search(first):
            return f"process 1 can be traced; it is idle ({first})"
        raise Broken(f"process 1 ({first or 'without a name'}) can be read, written or traced by a command")
    return "neither the memory of process 1 could be opened, nor could it be traced"


@attack(
    "see-processes",
    "confinement",
    tried="Looked for processes of the machine among those that can be seen.",
    matters="What is seen can be read in part, and stopped by the same user: the server, other sandboxes.",
    change="Give every sandbox a process namespace of its own, with a /proc of its own.",
)
async def see_processes(bench: Bench) -> str:
    episode = await bench.explorer()
    seen = await episode.seen(
        """
for p in /proc/[0-9]*; do
  n=$(cat "$p/comm" 2>/dev/null) || continue
  case "$n" in
    systemd|systemd-*|dockerd|containerd|containerd-shim*|kthreadd|ksoftirqd*|sshd|kubelet|orsay|uvicorn|crio|podman)
      say host "$n (${p#/proc/})";;
  esac
done
say count "$(ls -d /proc/[0-9]* | wc -l)"
"""
    )
    found = seen["host"]
    if found:
        raise Broken(f"processes of the machine can be seen: {', '.join(found[:10])}")
    return f"{' '.join(seen['count']) or 'no'} processes can be seen, none of the machine"


@attack(
    "write-kernel-settings",
    "confinement",
    tried="Opened settings of the kernel and limits of the sandbox for writing, and wrote nothing.",
    matters="They hold for the whole machine; some name a program that the kernel runs outside of sandboxes.",
    change="Leave /proc/sys and /sys read-only, as engines do unless they are told otherwise.",
)
async def write_kernel_settings(bench: Bench) -> str:
    episode = await bench.explorer()
    files = " ".join(_KERNEL_FILES)
    seen = await episode.seen(
        f"""
for f in {files}; do
  [ -e "$f" ] || continue
  say there "$f"
  ( : 9>>"$f" ) 2>/dev/null && say open "$f"
done
say end"""
    )
    if seen["open"]:
        raise Broken(f"a command can write {', '.join(seen['open'])}")
    if not seen["end"]:
        raise Lost("the attack did not end")
    return f"none of {len(seen['there'])} files could be opened for writing"


@attack(
    "mount",
    "confinement",
    tried="Mounted and remounted file systems, also in new namespaces of users.",
    matters="Mounts undo read-only folders; namespaces of users open more of the kernel to attacks.",
    change=_DROP,
)
async def mount(bench: Bench) -> str:
    episode = await bench.explorer()
    seen = await episode.seen(
        f"""
mkdir -p /tmp/.orsay-m
if [ -n "$PY" ]; then
{python(_CALLS + _MOUNT)}
fi
if command -v mount >/dev/null; then
  mount -t tmpfs none /tmp/.orsay-m 2>/dev/null && umount /tmp/.orsay-m && say tmpfs yes
  mount --bind /proc /tmp/.orsay-m 2>/dev/null && umount /tmp/.orsay-m && say bind yes
fi
command -v unshare >/dev/null && unshare -U true 2>/dev/null && say user-namespace yes
say end"""
    )
    found = [name for name in ("tmpfs", "bind", "namespace") if "yes" in seen[name]]
    if found:
        raise Broken(f"a command can mount file systems ({', '.join(found)})")
    if not seen["end"]:
        raise Lost("the attack did not end")
    if "yes" in seen["user-namespace"]:
        raise Weak("a command can make a namespace of users, in which it is root with all capabilities")
    return "all mounts and namespaces were refused"


@attack(
    "devices",
    "confinement",
    tried="Opened memory and disks of the machine, and made device files for them.",
    matters="A disk or the memory of the machine is everything on it.",
    change=_DROP,
)
async def devices(bench: Bench) -> str:
    episode = await bench.explorer()
    seen = await episode.seen(
        f"""
for d in {_DEVICES}; do
  [ -b "$d" ] || [ -c "$d" ] || [ -f "$d" ] || continue
  head -c 1 "$d" >/dev/null 2>&1 && say open "$d"
done
rm -f /tmp/.orsay-d /dev/.orsay-d
for where in /tmp/.orsay-d /dev/.orsay-d; do
  for what in "c 1 1" "b 8 0" "b 7 0" "b 254 0" "b 253 0" "b 259 0" "c 1 11"; do
    if mknod "$where" $what 2>/dev/null; then
      say made "$what"
      head -c 1 "$where" >/dev/null 2>&1 && say open "$what"
      rm -f "$where"
    fi
  done
done
say end"""
    )
    if seen["open"]:
        raise Broken(f"a command can read {', '.join(sorted(set(seen['open'])))}")
    if not seen["end"]:
        raise Lost("the attack did not end")
    if seen["made"]:
        return "device files can be made, and not opened"
    return "no device of the machine could be opened or made"


@attack(
    "privileges",
    "confinement",
    tried="Read the capabilities of commands, tried to load a kernel module, looked for a syscall filter.",
    matters="With capabilities such as SYS_ADMIN, root in the sandbox is root of the machine.",
    change=_DROP,
)
async def privileges(bench: Bench) -> str:
    episode = await bench.explorer()
    seen = await episode.seen(
        f"""
while read -r k v; do
  case "$k" in CapEff:|CapBnd:|Seccomp:|NoNewPrivs:) say "${{k%:}}" "$v";; esac
done </proc/self/status
read -r a b c </proc/self/uid_map; say map "$a $b $c"
if [ -n "$PY" ]; then
{python(_CALLS + _MODULE)}
fi
"""
    )
    if not seen["CapEff"]:
        raise NotSupported("the sandbox does not show the capabilities of its processes")
    held = int(seen["CapEff"][0], 16)
    own_users = bool(seen["map"]) and not seen["map"][0].startswith("0 0 4294967295")
    heavy = [name for number, name in _CAPABILITIES.items() if held >> number & 1]
    # init_module of nothing: ENOEXEC (8) says that the kernel read it, and so would take a module.
    if seen["module"] == ["8"]:
        raise Broken("a command can load kernel modules")
    if heavy and not own_users:
        raise Broken(f"commands hold {', '.join(heavy)}")
    if heavy:
        raise Weak(f"commands hold {', '.join(heavy)}, in a namespace of users")
    if seen["Seccomp"] == ["0"]:
        raise Weak("no filter of system calls is set")
    lesser = [name for number, name in _LESSER.items() if held >> number & 1]
    if lesser:
        return f"commands hold none of the capabilities that reach the machine; they hold {', '.join(lesser)}"
    return "commands hold none of the capabilities that reach the machine"


@attack(
    "engine-socket",
    "confinement",
    tried="Looked for sockets of container engines.",
    matters="Who speaks to the engine starts a container with the disk of the machine in it.",
    change="Do not mount the engine's socket into sandboxes; give them no network of the host.",
)
async def engine_socket(bench: Bench) -> str:
    episode = await bench.explorer()
    names = "\\( " + " -o ".join(f"-name '{each}'" for each in _SOCKETS) + " \\)"
    # find -type s trusts the folder, in which a mounted socket is the plain file that it was mounted on.
    seen = await episode.seen(
        f"""
{{
  find /run /var/run -maxdepth 4 {names} -print 2>/dev/null
  {find(f"{names} -print")}
}} | sort -u | head -10 | while read -r f; do [ -S "$f" ] && [ -w "$f" ] && say socket "$f"; done
grep -ao '@/containerd-shim[^ ]*' /proc/net/unix | head -1 | while read -r f; do say abstract "$f"; done
say end"""
    )
    found = [*seen["socket"], *seen["abstract"]]
    if found:
        raise Broken(f"a command can reach {', '.join(found)}")
    if not seen["end"]:
        raise Lost("the attack did not end")
    return "no such socket is in reach"
