"""Sources of what a user names: a folder, a file with the modules beside it, an importable module."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from ...authoring.imports import is_file, split_target
from ...errors import LoadError
from ..classes import python_files
from .sources import Module, parse

__all__ = ["sources_of"]


def sources_of(target: str, folders: Sequence[str] = ()) -> list[Module]:
    """Parsed sources of a target; modules are searched for in ``folders``, here, and where Python looks.

    Raises LoadError: there is none, or a file is no Python.
    """
    path = Path(target).expanduser()
    if path.is_dir():
        return parse(python_files(path), path)
    files: dict[Path, None] = {}
    for part in filter(None, map(str.strip, target.split(","))):
        source, _ = split_target(part)
        start = (
            Path(source).expanduser()
            if is_file(source)
            else _found(source, [*folders, os.getcwd(), *sys.path])
        )
        if not start.exists():
            raise LoadError(f"no file {source}")
        files.update(dict.fromkeys(python_files(start) if start.is_dir() else _with_neighbours(start)))
    root = Path(os.path.commonpath([file.absolute().parent for file in files]))
    return parse(files, root)


def _found(name: str, folders: Sequence[str]) -> Path:
    """File of a module, or folder of its topmost package."""
    spec = PathFinder.find_spec(name.partition(".")[0], list(folders))
    if spec is None:
        raise LoadError(f"no folder, file or module {name!r}")
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    if not spec.origin or not spec.origin.endswith(".py"):
        raise LoadError(f"{name} has no Python sources")
    return Path(spec.origin)


def _with_neighbours(file: Path) -> list[Path]:
    """The file, and the modules and packages beside it that it imports, and those that they do."""
    found: dict[Path, None] = {}
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found[path] = None
        for name in _imported(path):
            beside = file.parent / name
            if beside.with_suffix(".py").is_file():
                waiting.append(beside.with_suffix(".py"))
            elif (beside / "__init__.py").is_file():
                waiting += python_files(beside)
    return list(found)


def _imported(path: Path) -> set[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return set()  # parsed again, with an error
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
        elif isinstance(node, ast.ImportFrom):
            names |= {each.name for each in node.names}
    return names
