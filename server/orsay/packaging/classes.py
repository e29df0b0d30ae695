"""Static search for the environment classes of a project: files are parsed, never imported.

The project's dependencies may be missing on the machine that builds the image.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import LoadError

__all__ = ["find_targets", "parsed", "python_files"]

_PACKAGES = ("orsay", "openreward", "ors")
_NOT_SEARCHED = frozenset({"tests", "test", "docs", "build", "dist", "node_modules", "site-packages"})
_NOT_READ = frozenset({"setup.py", "conftest.py"})
_PROMPTS = frozenset({"prompt", "get_prompt", "messages"})

_Class = tuple[str, str]


@dataclass
class _Module:
    """Parsed file: imported names, and classes."""

    name: str
    target: str
    imported: dict[str, _Class] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)


def find_targets(folder: Path) -> tuple[str, ...]:
    """Targets for ``orsay serve``, run in ``folder``, of all environments there, in the order of their files.

    Classes that serve as bases of others and have no tool or no prompt are left out, as are names with an
    underscore, tests, and hidden folders. Raises LoadError for a file that is no Python.
    """
    root = folder / "src" if (folder / "src").is_dir() else folder
    modules = {module.name: module for module in (_read(path, root) for path in python_files(root))}
    found = [
        (module, name)
        for module in modules.values()
        for name in module.classes
        if not name.startswith("_") and _is_environment(modules, (module.name, name))
    ]
    parents = {base for module, name in found for base in _bases(modules, module, module.classes[name])}
    return tuple(
        f"{module.target}:{name}"
        for module, name in found
        if (module.name, name) not in parents or _is_complete(module.classes[name])
    )


def python_files(root: Path) -> Iterator[Path]:
    """Files that hold code of a project: without tests, hidden folders and virtual environments."""
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith((".", "_"))
            and name not in _NOT_SEARCHED
            and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
        )
        for name in sorted(files):
            path = Path(folder, name)
            wanted = name.endswith(".py") and name not in _NOT_READ and not name.startswith("test_")
            if wanted and path.is_file():  # opening a pipe would block
                yield path


def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file. Raises LoadError for one that cannot be read, or is no Python."""
    try:
        return ast.parse(path.read_bytes(), filename=str(path))
    except OSError as exc:
        raise LoadError(f"cannot read {path}: {exc.strerror or exc}") from exc
    except (SyntaxError, ValueError) as exc:
        line = getattr(exc, "lineno", None) or 1
        raise LoadError(f"{path}:{line} cannot be read as Python: {getattr(exc, 'msg', exc)}") from exc


def _read(path: Path, root: Path) -> _Module:
    tree = parsed(path)
    parts = path.relative_to(root).with_suffix("").parts
    is_package = parts[-1] == "__init__"
    name = ".".join(parts[:-1] if is_package else parts)
    # A single file is targeted by path: its module name may collide with an installed module.
    module = _Module(name, path.name if len(parts) == 1 else name)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            module.classes[node.name] = node
        elif isinstance(node, ast.Import):
            for each in node.names:
                bound = each.asname or each.name.partition(".")[0]
                module.imported[bound] = (each.name if each.asname else bound, "")
        elif isinstance(node, ast.ImportFrom):
            source = _source(node, name, is_package=is_package)
            for each in node.names:
                module.imported[each.asname or each.name] = (source, each.name)
    return module


def _source(node: ast.ImportFrom, module: str, *, is_package: bool) -> str:
    """The module that ``from … import`` names, dots resolved."""
    if not node.level:
        return node.module or ""
    above = module.split(".")
    above = above[: len(above) - node.level + (1 if is_package else 0)]
    return ".".join([*above, *([node.module] if node.module else [])])


def _bases(modules: Mapping[str, _Module], module: _Module, node: ast.ClassDef) -> list[_Class]:
    return [_resolve(modules, module, base) for base in node.bases]


def _resolve(modules: Mapping[str, _Module], module: _Module, base: ast.expr) -> _Class:
    """Definition of a base class, if the project's own files have it."""
    if isinstance(base, ast.Subscript):
        return _resolve(modules, module, base.value)
    if isinstance(base, ast.Attribute):
        first = ast.unparse(base.value).split(".")
        source, name = module.imported.get(first[0], ("", ""))
        return _followed(modules, ".".join(filter(None, [source, name, *first[1:]])), base.attr)
    if not isinstance(base, ast.Name):
        return "", ""
    if base.id in module.classes:
        return module.name, base.id
    return _followed(modules, *module.imported.get(base.id, ("", "")))


def _followed(modules: Mapping[str, _Module], source: str, name: str) -> _Class:
    """Follow re-exports of a name through modules of the project."""
    seen: set[_Class] = set()
    while (source, name) not in seen and source in modules and name not in modules[source].classes:
        seen.add((source, name))
        source, name = modules[source].imported.get(name, ("", ""))
    return source, name


def _is_environment(modules: Mapping[str, _Module], cls: _Class) -> bool:
    seen: set[_Class] = set()
    waiting = [cls]
    while waiting:
        source, name = waiting.pop()
        if name == "Environment" and source.partition(".")[0] in _PACKAGES:
            return True
        if (source, name) not in seen and source in modules and name in modules[source].classes:
            seen.add((source, name))
            waiting += _bases(modules, modules[source], modules[source].classes[name])
    return False


def _is_complete(node: ast.ClassDef) -> bool:
    """True for a base class that is a complete environment itself."""
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    named = {
        name for each in node.body if isinstance(each, ast.Assign) for name in map(ast.unparse, each.targets)
    }
    has_tool = any("tool" in ast.unparse(mark) for each in methods for mark in each.decorator_list)
    return has_tool and bool(_PROMPTS & ({each.name for each in methods} | named))
