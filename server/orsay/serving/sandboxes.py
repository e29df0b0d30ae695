"""The sandboxes of a server, from its settings."""

from __future__ import annotations

from functools import partial

from ..auth import Keys
from ..authoring.sandbox.model import size_in_bytes
from ..observe.sandboxes import SandboxMeter
from ..protocols.sandboxes.mount import SandboxMount
from ..protocols.sandboxes.settings import Catalogue
from ..runtimes.base import EnvironmentInfo, Runtime
from ..runtimes.docker.sandboxes import sandbox_variables
from ..runtimes.local import LocalRuntime
from ..runtimes.process.pool import ProcessRuntime
from ..runtimes.router import RouterRuntime
from ..sandboxes.backends import check_backend, open_backend
from ..sandboxes.keys import SandboxKeys
from ..sandboxes.runtime import SandboxedRuntime
from ..sandboxes.service import SandboxLimits, SandboxService
from ..settings import SANDBOXES_URL, Settings

__all__ = ["ServedSandboxes"]


class ServedSandboxes:
    """Service, keys and endpoints of one server's sandboxes. Raises ConfigError without their package.

    Without ``platform`` they are for ``orsay.sandbox`` in sessions alone: the endpoints take no key but
    those of sessions, and code written for the hosted platform goes on using that.
    """

    def __init__(self, settings: Settings, server_id: str, *, port: int, platform: bool) -> None:
        assert settings.sandboxes_backend != "off"
        self._platform = platform
        check_backend(settings.sandboxes_backend)  # an error at the start, not at the first sandbox
        limits = SandboxLimits(
            sandboxes=settings.sandboxes_max,
            sandboxes_per_owner=settings.sandboxes_max_per_key,
            idle_s=settings.sandboxes_idle_limit_s,
            gone_memory_s=settings.gone_memory_s,
            warm=settings.sandboxes_warm,
        )
        self.keys = SandboxKeys()
        connect = partial(
            open_backend,
            settings.sandboxes_backend,
            server_id=server_id,
            lease_s=settings.sandboxes_lease_s,
            pull=settings.sandboxes_pull,
            disk_bytes=size_in_bytes(settings.sandboxes_disk) or None,
            reaches_machine=settings.sandboxes_reach_machine,
        )
        self.service = SandboxService(connect, limits, tenant_of=self.keys.tenant)
        self.meter = SandboxMeter(self.service)
        catalogue = Catalogue(settings.sandboxes_images, settings.sandboxes_data)
        self.mount = SandboxMount(
            self.service,
            catalogue,
            self.keys,
            keys_required=lambda: bool(settings.keys),
            for_sessions_only=not self._platform,
            default_image=settings.sandboxes_image,
        )
        host = settings.host if settings.host not in ("", "0.0.0.0", "::") else "127.0.0.1"
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self.variables = {SANDBOXES_URL: url}
        """Variables by which hosted code finds the sandboxes, code of the platform too if asked for."""
        if self._platform:
            self.variables |= {
                **sandbox_variables(url),
                "OPENREWARD_API_KEY": self.keys.issue()[0],  # for code that has no secrets at hand
            }

    def around(self, runtime: Runtime, inner: Runtime, keys: Keys) -> SandboxedRuntime:
        """``runtime``, with a key for each session whose code runs on this machine, as ``inner`` tells.

        Entries of containers and other servers may ask for it too.
        """

        def is_own_key(key: str) -> bool:
            return not keys or keys.accepts(key)

        def gives_key(environment: EnvironmentInfo) -> bool:
            place = inner
            if isinstance(inner, RouterRuntime):
                member = inner.member_of(environment.key)
                if member.sandboxes:
                    return True
                place = member.runtime
            uses = self._platform or environment.uses_sandboxes
            return uses and isinstance(place, (LocalRuntime, ProcessRuntime))

        return SandboxedRuntime(
            runtime,
            self.keys,
            gives_key=gives_key,
            replaces=is_own_key,
            gives_secret=self._platform,
            end=self.service.end_owner,
        )
