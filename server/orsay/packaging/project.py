"""Reader of an environment project's folder: its name, its targets, and how it is installed."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..errors import LoadError
from ..suggest import did_you_mean
from .classes import find_targets

__all__ = ["Kind", "Project", "read"]

Kind = Literal["package", "files", "image"]
"""``package``: pip installs it; ``files``: Python files, served in place; ``image``: only a Dockerfile."""

_TABLE_KEYS = ("environments",)


@dataclass(frozen=True)
class Project:
    """An environment project, read from its folder.

    ``name`` is fit for an image or a Space: lower-case letters, digits, single dots, dashes, underscores.
    ``targets`` are what ``orsay serve`` hosts, the default environment first; empty only where the project
    has a Dockerfile of its own. ``requirements``: there is a requirements.txt.
    """

    folder: Path
    name: str
    kind: Kind
    targets: tuple[str, ...]
    requirements: bool
    own_dockerfile: bool


def read(folder: Path | str) -> Project:
    """The project in ``folder``.

    Its environments are those of ``[tool.orsay] environments = ["module:Class", …]`` in pyproject.toml, else
    all that its files define. Raises LoadError, with the remedy: no such folder, no environment in it, or a
    file that cannot be read.
    """
    root = Path(folder).expanduser()
    if root.is_file():
        raise LoadError(f"{folder} is a file; name the folder of the environment: {root.parent}")
    if not root.is_dir():
        raise LoadError(f"no folder {folder}; 'orsay init NAME' starts a new project")
    root = root.resolve()
    settings = _pyproject(root)
    installable = isinstance(settings.get("project"), dict)
    own_dockerfile = (root / "Dockerfile").is_file()
    targets = _named_targets(root, settings) or find_targets(root)
    if not targets and not own_dockerfile:
        raise LoadError(
            f"{folder} defines no environment and has no Dockerfile: derive a class from orsay.Environment,"
            ' or name what to serve in pyproject.toml: [tool.orsay] environments = ["module:Class"]'
        )
    kind: Kind = "package" if installable else "files" if targets else "image"
    return Project(
        folder=root,
        name=_name(root, settings),
        kind=kind,
        targets=targets,
        requirements=(root / "requirements.txt").is_file(),
        own_dockerfile=own_dockerfile,
    )


def _pyproject(root: Path) -> dict[str, Any]:
    path = root / "pyproject.toml"
    if not path.is_file():
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise LoadError(f"{path} is no TOML: {exc}") from exc


def _named_targets(root: Path, settings: dict[str, Any]) -> tuple[str, ...]:
    table = settings.get("tool", {}).get("orsay", {})
    for key in table:
        if key not in _TABLE_KEYS:
            raise LoadError(
                f"{root / 'pyproject.toml'}: [tool.orsay] knows no {key!r}{did_you_mean(key, _TABLE_KEYS)}"
            )
    named = table.get("environments", [])
    if not isinstance(named, list) or not all(isinstance(each, str) and each for each in named):
        raise LoadError(
            f"{root / 'pyproject.toml'}: [tool.orsay] environments is a list of texts, "
            'such as ["my_env.env:MyEnv"]'
        )
    return tuple(named)


def _name(root: Path, settings: dict[str, Any]) -> str:
    project = settings.get("project", {})
    named = project.get("name") if isinstance(project, dict) else None
    text = named if isinstance(named, str) else root.name
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "environment"
