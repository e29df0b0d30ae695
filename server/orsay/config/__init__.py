"""Configuration from ``orsay.toml``, variables ``ORSAY_…`` and the command line.

``read`` merges them, and raises one ConfigError with all problems.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..settings import Settings
from ..suggest import did_you_mean
from .entries import Entry
from .file import ENTRY_VARIABLES, FileContent, read_file
from .layers import origin, settings_from
from .problems import Problem, config_error
from .targets import read_targets

__all__ = ["DEFAULT_FILE", "Configuration", "find_file", "read", "unread_variables"]

DEFAULT_FILE = "orsay.toml"
_PREFIX = "ORSAY_"
_VARIABLE = "ORSAY_CONFIG"
_NOTHING = FileContent({}, (), {}, ())


@dataclass(frozen=True)
class Configuration:
    """Configuration of a server. ``origins`` names the source of each setting that is not a default."""

    settings: Settings
    entries: tuple[Entry, ...]
    origins: Mapping[str, str]
    file: Path | None = None


def find_file(named: Path | None, *, here: bool = True) -> Path | None:
    """The file to read: ``named``, else ORSAY_CONFIG, else, with ``here``, ``./orsay.toml``."""
    if named is not None:
        return named
    variable = os.environ.get(_VARIABLE)
    if variable:
        return Path(variable)
    return Path(DEFAULT_FILE) if here and Path(DEFAULT_FILE).is_file() else None


def unread_variables() -> dict[str, str]:
    """Variables ``ORSAY_…`` that name no setting, each with the rest of a warning."""
    known = {"config", *Settings.model_fields}
    found = {}
    for name in sorted(os.environ):
        prefix, key = name[: len(_PREFIX)].upper(), name[len(_PREFIX) :].lower()
        if prefix == _PREFIX and key not in known and not name.upper().startswith(ENTRY_VARIABLES):
            found[name] = did_you_mean(key, known, listed=False)
    return found


def read(file: Path | None, given: Mapping[str, Any], targets: Sequence[str] = ()) -> Configuration:
    """Settings of the file, of variables and of ``given``; environments of the file or of ``targets``.

    Raises one ConfigError with all problems, a line each.
    """
    content = _NOTHING if file is None else read_file(file)
    settings, wrong = settings_from(content.values, given)
    problems = [*content.problems, *(each for each in wrong if each.where or not content.problems)]
    entries = list(content.entries)
    if targets and content.entries:
        problems.append(
            Problem("", f"{file} has environments of its own: name targets or that file, not both")
        )
    if problems or settings is None:
        raise config_error(problems)
    if targets:
        entries = read_targets(targets, settings.runtime)
    origins = {
        name: found
        for name in Settings.model_fields
        if (found := origin(name, given) or content.lines.get(name)) is not None
    }
    return Configuration(settings, tuple(entries), origins, file)
