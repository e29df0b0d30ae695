"""Choice of the hosted environment that a request names."""

from __future__ import annotations

from ..errors import Starting, UnknownEnvironment
from ..runtimes.base import EnvironmentInfo, Runtime
from ..runtimes.router import hosts_nothing

__all__ = ["choose"]


def choose(runtime: Runtime, name: str | None, deployment: str | None) -> EnvironmentInfo:
    """The environment called ``name``, in any letter case.

    Without a name, the one that ``deployment`` names (the header X-Deployment, ``name`` or ``owner/name``),
    else the first: released clients send the user's name for the environment in that header only.
    Raises UnknownEnvironment, or Starting while environments that may be the right one are not known yet.
    """
    environments = runtime.environments
    key = name.lower() if name else (deployment or "").rpartition("/")[2].lower()
    for info in environments:
        if info.key == key or (not key and info.leads):
            return info
    if hosts_nothing(runtime):
        raise UnknownEnvironment("this server has sandboxes for environments elsewhere, and hosts none")
    if runtime.pending:
        raise Starting(f"environments are still being loaded: {', '.join(runtime.pending)}")
    if not environments:
        raise Starting("the environments are still being loaded")
    if not name:
        return environments[0]
    known = ", ".join(info.key for info in environments)
    raise UnknownEnvironment(f"unknown environment {name!r}; this server hosts: {known}")
