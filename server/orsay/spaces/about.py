"""Metadata of a project in its pyproject.toml, for the card of a Space."""

from __future__ import annotations

import tomllib
from typing import Any

from ..packaging.project import Project
from .card import Card
from .readme import heading

__all__ = ["about"]


def about(project: Project, readme: str, *, port: int) -> Card:
    """Title (the first heading of ``readme``, else the project's name), description and licence."""
    path = project.folder / "pyproject.toml"
    settings: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    metadata = settings.get("project", {}) if isinstance(settings.get("project"), dict) else {}
    description = metadata.get("description", "")
    return Card(
        title=heading(readme) or project.name.replace("-", " ").capitalize(),
        description=description if isinstance(description, str) else "",
        license=_license(metadata.get("license")),
        port=port,
    )


def _license(given: Any) -> str:
    """The name, from either form of the table; a file's text names none."""
    if isinstance(given, dict):
        given = given.get("text", "")
    return given if isinstance(given, str) and "\n" not in given else ""
