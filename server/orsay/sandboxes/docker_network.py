"""The network of open sandboxes: a way to other machines, and none to the engine's own.

A bridge of Docker forwards what sandboxes send, and the engine's machine is the next hop. What is addressed
to that machine itself, by whatever address, is refused there by rules of nftables, before ports are
translated. They are set by a keeper: a container in the machine's own network which may change it, and runs
our agent alone. So nothing is asked of the engine but its interface, and it may be on another machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Address
from pathlib import Path

from ..errors import EngineError, OrsayError, SandboxError, SandboxRefused
from ..logs import get_logger
from ..runtimes.docker.engine import Engine
from ..runtimes.docker.spec import ContainerSpec
from .agent.connection import AgentConnection
from .docker_frames import EngineFrames
from .nftables import NETLINK_NETFILTER, Chain, Verdict, exists, removal, replacement, rules
from .sandbox import Sandbox

__all__ = ["OpenNetwork"]

_PREFIX, _UNGUARDED = "orsbox", "orsfree"
"""Begin the names of bridges of sandboxes, of this server and of others: with and without the rules."""
_TABLE = "orsay-sandboxes-1"
"""Of all servers that have these rules. It stays when they end: it says nothing of other interfaces."""
_KEEPER = "/.orsay-agent"
_READY_LIMIT_S = 60.0
_LINK_LOCAL = IPv4Address("169.254.0.0")
_PREROUTING, _FORWARD = 0, 2
_BEFORE_TRACKING, _BEFORE_DOCKER = -300, -1
_TCP, _UDP, _DNS = 6, 17, 53
_LOCAL_ADDRESS = re.compile(r"\|-- ([\d.]+)\n\s+/32 host LOCAL")  # /proc/net/fib_trie
_HINT = "ask for no network, or set sandboxes_reach_machine to have sandboxes reach the engine's machine"

_log = get_logger(__name__)


class OpenNetwork:
    """A network that is made when ``ready`` is first called, with rules that stand as long as it does.

    ``reaches_machine``: without the rules.
    """

    def __init__(
        self, engine: Engine, labels: Mapping[str, str], *, lease_s: float, reaches_machine: bool = False
    ) -> None:
        word = uuid.uuid4().hex[:8]
        self.interface = f"{_UNGUARDED if reaches_machine else _PREFIX}{word}"
        """Name of the bridge on the engine's machine."""
        self._name = f"orsay-sandboxes-{word}"
        self._engine = engine
        self._labels = dict(labels)
        self._lease_s = lease_s
        self._reaches_machine = reaches_machine
        self._lock = asyncio.Lock()
        self._made = self._is_guarded = False
        self._keeper: Sandbox | None = None
        self._is_elsewhere = not engine.url.startswith("unix:")
        """True where the engine's machine may be another one than the server's."""
        self._tables = [_TABLE, self.interface] if self._is_elsewhere else [_TABLE]

    async def ready(self, image: str, agent: bytes) -> str:
        """The network's name, once it is made and its rules stand. ``image`` is one that the engine has.

        Raises SandboxRefused where rules cannot be set there, EngineError, SandboxError.
        """
        async with self._lock:
            if not self._made:
                await self._engine.create_network(
                    self._name, labels=self._labels, interface=self.interface, internal=False
                )
                self._made = True
            if not self._reaches_machine:
                await self._guard(image, agent)
        return self._name

    async def _guard(self, image: str, agent: bytes) -> None:
        """Set the rules, unless they stand: whoever flushes those of the machine takes them away."""
        if self._keeper is None or self._keeper.gone is not None:
            self._keeper = await self._new_keeper(image, agent)
        try:
            if not (self._is_guarded and await self._stand(self._keeper)):
                await self._set_rules(self._keeper)
                self._is_guarded = True
        except OSError as exc:
            raise SandboxRefused(
                f"the engine's machine takes no rules for the open network (nftables: {exc.strerror}):"
                f" {_HINT}"
            ) from exc

    async def _stand(self, keeper: Sandbox) -> bool:
        try:
            await keeper.netlink(NETLINK_NETFILTER, b"".join(map(exists, self._tables)))
        except OSError as exc:
            if exc.errno != errno.ENOENT:
                raise
            return False
        return True

    async def _set_rules(self, keeper: Sandbox) -> None:
        try:
            servers = _name_servers(await keeper.read("/etc/resolv.conf"))
        except OSError:  # a link in the image
            servers = []
        await keeper.netlink(NETLINK_NETFILTER, replacement(_TABLE, _chains(servers)))
        if self._is_elsewhere:
            await keeper.netlink(
                NETLINK_NETFILTER, replacement(self.interface, [_from_server(self.interface)])
            )

    async def _new_keeper(self, image: str, agent: bytes) -> Sandbox:
        try:
            container = await self._engine.create(
                ContainerSpec(
                    image=image,
                    entrypoint=(_KEEPER, str(math.ceil(self._lease_s))),
                    command=(),
                    labels=self._labels,
                    user="0:0",
                    network="host",
                    memory_bytes=32 << 20,
                    pids=32,
                    capabilities=("NET_ADMIN",),
                    init=False,
                    log_bytes=1_000_000,
                )
            )
        except EngineError as exc:
            raise SandboxRefused(
                f"the engine lets no container set rules for its network ({exc}): {_HINT}"
            ) from exc
        connection = AgentConnection(self._lease_s)

        async def remove() -> None:
            await self._engine.remove(container)

        keeper = Sandbox("keeper", connection, remove)
        try:
            await self._engine.put(container, _KEEPER, agent, mode=0o755)
            await self._engine.attach_protocol(container, EngineFrames(connection))
            await self._engine.start(container)
            async with asyncio.timeout(_READY_LIMIT_S):
                await connection.ready()
        except BaseException as exc:
            with contextlib.suppress(EngineError):
                await keeper.close()
            if isinstance(exc, TimeoutError):
                raise SandboxError(f"the keeper of rules did not answer in {_READY_LIMIT_S:g} s") from None
            raise
        return keeper

    async def close(self) -> None:
        """Remove the network, which must be empty, and its rules; safe to call twice."""
        async with self._lock:
            keeper, self._keeper = self._keeper, None
            try:
                if self._made:
                    await self._engine.remove_network(self._name)
                    self._made = False
                if keeper is not None and keeper.gone is None and self._is_elsewhere:
                    await keeper.netlink(NETLINK_NETFILTER, removal(self.interface))
            except (OrsayError, OSError) as exc:
                _log.warning("network_left", network=self._name, error=str(exc))
            finally:
                if keeper is not None:
                    await keeper.close()


def _chains(name_servers: Sequence[IPv4Address]) -> Iterator[Chain]:
    """Rules for what comes from bridges of sandboxes, which have no IPv6."""
    ours = rules.from_interfaces(_PREFIX)
    names = [
        ours + rules.to_address(server) + rules.to_port(protocol, _DNS) + Verdict.ACCEPT
        for server in name_servers
        for protocol in (_UDP, _TCP)
    ]
    link_local = rules.to_address(_LINK_LOCAL, leading_bytes=2)
    refused = (rules.IPV6, link_local, rules.not_elsewhere())
    yield Chain(
        "machine",
        _PREROUTING,
        _BEFORE_TRACKING,
        [*names, *(ours + each + Verdict.REJECT for each in refused)],
    )
    yield Chain("sandboxes", _FORWARD, _BEFORE_DOCKER, [ours + rules.to_interfaces(_PREFIX) + Verdict.REJECT])


def _from_server(interface: str) -> Chain:
    """Rules against a way to the server's machine, from one bridge."""
    ours = rules.from_interfaces(interface)
    refused = [ours + rules.to_address(each) + Verdict.REJECT for each in _addresses_of_server()]
    return Chain("server", _PREROUTING, _BEFORE_TRACKING, refused)


def _name_servers(configuration: bytes) -> list[IPv4Address]:
    """Those of a resolv.conf(5) that an engine asks from within a sandbox's network; others on the loopback
    it asks itself.
    """
    found = []
    for line in configuration.decode(errors="replace").splitlines():
        word, _, address = line.strip().partition(" ")
        with contextlib.suppress(ValueError):
            server = IPv4Address(address.strip()) if word == "nameserver" else None
            if server is not None and not server.is_loopback:
                found.append(server)
    return found


def _addresses_of_server() -> list[IPv4Address]:
    """Those of the machine, or container, where this server runs: the engine's may be another one."""
    try:
        table = Path("/proc/net/fib_trie").read_text()
    except OSError:  # not Linux, where no engine shares its network with us
        return []
    return sorted({IPv4Address(each) for each in _LOCAL_ADDRESS.findall(table)})
