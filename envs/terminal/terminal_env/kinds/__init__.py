"""All templates, one module for each kind."""

from . import archives, files, git, logs, permissions, processes, sqlite, text

__all__ = ["KINDS", "TEMPLATES"]

KINDS = tuple(
    module.TEMPLATES for module in (files, text, processes, git, archives, sqlite, logs, permissions)
)
TEMPLATES = tuple(template for kind in KINDS for template in kind)
