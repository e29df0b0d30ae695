"""Choice of the folder that an environment's own code sees as its data.

Environments written for ``openreward`` read files at ``/orwd_data`` in their own process, besides those of
their sandboxes. An entry names its data; else the data of the same name is taken.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..authoring.imports import is_file, split_target
from ..config.entries import CodeOptions, DirectoryTable, Entry
from ..errors import LoadError
from ..suggest import did_you_mean

__all__ = ["NO_DATA", "CodeData", "data_of", "named_folder"]


@dataclass(frozen=True)
class CodeData:
    """The folder, if there is one. ``required``: the entry names it, so that its workers fail without it."""

    folder: str = ""
    required: bool = False
    note: str = field(default="", compare=False)
    """Why there is none although there is data of that name."""


NO_DATA = CodeData()


def named_folder(data: str, folders: Mapping[str, Path]) -> str:
    """The folder of an entry's ``data``: a name of ``[sandboxes.data]``, or a path. Raises LoadError."""
    folder = folders.get(data, Path(data))
    if not folder.is_dir():
        known = "" if data in folders else did_you_mean(data, folders)
        what = "neither a name under [sandboxes.data] nor a folder" if data not in folders else "not there"
        raise LoadError(f"data = {data!r}: {folder} is {what}{known}")
    return str(folder)


def data_of(entry: Entry, folders: Mapping[str, Path]) -> CodeData:
    """The data of an entry whose code runs here.

    Without an own choice it is what is called as one of its classes, its label, its file or its project is,
    whatever the owner; letter case and punctuation do not count.
    """
    table = entry.table
    if not isinstance(table, CodeOptions):
        return NO_DATA
    if table.data is not None:
        return CodeData(named_folder(table.data, folders), required=True)
    names = {_plain(name) for name in _names(entry)}
    found = {
        name: str(folder) for name, folder in folders.items() if _plain(name.rpartition("/")[2]) in names
    }
    if len(set(found.values())) > 1:
        return CodeData(
            note=f"{' and '.join(sorted(found))} fit its names: give each an entry with data = NAME"
        )
    return CodeData(next(iter(found.values()))) if found else NO_DATA


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _names(entry: Entry) -> Iterator[str]:
    yield entry.label
    if isinstance(entry.table, DirectoryTable):
        yield Path(entry.table.directory).name
    for target in entry.targets:
        for part in target.split(","):
            source, name = split_target(part)
            if name:
                yield name.rpartition(".")[2]
            elif is_file(source):
                yield Path(source).stem
                yield from _classes(Path(source))
            else:
                yield source.rpartition(".")[2]


def _classes(file: Path) -> Iterator[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # the loader says what is wrong with it
    yield from (node.name for node in tree.body if isinstance(node, ast.ClassDef))
