"""All templates, one module for each kind."""

from __future__ import annotations

from ..problem import Template
from . import archives, files, git, logs, permissions, processes, sqlite, text

__all__ = ["TEMPLATES"]

TEMPLATES: tuple[Template, ...] = (
    *files.TEMPLATES,
    *text.TEMPLATES,
    *processes.TEMPLATES,
    *git.TEMPLATES,
    *archives.TEMPLATES,
    *sqlite.TEMPLATES,
    *logs.TEMPLATES,
    *permissions.TEMPLATES,
)
