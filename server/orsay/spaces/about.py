"""What a project says about itself in its pyproject.toml, for the card of a Space."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from ..packing.project import Project
from .card import Card

__all__ = ["about"]


def about(project: Project, readme: str, *, port: int) -> Card:
    """Title (the first heading of ``readme``, else the project's name), description and licence."""
    path = project.folder / "pyproject.toml"
    settings: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    told = settings.get("project", {})
    heading = re.search(r"^# +(.+?) *#*$", readme, re.MULTILINE)
    title = heading.group(1) if heading else project.name.replace("-", " ").capitalize()
    description = told.get("description", "")
    return Card(
        title=title,
        description=description if isinstance(description, str) else "",
        license=_license(told.get("license")),
        port=port,
    )


def _license(told: Any) -> str:
    """The name, from either form of the table; a file's text names none."""
    if isinstance(told, dict):
        told = told.get("text", "")
    return told if isinstance(told, str) and "\n" not in told else ""
