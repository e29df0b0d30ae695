"""Completion and validation of entries without starting anything.

Reads the targets of project folders, validates container options, and with ``look_for_code`` searches for
modules without importing them.
"""

from __future__ import annotations

import os
import pkgutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.machinery import PathFinder
from pathlib import Path

from ..adapters import is_adapter_target
from ..authoring.imports import is_file, split_target
from ..config.entries import CodeOptions, DirectoryTable, Entry, ImageTable, UpstreamOptions
from ..config.problems import Problem, config_error
from ..errors import ConfigError, LoadError
from ..packaging.project import read
from ..settings import Settings
from ..suggest import did_you_mean
from .data import named_folder
from .plan import docker_options

__all__ = ["resolve"]


def resolve(entries: Iterable[Entry], settings: Settings, *, look_for_code: bool = False) -> list[Entry]:
    """The completed entries. Raises ConfigError with all problems, a line each."""
    found: list[Entry] = []
    problems: list[Problem] = []
    for entry in entries:
        try:
            found.append(_resolved(entry, settings))
            if look_for_code:
                _look_for_code(found[-1])
        except (ConfigError, LoadError) as exc:
            problems.append(Problem(entry.where, f"{entry.label}: {exc}" if entry.where else str(exc)))
    if problems:
        raise config_error(problems)
    return found


def _resolved(entry: Entry, settings: Settings) -> Entry:
    if isinstance(entry.table, CodeOptions) and entry.table.data is not None:
        folder = named_folder(entry.table.data, settings.sandboxes_data)
        entry = replace(entry, table=entry.table.model_copy(update={"data": folder}))
    if isinstance(entry.table, DirectoryTable):
        return _of_project(entry, entry.table)
    if (
        isinstance(entry.table, UpstreamOptions)
        and entry.table.sandboxes
        and settings.sandboxes_backend in ("off", "auto")
    ):
        raise ConfigError(
            "sandboxes = true, but this server has none for code of others: set [sandboxes] backend to docker"
            " or bubblewrap"
        )
    if isinstance(entry.table, ImageTable):
        docker_options(entry.table, settings)
    return entry


def _of_project(entry: Entry, table: DirectoryTable) -> Entry:
    project = read(table.directory)
    if not project.targets:
        raise LoadError(
            f"{table.directory} has a Dockerfile, but no environment to import: build it with 'orsay build"
            f' {table.directory}\', and set image = "{project.name}"'
        )
    root = project.folder / "src"
    root = root if root.is_dir() else project.folder
    targets = tuple(
        str(root / each) if each.partition(":")[0].endswith(".py") else each for each in project.targets
    )
    return replace(entry, targets=targets, folders=(str(root),))


def _look_for_code(entry: Entry) -> None:
    for target in entry.targets:
        if is_adapter_target(target):
            continue
        for part in target.split(","):
            source, _ = split_target(part)
            if not is_file(source):
                _look_for_module(source, [*entry.folders, os.getcwd(), *sys.path])
            elif not Path(source).is_file():
                raise LoadError(f"no file {source}")


def _look_for_module(name: str, folders: Sequence[str]) -> None:
    """Find a module without importing it or the packages around it. Raises LoadError."""
    path: Sequence[str] | None = folders
    found = ""
    for part in name.split("."):
        if path is None:
            raise LoadError(f"{found!r} is a module, not a package: no {name!r}")
        found = f"{found}.{part}" if found else part
        spec = PathFinder.find_spec(found, list(path))
        if spec is None:
            inside = [module.name for module in pkgutil.iter_modules(path)] if "." in found else []
            raise LoadError(
                f"no module {found!r}, neither installed nor in {folders[0]}{did_you_mean(part, inside)}"
            )
        path = spec.submodule_search_locations
