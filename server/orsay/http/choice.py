"""Which of the hosted environments a request means."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import Starting, UnknownEnvironment
from ..runtimes.base import EnvironmentInfo

__all__ = ["choose"]


def choose(
    environments: Sequence[EnvironmentInfo], name: str | None, deployment: str | None
) -> EnvironmentInfo:
    """The environment called ``name``, in any letter case.

    Without a name, the one that ``deployment`` (the header X-Deployment, ``name`` or ``owner/name``) happens
    to name, else the first: released clients send what their user called the environment there only.
    Raises UnknownEnvironment, or Starting before the environments are loaded.
    """
    if not environments:
        raise Starting("the environments are still being loaded")
    if not name:
        hint = (deployment or "").rpartition("/")[2].lower()
        return next((info for info in environments if info.key == hint), environments[0])
    key = name.lower()
    for info in environments:
        if info.key == key:
            return info
    known = ", ".join(info.key for info in environments)
    raise UnknownEnvironment(f"unknown environment {name!r}; this server hosts: {known}")
