"""The sandboxes of a server, from its settings."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..auth import Keys
from ..errors import ConfigError
from ..protocols.sandboxes.mount import SandboxMount
from ..protocols.sandboxes.settings import Catalogue
from ..runtimes.base import Runtime
from ..runtimes.local import LocalRuntime
from ..runtimes.process.pool import ProcessRuntime
from ..runtimes.router import RouterRuntime
from ..sandboxes.base import Sandboxes, SandboxSpec
from ..sandboxes.keys import SandboxKeys
from ..sandboxes.runtime import SandboxedRuntime
from ..sandboxes.sandbox import Sandbox
from ..sandboxes.service import SandboxLimits, SandboxService
from ..settings import Settings

if TYPE_CHECKING:
    from ..runtimes.docker.claim import Claim
    from ..runtimes.docker.engine import Engine
    from ..runtimes.docker.spec import Pull

__all__ = ["ServedSandboxes"]


class ServedSandboxes:
    """Service, keys and endpoints of one server's sandboxes. Raises ConfigError without their package."""

    def __init__(self, settings: Settings, server_id: str, *, port: int) -> None:
        try:
            import docker  # noqa: F401  # the extra: an error at the start, not at the first sandbox
        except ImportError:
            raise ConfigError("sandboxes in containers need a package: pip install 'orsay[docker]'") from None
        limits = SandboxLimits(
            sandboxes=settings.sandboxes_max,
            sandboxes_per_owner=settings.sandboxes_max_per_key,
            idle_s=settings.sandboxes_idle_limit_s,
            gone_memory_s=settings.gone_memory_s,
        )
        self.keys = SandboxKeys()
        connect = partial(_docker, server_id, settings.sandboxes_lease_s, settings.sandboxes_pull)
        self.service = SandboxService(connect, limits)
        catalogue = Catalogue(settings.sandboxes_images, settings.sandboxes_data)
        self.mount = SandboxMount(
            self.service, catalogue, self.keys, keys_required=lambda: bool(settings.keys)
        )
        host = settings.host if settings.host not in ("", "0.0.0.0", "::") else "127.0.0.1"
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self.variables = {
            "OPENREWARD_SESSION_URL": url,
            "OPENREWARD_API_URL": url,
            "OPENREWARD_DISABLE_UPDATE_CHECK": "1",
            "OPENREWARD_API_KEY": self.keys.issue()[0],
        }
        """Variables by which the SDK finds this server; the key is for code that has no secrets at hand."""

    def around(self, runtime: Runtime, inner: Runtime, keys: Keys) -> SandboxedRuntime:
        """``runtime``, with a key for each session whose code runs on this machine, as ``inner`` tells."""

        def is_own_key(key: str) -> bool:
            return not keys or keys.accepts(key)

        def runs_code(key: str) -> bool:
            place = inner.place_of(key) if isinstance(inner, RouterRuntime) else inner
            return isinstance(place, (LocalRuntime, ProcessRuntime))

        return SandboxedRuntime(
            runtime, self.keys, runs_code=runs_code, replaces=is_own_key, end=self.service.end_owner
        )


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
    from ..sandboxes.docker import DockerSandboxes

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
