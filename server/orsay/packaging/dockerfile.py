"""The Dockerfile of a project: its own, or one from the template of ``orsay init``."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

from ..errors import ConfigError, LoadError
from .project import Kind, Project

__all__ = ["arguments", "generate", "text"]

_FIRST = {"package": "pyproject.toml", "files": "*.py"}
_ARGUMENT = re.compile(r"""^(\s*ARG\s+)(\w+)(?:=(?:"[^"]*"|\S*))?[ \t]*$""", re.IGNORECASE | re.MULTILINE)
_NAMED = re.compile(r"^\s*ARG\s+(\w+)", re.IGNORECASE | re.MULTILINE)
_PREDEFINED = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY"})


def text(project: Project, *, orsay: str | None = None, base: str | None = None) -> str:
    """The project's own Dockerfile, or else one that serves its targets on port 8080 as user 1000.

    ``orsay`` is what pip installs as orsay there (``Requirement.pip``) and ``base`` the image to build on:
    they become the defaults of the arguments ORSAY and BASE. A Dockerfile without ORSAY is not changed.
    Raises ConfigError for a base if the Dockerfile has no argument BASE.
    """
    path = project.folder / "Dockerfile"
    found = (
        _read(path)
        if project.own_dockerfile
        else generate(project.targets, kind=project.kind, requirements=project.requirements)
    )
    if orsay is not None:
        found = _with_default(found, "ORSAY", orsay)
    if base is not None:
        if "BASE" not in arguments(found):
            raise ConfigError(f"{path} has no ARG BASE, so its base image cannot be chosen")
        found = _with_default(found, "BASE", base)
    return found


def generate(targets: tuple[str, ...], *, kind: Kind = "package", requirements: bool = False) -> str:
    """A Dockerfile from the template, for a project without one."""
    install = "RUN pip install .\n" if kind == "package" else ""
    first = _FIRST[kind]
    if kind == "files" and requirements:
        first, install = "requirements.txt", "RUN pip install -r requirements.txt\n"
    template = (files("orsay") / "templates" / "environment" / "Dockerfile.tmpl").read_text(encoding="utf-8")
    return (
        template.replace("{{first}}", first)
        .replace("{{install}}\n", install)
        .replace("{{targets}}", ", ".join(map(json.dumps, targets)))
    )


def arguments(dockerfile: str) -> frozenset[str]:
    """Names that ``--build-arg`` may set, with those that every build knows."""
    named = {line.group(1) for line in _NAMED.finditer(dockerfile)}
    return frozenset(named | _PREDEFINED | {name.lower() for name in _PREDEFINED})


def _with_default(dockerfile: str, name: str, value: str) -> str:
    quoted = re.sub(r'(["\\$])', r"\\\1", value)

    def line(found: re.Match[str]) -> str:
        return f'{found.group(1)}{name}="{quoted}"' if found.group(2) == name else found.group()

    return _ARGUMENT.sub(line, dockerfile)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise LoadError(f"cannot read {path}: {exc}") from exc
