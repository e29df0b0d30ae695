"""Reader of ``orsay.toml``: settings at the top, then a table for each entry of environments.

All errors of the file are reported together, with line numbers. Variables override values of entries:
``ORSAY_ENVIRONMENTS__ECHO__WORKERS`` is ``workers`` of ``[environments.echo]``.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from pydantic import SecretStr, ValidationError

from ..adapters import is_adapter_target
from ..authoring.imports import is_file, split_target
from ..errors import ConfigError, LoadError
from ..settings import Settings, read_keys
from ..suggest import did_you_mean
from .entries import TABLES, ClassTable, CodeOptions, DirectoryTable, Entry, ImageTable, UpstreamOptions
from .layers import SECRETS, FileSettings
from .lines import Lines
from .problems import Problem, explain

__all__ = [
    "ENTRIES",
    "ENTRY_VARIABLES",
    "JOURNAL",
    "JOURNAL_KEYS",
    "LABEL",
    "SANDBOXES",
    "SETTING_TABLES",
    "FileContent",
    "read_file",
]

ENTRIES = "environments"
JOURNAL = "journal"
JOURNAL_KEYS = {
    "url": JOURNAL,
    **{name.removeprefix("journal_"): name for name in Settings.model_fields if name.startswith("journal_")},
}
"""Settings by their keys in the table ``[journal]``."""
SANDBOXES = "sandboxes"
SETTING_TABLES = {
    JOURNAL: JOURNAL_KEYS,
    SANDBOXES: {
        name.removeprefix("sandboxes_"): name
        for name in Settings.model_fields
        if name.startswith("sandboxes_")
    },
}
"""Settings by their keys in a table of their own, by its name."""
LABEL = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_SYNTAX = re.compile(r"(.*) \(at line (\d+), column \d+\)", re.DOTALL)
ENTRY_VARIABLES = "ORSAY_ENVIRONMENTS__"
_VARIABLE = re.compile(rf"{ENTRY_VARIABLES}(.+?)__(.+)", re.IGNORECASE)


@dataclass(frozen=True)
class FileContent:
    """Content of a file. Paths are absolute; ``lines`` has the line of each setting."""

    values: Mapping[str, Any]
    entries: tuple[Entry, ...]
    lines: Mapping[str, str]
    problems: tuple[Problem, ...]


def read_file(path: Path) -> FileContent:
    """The content of a file. Raises ConfigError when it cannot be read at all."""
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except OSError as exc:
        hint = did_you_mean(path.name, _files_beside(path), listed=False)
        raise ConfigError(f"cannot read {path}: {exc.strerror or exc}{hint}") from exc
    except UnicodeDecodeError as exc:
        line = exc.object.count(b"\n", 0, exc.start) + 1
        raise ConfigError(f"{path}:{line}: this is no UTF-8, as TOML must be") from exc
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(_syntax(path, text, str(exc))) from exc
    return _Reader(path, document, Lines(text)).read()


def _files_beside(path: Path) -> list[str]:
    return [each.name for each in path.parent.glob("*.toml")] if path.parent.is_dir() else []


def _syntax(path: Path, text: str, message: str) -> str:
    match = _SYNTAX.fullmatch(message)
    if match is not None:
        return f"{path}:{match[2]}: this is no TOML: {match[1]}"
    return (
        f"{path}:{text.count(chr(10)) + 1}: this is no TOML: {message.removesuffix(' (at end of document)')}"
    )


@dataclass
class _Reader:
    path: Path
    document: dict[str, Any]
    lines: Lines
    problems: list[Problem] = field(default_factory=list)
    paths: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Path in the document of each setting that is not a top-level key."""
    data: frozenset[str] = frozenset()
    """Names of folders of data."""

    def read(self) -> FileContent:
        tables = self.document.pop(ENTRIES, {})
        values = self._settings()
        entries: list[Entry] = []
        if not isinstance(tables, dict):
            self._wrong((ENTRIES,), f"write a table for each: [{ENTRIES}.LABEL]")
        else:
            entries = [entry for label in tables for entry in self._entry(label, tables[label], tables)]
            self._check_variables(tables)
        lines = {name: self._where(self.paths.get(name, (name,))) for name in values}
        return FileContent(values, tuple(entries), lines, tuple(sorted(self.problems, key=_line)))

    def _where(self, path: tuple[str | int, ...]) -> str:
        return f"{self.path}:{self.lines.of(path)}"

    def _wrong(self, path: tuple[str | int, ...], text: str) -> None:
        self.problems.append(Problem(self._where(path), text))

    # settings

    def _settings(self) -> dict[str, Any]:
        known = {*Settings.model_fields, ENTRIES, *SETTING_TABLES}
        values = {**self._table(JOURNAL), **self._table(SANDBOXES)}
        for name, value in self.document.items():
            if name not in known:
                self._wrong((name,), f"unknown key {name!r}{_hint(name, known)}")
            else:
                values[name] = tuple(value) if isinstance(value, list) else value
        keys_file = values.get("api_keys_file")
        if isinstance(keys_file, str):
            keys_file = values["api_keys_file"] = self._absolute(keys_file)
        data = values.get("sandboxes_data")
        if isinstance(data, dict):
            self.data = frozenset(data)
            values["sandboxes_data"] = {
                name: self._absolute(folder) if isinstance(folder, str) else folder
                for name, folder in data.items()
            }
        images = values.get("sandboxes_images")
        if isinstance(images, dict):
            values["sandboxes_images"] = {
                name: str(self._absolute(image)) if _is_relative(image) else image
                for name, image in images.items()
            }
        location = values.get(JOURNAL)
        if isinstance(location, str):
            values[JOURNAL] = self._journal_location(location)
        for name, error in _errors(FileSettings, values):
            if name in values:
                del values[name]
                path = self.paths.get(name, (name,))
                self._wrong(path, explain(path[-1], error, secret=name in SECRETS))
        if isinstance(keys_file, Path):
            try:
                read_keys(keys_file)
            except ValueError as exc:
                del values["api_keys_file"]
                self._wrong(("api_keys_file",), str(exc))
        return values

    def _table(self, title: str) -> dict[str, Any]:
        """The settings of a table; a text named ``journal`` is a setting itself."""
        table, keys = self.document.get(title), SETTING_TABLES[title]
        if not isinstance(table, dict):
            return {}
        del self.document[title]
        values = {}
        for key, value in table.items():
            at = (title, key)
            name = keys.get(key)
            if name is None:
                self._wrong(at, f"unknown key {key!r} in {title}{_hint(key, keys)}")
            elif name in self.document:
                self._wrong(at, f"{name!r} is at the top of the file too: give it once")
            else:
                values[name] = value
                self.paths[name] = at
        return values

    def _journal_location(self, text: str) -> str:
        """Journal location; a path is relative to the file's folder."""
        if "://" in text or text in ("auto", "off", ""):
            return text
        return str(self._absolute(text))

    # entries

    def _entry(self, label: str, table: Any, tables: Mapping[str, Any]) -> Iterator[Entry]:
        """The entry, or None if it is invalid."""
        before = len(self.problems)
        at = (ENTRIES, label)
        if not isinstance(table, dict):
            self._wrong(at, f"{label} must be a table: [{ENTRIES}.{label}]")
            return
        if not re.fullmatch(LABEL, label):
            self._wrong(at, f"{label!r} cannot be a label: use letters, digits, and . _ - inside")
        variables = dict(_variables(label))
        where = {key: f"variable {name}" for key, (name, _) in variables.items()}
        table = {**table, **{key: value for key, (_, value) in variables.items()}}
        source = self._source(label, table)
        if source is None:
            return
        kind = TABLES[source]
        for key in self._unknown(label, table, source, where):
            del table[key]
        for key, error in _errors(kind, table):
            named = ".".join(part for part in error["loc"] if isinstance(part, str) and "[" not in part)
            text = explain(named, error, secret=key in SECRETS)
            self.problems.append(Problem(where.get(key) or self._where((*at, *error["loc"])), text))
        if len(self.problems) > before:
            return
        yield from self._complete(label, kind.model_validate(table))

    def _source(self, label: str, table: Mapping[str, Any]) -> str | None:
        at = (ENTRIES, label)
        sources = [key for key in table if key in TABLES]
        if len(sources) == 1:
            return sources[0]
        if sources:
            self._wrong(
                (*at, sources[1]),
                f"{label} has both {sources[0]!r} and {sources[1]!r}: an entry has one source; make it two",
            )
            return None
        keys = set().union(*(_keys(kind) for kind in TABLES))
        unknown = [key for key in table if key not in keys]
        for key in unknown:
            self._wrong((*at, key), f"unknown key {key!r} in {label}{_hint(key, TABLES)}")
        if not unknown:
            self._wrong(at, f"{label} has no source: give one of {', '.join(TABLES)}")
        return None

    def _unknown(
        self, label: str, table: Mapping[str, Any], source: str, where: Mapping[str, str]
    ) -> list[str]:
        known = _keys(source)
        unknown = [key for key in table if key not in known]
        for key in unknown:
            others = [kind for kind in TABLES if key in _keys(kind)]
            if others:
                text = f"{key!r} goes with {' and '.join(others)}, not with {source}"
            else:
                text = f"unknown key {key!r} in {label}{_hint(key, known)}"
            self.problems.append(Problem(where.get(key) or self._where((ENTRIES, label, key)), text))
        return unknown

    def _complete(self, label: str, table: Any) -> Iterator[Entry]:
        """Paths made absolute, keys read."""
        at, before = (ENTRIES, label), len(self.problems)
        targets: tuple[str, ...] = ()
        folders: tuple[str, ...] = ()
        if isinstance(table, ClassTable):
            targets = tuple(self._target(label, each) for each in table.targets)
            folders = tuple(str(self._absolute(each)) for each in table.path) or (str(self._folder()),)
            for each in folders:
                if not Path(each).is_dir():
                    self._wrong((*at, "path"), f"no folder {each} to import from")
        elif isinstance(table, DirectoryTable):
            table = table.model_copy(update={"directory": str(self._absolute(table.directory))})
        if isinstance(table, CodeOptions) and table.data is not None and table.data not in self.data:
            folder = self._absolute(table.data)
            if folder.is_dir():
                table = table.model_copy(update={"data": str(folder)})
        elif isinstance(table, UpstreamOptions):
            table = table.model_copy(update={"api_key": self._api_key(label, table)})
            if isinstance(table, ImageTable):
                table = self._with_paths(table)
        if len(self.problems) == before:
            yield Entry(label, table, targets, folders, self._where(at))

    def _target(self, label: str, text: str) -> str:
        if is_adapter_target(text):
            return text
        parts = []
        for part in filter(None, map(str.strip, text.split(","))):
            if part.startswith(("http://", "https://", "docker:")):
                key, value = ("image", part.removeprefix("docker:")) if part[0] == "d" else ("url", part)
                self._wrong((ENTRIES, label, "class"), f'{part!r} is no class; use {key} = "{value}"')
            else:
                try:
                    source, name = split_target(part)
                except LoadError as exc:
                    self._wrong((ENTRIES, label, "class"), str(exc))
                    continue
                source = str(self._absolute(source)) if is_file(source) else source
                parts.append(f"{source}:{name}" if name else source)
        return ",".join(parts)

    def _api_key(self, label: str, table: UpstreamOptions) -> SecretStr | None:
        at = (ENTRIES, label)
        given = [
            key for key in ("api_key", "api_key_variable", "api_key_file") if getattr(table, key) is not None
        ]
        if len(given) > 1:
            self._wrong((*at, given[1]), f"{label} has both {given[0]!r} and {given[1]!r}: one is enough")
        elif table.api_key_variable is not None:
            key = os.environ.get(table.api_key_variable)
            if key:
                return SecretStr(key)
            self._wrong(
                (*at, given[0]), f"the variable {table.api_key_variable} that should hold a key is not set"
            )
        elif table.api_key_file is not None:
            try:
                return read_keys(self._absolute(table.api_key_file))[0]
            except ValueError as exc:
                self._wrong((*at, given[0]), str(exc))
        return table.api_key

    def _with_paths(self, table: ImageTable) -> ImageTable:
        changes: dict[str, Any] = {}
        if table.secrets is not None:
            changes["secrets"] = {name: str(self._absolute(each)) for name, each in table.secrets.items()}
        if table.volumes is not None:
            changes["volumes"] = tuple(
                str(self._absolute(each.partition(":")[0])) + ":" + each.partition(":")[2]
                if each.startswith((".", "~"))
                else each
                for each in table.volumes
            )
        return table.model_copy(update=changes)

    def _folder(self) -> Path:
        return self.path.absolute().parent

    def _absolute(self, text: str) -> Path:
        return Path(os.path.normpath(self._folder() / Path(text).expanduser()))

    # variables

    def _check_variables(self, tables: Mapping[str, Any]) -> None:
        labels = {_as_variable(label) for label in tables}
        for name in os.environ:
            match = _VARIABLE.fullmatch(name)
            if match is not None and match[1].lower() not in labels:
                hint = did_you_mean(match[1].lower(), labels)
                text = f"there is no [{ENTRIES}.{match[1].lower()}]{hint}"
                self.problems.append(Problem(f"variable {name}", text))


def _line(problem: Problem) -> tuple[bool, int]:
    line = problem.where.rpartition(":")[2]
    return not line.isdecimal(), int(line) if line.isdecimal() else 0


def _variables(label: str) -> Iterator[tuple[str, tuple[str, Any]]]:
    """Keys of the entry that variables give: ``key, (variable, value)``."""
    for name, text in os.environ.items():
        match = _VARIABLE.fullmatch(name)
        if match is not None and match[1].lower() == _as_variable(label):
            try:
                value = json.loads(text)
            except ValueError:
                value = text
            yield match[2].lower(), (name, value)


def _as_variable(label: str) -> str:
    return re.sub(r"[^a-z0-9]", "_", label.lower())


def _keys(source: str) -> set[str]:
    return {field.alias or name for name, field in TABLES[source].model_fields.items()}


def _hint(name: str, known: Any) -> str:
    return did_you_mean(name, known, listed=len(known) <= 8)


def _errors(kind: Any, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The first error of each key."""
    try:
        kind(**values)
    except ValidationError as exc:
        seen: set[str] = set()
        for error in exc.errors(include_url=False):
            key = str(error["loc"][0]) if error["loc"] else ""
            if key not in seen:
                seen.add(key)
                yield key, error


def _is_relative(image: object) -> TypeGuard[str]:
    """True for the folder of an unpacked image, beside the file; other names are an engine's."""
    return isinstance(image, str) and image.startswith(("./", "../"))
