"""Parsed sources of a project, and the texts that an expression in them may be."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..classes import parsed

__all__ = ["Module", "Texts", "parse"]

_DEEPEST = 8
_MOST = 32
_JOINED = frozenset({"Path", "PurePath", "PurePosixPath", "join"})
_PASSED_ON = frozenset({"str", "expanduser", "resolve", "as_posix", "strip"})


@dataclass(frozen=True)
class Module:
    """A parsed file. ``name`` is its path for people; ``imported`` has dotted names by the local ones."""

    name: str
    tree: ast.Module
    imported: dict[str, str]

    def dotted(self, node: ast.expr) -> str:
        """The full name of ``a.b.C``, imports resolved; empty for any other expression."""
        if isinstance(node, ast.Name):
            return self.imported.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            before = self.dotted(node.value)
            return f"{before}.{node.attr}" if before else ""
        return ""


def parse(files: Iterable[Path], root: Path) -> list[Module]:
    """The files, named relative to ``root``. Raises LoadError for one that is no Python."""
    return [_parse(path, root) for path in files]


def _parse(path: Path, root: Path) -> Module:
    name = os.path.relpath(path, root)
    tree = parsed(path)
    imported: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                first = each.name.partition(".")[0]
                imported[each.asname or first] = each.name if each.asname else first
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            for each in node.names:
                imported[each.asname or each.name] = f"{source}.{each.name}"
    return Module(name, tree, imported)


class Texts:
    """Texts of expressions, over all modules. ``*`` stands for a part that only a run knows.

    A variable or an attribute may be each text that is assigned to its name anywhere, its own module first.
    """

    def __init__(self, modules: Iterable[Module]) -> None:
        self._assigned: dict[str, dict[str, list[ast.expr]]] = {}
        for module in modules:
            own = self._assigned.setdefault(module.name, {})
            for name, value in _assignments(module.tree):
                own.setdefault(name, []).append(value)

    def of(self, node: ast.expr, module: Module) -> frozenset[str]:
        """The texts that ``node`` may be; none if it is no text, or nothing of it is known."""
        return frozenset(text for text in self._of(node, module, 0) if text.strip("*"))

    def _of(self, node: ast.expr, module: Module, depth: int) -> set[str]:
        if depth > _DEEPEST:
            return set()
        if isinstance(node, ast.Constant):
            return {node.value} if isinstance(node.value, str) else set()
        if isinstance(node, ast.JoinedStr):
            return self._joined(node.values, module, depth, "")
        if isinstance(node, ast.FormattedValue):
            return self._of(node.value, module, depth + 1)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Div):
            slash = "/" if isinstance(node.op, ast.Div) else ""
            return self._joined([node.left, node.right], module, depth, slash)
        if isinstance(node, ast.IfExp):
            return self._of(node.body, module, depth + 1) | self._of(node.orelse, module, depth + 1)
        if isinstance(node, ast.BoolOp):
            return {text for each in node.values for text in self._of(each, module, depth + 1)}
        if isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            return {text for each in self._values(name, module) for text in self._of(each, module, depth + 1)}
        if isinstance(node, ast.Call):
            return self._call(node, module, depth)
        return set()

    def _values(self, name: str, module: Module) -> list[ast.expr]:
        own = self._assigned[module.name].get(name)
        if own is not None:
            return own
        return [value for other in self._assigned.values() for value in other.get(name, ())]

    def _call(self, node: ast.Call, module: Module, depth: int) -> set[str]:
        name = module.dotted(node.func)
        last = name.rpartition(".")[2] if name else getattr(node.func, "attr", "")
        if last in _JOINED and node.args:
            return self._joined(node.args, module, depth, "/")
        if name in ("os.environ.get", "os.getenv") and len(node.args) == 2:
            return self._of(node.args[1], module, depth + 1)
        if last and (returned := self._values(f"{last}()", module)):
            return {text for each in returned for text in self._of(each, module, depth + 1)}
        if last in _PASSED_ON:
            inner = node.args[0] if node.args else getattr(node.func, "value", None)
            return self._of(inner, module, depth + 1) if isinstance(inner, ast.expr) else set()
        return set()

    def _joined(self, parts: Iterable[ast.expr], module: Module, depth: int, between: str) -> set[str]:
        found = {""}
        for number, part in enumerate(parts):
            texts = self._of(part, module, depth + 1) or {"*"}
            gap = between if number else ""
            found = {_join(before, gap, text) for before in found for text in texts}
            if len(found) > _MOST:
                return set()
        return found


def _join(before: str, between: str, after: str) -> str:
    return f"{before.rstrip('/')}/{after.lstrip('/')}" if between else before + after


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Names and attributes with what is assigned to them, and functions with what they return.

    Defaults of parameters count as assigned.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _pairs(target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield from _pairs(node.target, node.value)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args
            given = [*arguments.posonlyargs, *arguments.args]
            with_default = given[len(given) - len(arguments.defaults) :]
            yield from (
                (each.arg, value) for each, value in zip(with_default, arguments.defaults, strict=True)
            )
            for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
                if value is not None:
                    yield each.arg, value
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return) and inner.value is not None:
                    yield f"{node.name}()", inner.value


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Attribute):
        yield target.attr, value
    elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        for one, other in zip(target.elts, value.elts, strict=False):
            yield from _pairs(one, other)
