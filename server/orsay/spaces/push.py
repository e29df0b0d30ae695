"""Upload of a folder to the hub, in an order that leaves no partial state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import SpaceError
from .folder import MARK
from .hub import Hub, Remote
from .name import SpaceName

__all__ = ["Pushed", "Wishes", "prepare", "upload"]

_FROM_THE_HUB = frozenset({".gitattributes", "README.md"})
"""Files that the hub adds to a new Space."""


@dataclass(frozen=True)
class Wishes:
    """Properties of a Space besides its files. ``replace``: overwrite a Space that was not made by a push."""

    private: bool = False
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    variables: Mapping[str, str] = field(default_factory=dict)
    hardware: str | None = None
    message: str = "Push the environment"
    replace: bool = False


@dataclass(frozen=True)
class Pushed:
    """Result of an upload: the commit, and True if it is new."""

    commit: str
    changed: bool


def prepare(hub: Hub, space: SpaceName, wishes: Wishes) -> Remote:
    """Create the Space or read the existing one. Raises SpaceError before any change."""
    hub.user()
    hub.create(str(space), private=wishes.private)
    remote = hub.look(str(space))
    if wishes.private and remote.private is False:
        raise SpaceError(
            f"{space} exists already and is public: make it private at {hub.page(str(space))}/settings, or"
            " push without --private"
        )
    foreign = remote.files - _FROM_THE_HUB
    if foreign and MARK not in remote.files and not wishes.replace:
        some = ", ".join(sorted(foreign)[:3])
        raise SpaceError(
            f"{space} exists already and was not made by orsay push: it has {some}"
            f"{', …' if len(foreign) > 3 else ''}."
            " Choose another name, or replace all that is in it with --force"
        )
    return remote


def upload(
    hub: Hub,
    space: SpaceName,
    remote: Remote,
    files: Mapping[str, Path],
    wishes: Wishes,
    report: Callable[[str], None],
) -> Pushed:
    """Secrets, variables and hardware first, so that the first start has them; then the files, in one commit.

    A file of the Space that is not among ``files`` is deleted. Raises SpaceError.
    """
    name = str(space)
    for secret, value in wishes.secrets.items():
        hub.set_secret(name, secret, value)
    for variable, value in wishes.variables.items():
        hub.set_variable(name, variable, value)
    if wishes.hardware and wishes.hardware != remote.hardware:
        hub.set_hardware(name, wishes.hardware)
    gone = sorted(remote.files - set(files) - {".gitattributes"})
    report(f"uploading {len(files)} files" + (f", deleting {len(gone)}" if gone else ""))
    commit = hub.commit(name, files, gone, wishes.message)
    return Pushed(commit, changed=commit != remote.commit)
