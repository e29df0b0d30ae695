"""Attacks over the network: metadata of clouds, the server, other sandboxes, raw packets."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from ..failures import NotSupported
from .attack import Broken, Lost, Weak, attack
from .bench import Bench
from .scripts import python

_METADATA = ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "metadata.google.internal")
_LISTENING_S = 60

_REACH = (
    """
import socket, sys
host, port = sys.argv[1], int(sys.argv[2])
try:
    with socket.create_connection((host, port), 3) as wire:
        wire.settimeout(3)
        print("orsay-" + "seen", "connected", host, port)
        lines = ["GET /list_environments HTTP/1.1", "Host: localhost", "Connection: close", "", ""]
        wire.sendall("\\r\\n".join(lines).encode())
        got = wire.recv(2000)
        print("orsay-" + "seen", "answer", host, port, repr(got)[:300])
except OSError:
    pass
""",
    """
  timeout 5 bash -c 'exec 3<>"/dev/tcp/$0/$1" || exit 1
    printf "%s-seen connected %s %s\\n" orsay "$0" "$1"
    printf "GET /list_environments HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n" >&3
    printf "%s-seen answer %s %s %s\\n" orsay "$0" "$1" "$(timeout 3 head -c 300 <&3 | tr -d "\\000-\\037")"
  ' "$1" "$2" 2>/dev/null
""",
)
REACH = f"""
reach() {{
  if [ -n "$PY" ]; then
{python(_REACH[0]).replace('"$PY" - ', '"$PY" - "$1" "$2"')}
  elif command -v bash >/dev/null && command -v timeout >/dev/null; then{_REACH[1]}
  else say lacks program
  fi
}}
gateway() {{
  while read -r i d g rest; do
    [ "$d" = 00000000 ] && printf '%d.%d.%d.%d\\n' "0x$(echo $g | cut -c7-8)" "0x$(echo $g | cut -c5-6)" \\
      "0x$(echo $g | cut -c3-4)" "0x$(echo $g | cut -c1-2)"
  done </proc/net/route
}}
"""
"""``reach HOST PORT`` connects and asks for a page; ``gateway`` prints the address of the default route."""

_LISTEN = """
import socket, sys, time
word, seconds = sys.argv[1].encode(), float(sys.argv[2])
server = socket.socket(socket.AF_INET)
server.bind(("0.0.0.0", 0))
server.listen()
server.settimeout(seconds)
print(server.getsockname()[1], flush=True)
end = time.time() + seconds
while time.time() < end:
    try:
        wire, _ = server.accept()
        with wire:
            wire.sendall(word)
    except OSError:
        break
"""


@attack(
    "metadata",
    "network",
    tried="Connected to the addresses at which clouds give credentials to their machines.",
    matters="The credentials are those of the machine, which often may read storage and start others.",
    change="Make sandboxes with network='none', or block 169.254.0.0/16 and fd00:ec2::/32 for them.",
)
async def metadata(bench: Bench) -> str:
    episode = await bench.explorer()
    calls = "\n".join(f"reach {host} 80 &" for host in _METADATA)
    seen = await episode.seen(f"{REACH}\n{calls}\nwait\nsay end")
    _need(seen["lacks"], seen["end"])
    if seen["connected"]:
        raise Broken(f"a command can connect to {', '.join(seen['connected'])}")
    return "none of them could be reached"


@attack(
    "reach-server",
    "network",
    tried="Connected to the server's own port, and to one that this check opened on the machine's loopback.",
    matters="A model that reaches the server opens sessions, reads tasks and ends its own episode.",
    change="Make sandboxes with network='none', or on a network from which the server's address is blocked;"
    " never with the network of the host.",
)
async def reach_server(bench: Bench) -> str:
    episode = await bench.explorer()
    host = urlsplit(bench.target.url).hostname or ""
    hosts = dict.fromkeys(["127.0.0.1", "host.docker.internal", host, *(_addresses() if bench.here else [])])
    async with _canary(bench.here) as (port, word):
        calls = [f"reach {each} {bench.port} &" for each in hosts]
        calls += [f'for g in $(gateway); do reach "$g" {bench.port} & done']
        if port:
            calls += [f"reach 127.0.0.1 {port} &", f'for g in $(gateway); do reach "$g" {port} & done']
        seen = await episode.seen("\n".join([REACH, *calls, "wait", "say end"]))
    _need(seen["lacks"], seen["end"])
    if any(word in each for each in seen["answer"]):
        raise Broken("a command can connect to the loopback of the machine")
    found = [each for each in seen["answer"] if "HTTP/1" in each]
    if found:
        raise Broken(f"the server answers a command at {' '.join(found[0].split()[:2])}")
    return f"neither was reached at {len(hosts)} addresses"


@attack(
    "reach-neighbour",
    "network",
    tried="Listened in one session on all addresses, and connected to it from another.",
    matters="Models of different episodes can exchange answers, and attack each other.",
    change="Make sandboxes with network='none', or on a network whose members cannot reach each other.",
)
async def reach_neighbour(bench: Bench) -> str:
    explorer, neighbour = await bench.explorer(), await bench.neighbour()
    seen = await explorer.seen(
        f"""
[ -n "$PY" ] || {{ say lacks program; exit 0; }}
cat >/tmp/.orsay-listen.py <<'ORSAY_END'
{_LISTEN}
ORSAY_END
"$PY" /tmp/.orsay-listen.py {explorer.token} {_LISTENING_S} >/tmp/.orsay-port 2>&1 </dev/null &
n=0; while [ ! -s /tmp/.orsay-port ] && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done
say port "$(cat /tmp/.orsay-port)"
for a in $(hostname -I 2>/dev/null || hostname -i 2>/dev/null); do say address "$a"; done
say end"""
    )
    _need(seen["lacks"], seen["end"])
    port = "".join(seen["port"])
    if not port.isdigit():
        raise Lost(f"nothing listens: {port!r}")
    addresses = [each for each in seen["address"] if ":" not in each]
    calls = "\n".join(f"reach {each} {port} &" for each in dict.fromkeys(["127.0.0.1", *addresses]))
    seen = await neighbour.seen(f"{REACH}\n{calls}\nwait\nsay end")
    found = [each for each in seen["answer"] if explorer.token in each]
    if found:
        raise Broken(f"another session was reached at {' '.join(found[0].split()[:2])}")
    if not addresses:
        return "sandboxes have no network beyond their loopback, and do not share it"
    return f"the other session was not reached at {', '.join(addresses)}"


@attack(
    "raw-packets",
    "network",
    tried="Opened sockets for raw packets.",
    matters="With them a sandbox on a shared network listens to others and forges their addresses.",
    change="Drop CAP_NET_RAW.",
)
async def raw_packets(bench: Bench) -> str:
    episode = await bench.explorer()
    code = """
import socket
for name, kind in (("packet", (17, 3, 0x0300)), ("raw", (2, 3, 1))):
    try:
        socket.socket(*kind).close()
        print("orsay-" + "seen", "open", name)
    except OSError:
        pass
own = ("lo", "tunl", "sit", "ip6", "gre", "erspan")
others = sorted(name for _, name in socket.if_nameindex() if not name.startswith(own))
print("orsay-" + "seen", "interfaces", *others)
print("orsay-" + "seen", "end")
"""
    seen = await episode.seen(f'if [ -n "$PY" ]; then\n{python(code)}\nelse say lacks program; fi')
    _need(seen["lacks"], seen["end"])
    if not seen["open"]:
        return "they were refused"
    if "".join(seen["interfaces"]):
        raise Weak(f"a command can send and read raw packets on {' '.join(seen['interfaces'])}")
    return "they can be opened, and reach the sandbox's own loopback only"


@asynccontextmanager
async def _canary(wanted: bool) -> AsyncIterator[tuple[int, str]]:
    """A port on the loopback of this machine that answers with a word; port 0 if it is not wanted."""
    word = f"canary{secrets.token_hex(8)}"
    if not wanted:
        yield 0, word
        return

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(word.encode())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], word


def _addresses() -> list[str]:
    """Addresses of this machine by its name, and the one of its default route."""
    found = []
    try:
        found += [str(each[4][0]) for each in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    except OSError:
        found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
        try:
            wire.connect(("192.0.2.1", 9))  # sends nothing
            found.append(str(wire.getsockname()[0]))
        except OSError:
            return found
    return found


def _need(lacks: list[str], end: list[str]) -> None:
    if lacks:
        raise NotSupported("the sandbox has no program that opens connections (Python, or bash with timeout)")
    if not end:
        raise Lost("the attack did not end")
