"""The effective configuration as TOML, with the source of each value and without secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from ..settings import Settings, shown_journal
from . import Configuration
from .entries import Entry
from .problems import HIDDEN, without_credentials

__all__ = ["report"]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_WIDTH = 44


def report(configuration: Configuration, notes: Mapping[str, str] | None = None) -> str:
    """Report of all settings, then of the entries; ``notes`` are additions to entries, by label."""
    settings = configuration.settings
    file = configuration.file
    lines = ["# no file: variables and defaults" if file is None else f"# {file}", ""]
    for name in Settings.model_fields:
        value = getattr(settings, name)
        if name == "journal":
            value = shown_journal(value)
        lines.append(_line(name, value, configuration.origins.get(name, "default")))
    for entry in configuration.entries:
        lines += ["", *_entry(entry, (notes or {}).get(entry.label, ""))]
    return "\n".join(lines) + "\n"


def _entry(entry: Entry, note: str) -> Iterator[str]:
    origin = ", ".join(filter(None, [entry.where, note]))
    yield f"[environments.{_key(entry.label)}]".ljust(_WIDTH) + (f" # {origin}" if origin else "")
    table = entry.table
    given = {
        field.alias or name: _without_values(name, getattr(table, name))
        for name, field in type(table).model_fields.items()
        if name in table.model_fields_set
    }
    if given.keys() & {"api_key_variable", "api_key_file"}:
        given.pop("api_key", None)  # it was read from the file or variable
    for name in sorted(given, key=lambda name: name != table.source):
        if given[name] is not None:
            yield _line(name, given[name], "")
    if table.source == "directory":
        yield f"# class = {_value(entry.targets)}"


def _line(name: str, value: Any, origin: str) -> str:
    text = f"# {name} is not set" if value is None else f"{name} = {_value(value)}"
    return f"{text.ljust(_WIDTH)} # {origin}" if origin else text


def _without_values(name: str, value: Any) -> Any:
    """Variables of a container often hold keys."""
    return dict.fromkeys(value, SecretStr("")) if name == "variables" and value else value


def _value(value: Any) -> str:
    if isinstance(value, SecretStr):
        return f'"{HIDDEN}"'
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, bool | int):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items()) + " }"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(_value, value)) + "]"
    return _string(str(value) if isinstance(value, Path) else value)


def _string(text: str) -> str:
    """JSON's escapes are TOML's, but for the character that JSON leaves as it is."""
    return json.dumps(without_credentials(text), ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(text: str) -> str:
    return text if _BARE.fullmatch(text) else _string(text)
