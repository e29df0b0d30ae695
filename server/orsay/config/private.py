"""Private files named by settings: API keys, secrets, the journal. They are never packed into an image.

Reads every configuration file and all variables without validation: keys in an otherwise invalid file are
secret too.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..settings import Settings, shown_journal
from .file import ENTRIES, ENTRY_VARIABLES, JOURNAL, JOURNAL_KEYS, SETTING_TABLES

__all__ = ["PrivateFile", "has_secrets", "is_settings", "of_document", "of_variables"]

_KNOWN = frozenset({*Settings.model_fields, ENTRIES, *SETTING_TABLES})
_SPEAKING = re.compile(r"key|token|secret|passw|credential", re.IGNORECASE)


@dataclass(frozen=True)
class PrivateFile:
    """A private file. ``reason`` completes the sentence "FILE ...". A journal has more files beside it."""

    path: Path
    reason: str
    is_journal: bool = False


def is_settings(name: str, document: Mapping[str, Any]) -> bool:
    """True for the name or content of a configuration file, such as ``orsay.toml``."""
    return name.casefold() == "orsay.toml" or (bool(document) and _KNOWN.issuperset(document))


def has_secrets(document: Mapping[str, Any]) -> bool:
    """True for a configuration file that contains keys or passwords."""
    if document.get("api_keys") or _hides(_journal(document)):
        return True
    for table in _tables(document):
        variables = table.get("variables")
        names = variables if isinstance(variables, Mapping) else {}
        if table.get("api_key") or any(_SPEAKING.search(str(name)) for name in names):
            return True
        if _hides(table.get("url")):
            return True
    return False


def of_document(file: Path, document: Mapping[str, Any]) -> Iterator[PrivateFile]:
    """Files that a configuration file names, with paths relative to its folder."""
    yield from _named(document, file.absolute().parent, f"by {file.name}")


def of_variables() -> Iterator[PrivateFile]:
    """Files that variables ``ORSAY_…`` name, with paths relative to the current folder."""
    document: dict[str, Any] = {}
    for variable, value in os.environ.items():
        name = variable.upper()
        if name.startswith(ENTRY_VARIABLES):
            label, _, key = name.removeprefix(ENTRY_VARIABLES).lower().rpartition("__")
            document.setdefault(ENTRIES, {}).setdefault(label, {})[key] = _loaded(value)
        elif name in ("ORSAY_API_KEYS_FILE", "ORSAY_JOURNAL"):
            document[name.removeprefix("ORSAY_").lower()] = value
    yield from _named(document, Path.cwd(), "by a variable")


def _named(document: Mapping[str, Any], folder: Path, where: str) -> Iterator[PrivateFile]:
    def absolute(text: str) -> Path:
        return Path(os.path.normpath(folder / os.path.expanduser(text)))

    keys = document.get("api_keys_file")
    if isinstance(keys, str) and keys:
        yield PrivateFile(absolute(keys), f"is named {where} as the file of API keys")
    journal = _path_of(_journal(document))
    if journal:
        yield PrivateFile(absolute(journal), f"is named {where} as the journal", is_journal=True)
    for table in _tables(document):
        key = table.get("api_key_file")
        if isinstance(key, str) and key:
            yield PrivateFile(absolute(key), f"is named {where} as the file of an API key")
        secrets = table.get("secrets")
        for text in secrets.values() if isinstance(secrets, Mapping) else ():
            if isinstance(text, str) and text:
                yield PrivateFile(absolute(text), f"is named {where} as a secret of a container")


def _journal(document: Mapping[str, Any]) -> str:
    found = document.get(JOURNAL)
    if isinstance(found, Mapping):
        found = next((value for key, value in found.items() if JOURNAL_KEYS.get(key) == JOURNAL), None)
    return found if isinstance(found, str) else ""


def _path_of(journal: str) -> str:
    kind, separator, rest = journal.partition("://")
    if not separator:
        return "" if journal in ("auto", "off") else journal
    return rest.partition("?")[0].removeprefix("/") if kind.startswith("sqlite") else ""


def _tables(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    entries = document.get(ENTRIES)
    return (
        [each for each in entries.values() if isinstance(each, Mapping)]
        if isinstance(entries, Mapping)
        else []
    )


def _hides(url: object) -> bool:
    """True if the URL contains credentials."""
    return isinstance(url, str) and "://" in url and shown_journal(url) != url


def _loaded(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value
