"""Address of the server's sandboxes, as containers in a network see it."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from ...errors import ConfigError
from .engine import Engine

__all__ = ["SandboxAddress", "sandbox_variables"]

_ALL = ("", "0.0.0.0", "::")


@dataclass(frozen=True)
class SandboxAddress:
    """Where the server listens. ``url`` replaces all of it, where the user knows better."""

    host: str
    port: int
    url: str | None = None

    async def seen_from(self, engine: Engine, network: str) -> str:
        """The URL for containers of that network. Raises ConfigError if they cannot reach the server."""
        if self.url is not None:
            return self.url
        if self.host == "localhost" or self.host.startswith("127.") or self.host == "::1":
            raise self._unreachable(f"it listens on {self.host}, which is another machine for a container")
        gateway, internal = await engine.gateway(network)
        if gateway is None or not _is_own(gateway):
            raise self._unreachable(
                f"the network {network} does not lead to it: the engine is another machine"
            )
        if self.host in _ALL or self.host == gateway:
            return f"http://{gateway}:{self.port}"
        if internal:
            raise self._unreachable(
                f"the network {network} leads to {gateway} only, and it listens on {self.host}"
            )
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    @staticmethod
    def _unreachable(reason: str) -> ConfigError:
        return ConfigError(
            f"containers cannot reach the sandboxes of this server: {reason}. Listen on all addresses (host ="
            ' "0.0.0.0", with API keys), or give the URL that they reach: [sandboxes] address = "http://…"'
        )


def sandbox_variables(url: str) -> dict[str, str]:
    """Variables by which code written for ``openreward`` finds sandboxes at ``url``."""
    return {
        "OPENREWARD_SESSION_URL": url,
        "OPENREWARD_API_URL": url,
        "OPENREWARD_DISABLE_UPDATE_CHECK": "1",
    }


def _is_own(address: str) -> bool:
    """True for an address of this machine, or of this container."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
