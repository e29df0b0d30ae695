"""The choice of a back end for sandboxes, and its opening, with or without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from ..errors import ConfigError
from .base import Sandboxes, SandboxSpec
from .sandbox import Sandbox

if TYPE_CHECKING:
    from ..runtimes.docker.claim import Claim
    from ..runtimes.docker.engine import Engine
    from ..runtimes.docker.spec import Pull

__all__ = ["BackendName", "check_backend", "open_backend"]

BackendName: TypeAlias = Literal["auto", "docker"]
"""``auto``: the best of those that work here."""


def check_backend(name: BackendName) -> None:
    """Raise ConfigError where what that back end needs is not installed."""
    try:
        import docker  # noqa: F401  # the extra
    except ImportError:
        raise ConfigError("sandboxes in containers need a package: pip install 'orsay[docker]'") from None


async def open_backend(
    name: BackendName, *, server_id: str, lease_s: float = 60, pull: Pull = "missing"
) -> Sandboxes:
    """A back end, and with it the end of what killed servers of that id left.

    Raises ConfigError where what it needs is not installed, and EngineError.
    """
    check_backend(name)
    return await _docker(server_id, lease_s, pull)


class _OwnEngine:
    """A back end that removes its network, closes its engine and gives up its claim."""

    def __init__(self, backend: Sandboxes, engine: Engine, claim: Claim, network: str) -> None:
        self._backend = backend
        self._engine = engine
        self._claim = claim
        self._network = network

    async def create(self, spec: SandboxSpec, *, sandbox_id: str = "") -> Sandbox:
        return await self._backend.create(spec, sandbox_id=sandbox_id)

    async def close(self) -> None:
        await self._backend.close()
        try:
            await self._engine.remove_network(self._network)
        finally:
            await self._engine.close()
            self._claim.release()


async def _docker(server_id: str, lease_s: float, pull: Pull) -> Sandboxes:
    from ..runtimes.docker.claim import Claim  # needs the extra docker
    from ..runtimes.docker.engine import Engine
    from .docker import DockerSandboxes

    engine = await Engine.connect()
    try:
        claim = Claim(server_id, "sandboxes")
        claim.take()
        await claim.clear_left(engine)
        network = await engine.create_network(
            f"orsay-{claim.word}", labels=claim.labels, interface=f"orsay{claim.word[:8]}", internal=False
        )
        backend = DockerSandboxes(engine, claim.labels, lease_s=lease_s, pull=pull, network=network)
        return _OwnEngine(backend, engine, claim, network)
    except BaseException:
        await engine.close()
        raise
