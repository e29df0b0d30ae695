"""Import of modules and files that a user names, with errors that point to the user's own lines."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import pkgutil
import sys
import sysconfig
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import LoadError
from ..suggest import did_you_mean

__all__ = ["attribute", "import_source", "importable_target", "is_file", "search_here", "split_target"]

_FILE_PREFIX = "orsay_file_"
_OWN_FILES = (os.path.dirname(__file__) + os.sep, "<frozen ", str(importlib.__file__))
_LIBRARIES = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")})


def split_target(target: str) -> tuple[str, str]:
    """A module or file, and a name in it: ``a.b:C`` is ``a.b`` and ``C``. The name may be missing.

    Raises LoadError when there is no module.
    """
    source, name = (target, "") if target.endswith(".py") or ":" not in target else target.rsplit(":", 1)
    if not source:
        raise LoadError(f"{target!r} names no module; write module:Class or path/to/file.py:Class")
    return source, name


def import_source(source: str) -> ModuleType:
    """The module of that dotted name or of that file; the current folder is searched too.

    Raises LoadError: there is none (with the nearest names), or it raised (with the author's file and line).
    """
    return _load_file(source) if is_file(source) else _load_module(source)


def search_here() -> None:
    """Add the current folder to the import path."""
    _add_to_path(os.getcwd())


def importable_target(found: Any) -> str:
    """The target from which another process can load a class or function.

    Raises LoadError for one that lives in this process only: in a function, a notebook or a shell.
    """
    local = "serve it with the local runtime, or move it to the top level of a file"
    qualname = found.__qualname__
    if "<locals>" in qualname:
        raise LoadError(f"{qualname} is defined inside a function, so no other process can load it; {local}")
    module = sys.modules.get(found.__module__)
    if module is None or attribute(module, qualname) is not found:
        raise LoadError(f"{found.__module__} has no {qualname} to load in another process; {local}")
    if found.__module__ == "__main__":
        spec = getattr(module, "__spec__", None)
        if spec is not None:
            return f"{spec.name}:{qualname}"
        file = getattr(module, "__file__", None)
        if file is None or not os.path.isfile(file):
            raise LoadError(
                f"{qualname} is defined in a notebook or a shell, so no other process can load it; {local}"
            )
        return f"{os.path.abspath(file)}:{qualname}"
    if found.__module__.startswith(_FILE_PREFIX):
        return f"{module.__file__}:{qualname}"
    return f"{found.__module__}:{qualname}"


def is_file(source: str) -> bool:
    """True for a path, False for a dotted name."""
    return source.endswith(".py") or os.sep in source or "/" in source


def _load_module(name: str) -> ModuleType:
    _add_to_path(os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name is None or not (name == exc.name or name.startswith(exc.name + ".")):
            raise _import_failed(name, exc) from exc
        raise LoadError(_what_is_missing(name, exc.name)) from exc
    except KeyboardInterrupt:
        raise
    except BaseException as exc:
        raise _import_failed(name, exc) from exc


def _load_file(source: str) -> ModuleType:
    path = Path(source).expanduser().resolve()
    if not path.is_file():
        raise LoadError(_what_file_is_missing(path))
    package, root = path.stem, path.parent
    if (root / "__init__.py").is_file():
        while (root / "__init__.py").is_file():
            package, root = f"{root.name}.{package}", root.parent
        _add_to_path(str(root))
        return _load_module(package.removesuffix(".__init__"))
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:8]
    name = f"{_FILE_PREFIX}{digest}_{path.stem}"
    known = sys.modules.get(name)
    if known is not None:
        return known
    _add_to_path(str(root))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LoadError(f"{source} is no Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as exc:
        del sys.modules[name]
        if isinstance(exc, KeyboardInterrupt):
            raise
        raise _import_failed(source, exc) from exc
    return module


def _add_to_path(folder: str) -> None:
    if folder not in sys.path and not (folder == os.getcwd() and "" in sys.path):
        sys.path.insert(0, folder)
        importlib.invalidate_caches()


def attribute(module: ModuleType, qualname: str) -> Any:
    """The attribute of a module under a dotted name, or None."""
    found: Any = module
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found


def _import_failed(source: str, exc: BaseException) -> LoadError:
    """Error for a module that failed to import: what it raised and where, without frames of the import
    system.
    """
    what = f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
    if isinstance(exc, SystemExit):
        what = f"it ended the process with exit code {exc.code}"
    at = ""
    if isinstance(exc, SyntaxError) and exc.filename:
        at = f" at {exc.filename}:{exc.lineno}"
    else:
        frames = [
            frame
            for frame in traceback.extract_tb(exc.__traceback__)
            if not frame.filename.startswith(_OWN_FILES)
        ]
        own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)] or frames
        if own:
            at = f" at {own[-1].filename}:{own[-1].lineno}"
            if own[-1] is not frames[-1]:
                what += f" (raised at {frames[-1].filename}:{frames[-1].lineno})"
    return LoadError(f"importing {source} failed{at}: {what}")


def _what_is_missing(name: str, missing: str) -> str:
    parent, _, last = missing.rpartition(".")
    if not parent:
        here = [entry.name for entry in pkgutil.iter_modules([os.getcwd()])]
        return f"no module {missing!r}, neither installed nor in {os.getcwd()}{did_you_mean(missing, here)}"
    package = sys.modules.get(parent)
    path = getattr(package, "__path__", None)
    if path is None:
        return f"{parent!r} is a module, not a package: no {name!r}; for a class write {parent}:{last}"
    inside = [entry.name for entry in pkgutil.iter_modules(path)]
    return f"package {parent!r} is there, but has no module {last!r}{did_you_mean(last, inside)}"


def _what_file_is_missing(path: Path) -> str:
    if path.is_dir():
        return f"{path} is a folder; name a file in it, such as {path}/env.py"
    if not path.parent.is_dir():
        there = next(parent for parent in path.parents if parent.is_dir())
        return f"no file {path}: folder {there} has no {path.relative_to(there).parts[0]!r}"
    here = [entry.name for entry in path.parent.glob("*.py")]
    return f"no file {path.name!r} in {path.parent}{did_you_mean(path.name, here)}"
