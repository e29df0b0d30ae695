"""The choice of a back end for sandboxes, and its opening, with or without a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from ..errors import ConfigError, EngineError
from .base import Sandboxes, SandboxSpec
from .bubblewrap.backend import BubblewrapSandboxes, require_bubblewrap
from .sandbox import Sandbox

if TYPE_CHECKING:
    from ..runtimes.docker.claim import Claim
    from ..runtimes.docker.engine import Engine
    from ..runtimes.docker.spec import Pull
    from .docker import DockerSandboxes

__all__ = ["BackendName", "check_backend", "choose_backend", "open_backend"]

BackendName: TypeAlias = Literal["auto", "docker", "bubblewrap"]
"""``auto``: Docker where an engine answers, else bubblewrap."""
_CHOICES: Sequence[Literal["docker", "bubblewrap"]] = ("docker", "bubblewrap")


def check_backend(name: BackendName) -> None:
    """Raise ConfigError where what that back end needs is not installed."""
    if name == "docker":
        try:
            import docker  # noqa: F401  # the extra
        except ImportError:
            raise ConfigError("sandboxes in containers need a package: pip install 'orsay[docker]'") from None
    elif name == "bubblewrap":
        require_bubblewrap()


async def open_backend(
    name: BackendName,
    *,
    server_id: str,
    lease_s: float = 60,
    pull: Pull = "missing",
    disk_bytes: int | None = None,
    reaches_machine: bool = False,
) -> Sandboxes:
    """A back end, and with it the end of what killed servers left.

    ``disk_bytes`` is the limit of sandboxes for which none is asked. ``reaches_machine``: sandboxes in
    containers with an open network reach the engine's machine too. Raises ConfigError where what it needs is
    not there, and EngineError.
    """
    check_backend(name)
    match name:
        case "docker":
            return await _docker(server_id, lease_s, pull, disk_bytes, reaches_machine)
        case "bubblewrap":
            return await BubblewrapSandboxes.open(lease_s=lease_s, disk_bytes=disk_bytes)
        case "auto":
            chosen = await choose_backend()
            return await open_backend(
                chosen,
                server_id=server_id,
                lease_s=lease_s,
                pull=pull,
                disk_bytes=disk_bytes,
                reaches_machine=reaches_machine,
            )


async def choose_backend() -> Literal["docker", "bubblewrap"]:
    """The first back end that works here. Raises ConfigError with the reasons why none does."""
    reasons = []
    for name in _CHOICES:
        try:
            check_backend(name)
            if name == "docker":
                await (await _engine()).close()
            else:
                await (await BubblewrapSandboxes.open()).close()
        except (ConfigError, EngineError) as exc:
            reasons.append(f"{name}: {exc}")
        else:
            return name
    raise ConfigError(f"no sandboxes can be made here; {'; '.join(reasons)}")


class _OwnEngine:
    """A back end that closes its engine and gives up its claim."""

    def __init__(self, backend: DockerSandboxes, engine: Engine, claim: Claim) -> None:
        self._backend = backend
        self._engine = engine
        self._claim = claim

    async def create(self, spec: SandboxSpec, *, sandbox_id: str = "") -> Sandbox:
        return await self._backend.create(spec, sandbox_id=sandbox_id)

    async def image_id(self, image: str) -> str:
        return await self._backend.image_id(image)

    async def snapshot(self, sandbox: Sandbox) -> str:
        return await self._backend.snapshot(sandbox)

    async def drop(self, snapshot: str) -> None:
        await self._backend.drop(snapshot)

    async def close(self) -> None:
        try:
            await self._backend.close()
        finally:
            await self._engine.close()
            self._claim.release()


async def _engine() -> Engine:
    from ..runtimes.docker.engine import Engine  # needs the extra docker

    return await Engine.connect()


async def _docker(
    server_id: str, lease_s: float, pull: Pull, disk_bytes: int | None, reaches_machine: bool
) -> Sandboxes:
    from ..runtimes.docker.claim import Claim  # needs the extra docker
    from .docker import DockerSandboxes

    engine = await _engine()
    try:
        claim = Claim(server_id, "sandboxes")
        claim.take()
        await claim.clear_left(engine)
        backend = DockerSandboxes(
            engine,
            claim.labels,
            lease_s=lease_s,
            pull=pull,
            disk_bytes=disk_bytes,
            reaches_machine=reaches_machine,
        )
        return _OwnEngine(backend, engine, claim)
    except BaseException:
        await engine.close()
        raise
