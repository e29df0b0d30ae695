"""Other protocols for the environments of a server: OpenEnv, and the Model Context Protocol.

Their clients open, play and close the very sessions that ORS clients do: limits, keys, faults and life cycle
are those of ``orsay.sessions``, and nothing of them is repeated here.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from ..errors import ConfigError
from ..http.mounts import Face
from ..sessions.registry import Sessions
from .session_driver import Players

__all__ = ["make_faces", "require"]

_NEEDS = {"openenv": ("websockets", "uvicorn.protocols.websockets.websockets_sansio_impl"), "mcp": ("mcp",)}


def require(names: Sequence[str]) -> None:
    """Raises ConfigError when something that these protocols need is not installed."""
    for name in names:
        for module in _NEEDS[name]:
            try:
                importlib.import_module(module)
            except ImportError as exc:
                raise ConfigError(
                    f"--also {name} needs what cannot be loaded here ({exc}): pip install 'orsay[{name}]'"
                ) from exc


def make_faces(
    names: Sequence[str], sessions: Sessions, *, index_only: bool, max_body_bytes: int
) -> list[Face]:
    """The faces of these protocols. Modules are imported here, since each needs an extra."""
    players = Players(sessions, index_only=index_only)
    faces: list[Face] = []
    plain = None
    if "openenv" in names:
        from .openenv.mount import OpenEnvFace  # optional: extra openenv

        openenv = OpenEnvFace(players, max_body_bytes=max_body_bytes)
        plain = openenv.answer_rpc
        faces.append(openenv)
    if "mcp" in names:
        from .mcp.mount import McpFace  # optional: extra mcp

        faces.insert(0, McpFace(players, plain=plain, max_body_bytes=max_body_bytes))
    return faces
