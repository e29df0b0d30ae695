"""Other protocols for the environments of a server: OpenEnv, and the Model Context Protocol.

Their clients use the same sessions as ORS clients: limits, keys, faults and life cycle are those of
``orsay.sessions``.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from ..errors import ConfigError
from ..http.mounts import Mount
from ..sessions.registry import Sessions
from .session_driver import SessionDrivers

__all__ = ["make_mounts", "require"]

_NEEDS = {"openenv": ("websockets", "uvicorn.protocols.websockets.websockets_sansio_impl"), "mcp": ("mcp",)}


def require(names: Sequence[str]) -> None:
    """Raises ConfigError if a package that these protocols need is missing."""
    for name in names:
        for module in _NEEDS[name]:
            try:
                importlib.import_module(module)
            except ImportError as exc:
                raise ConfigError(
                    f"--also {name} needs a package that is missing here ({exc}): pip install 'orsay[{name}]'"
                ) from exc


def make_mounts(
    names: Sequence[str], sessions: Sessions, *, index_only: bool, max_body_bytes: int
) -> list[Mount]:
    """The mounts of these protocols. Modules are imported here, since each needs an extra."""
    drivers = SessionDrivers(sessions, index_only=index_only)
    mounts: list[Mount] = []
    plain = None
    if "openenv" in names:
        from .openenv.mount import OpenEnvMount  # optional: extra openenv

        openenv = OpenEnvMount(drivers, max_body_bytes=max_body_bytes)
        plain = openenv.answer_rpc
        mounts.append(openenv)
    if "mcp" in names:
        from .mcp.mount import McpMount  # optional: extra mcp

        mounts.insert(0, McpMount(drivers, plain=plain, max_body_bytes=max_body_bytes))
    return mounts
