"""Needs of environments: data, sandboxes and their images, models, web search, secrets."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

from .sources import Module, Texts

__all__ = ["Kind", "Need", "needs_of"]

Kind: TypeAlias = Literal[
    "environment",
    "data",
    "bucket",
    "sandbox",
    "image",
    "size",
    "feature",
    "toolset",
    "secret",
    "model",
    "web",
]

_SETTINGS = ("environment", "image", "machine_size")
"""First parameters of SandboxSettings, in their order."""
_FEATURES = ("sidecars", "host_aliases", "network")
_IN_SANDBOX = frozenset(
    {"run", "check_run", "upload", "download", "stat_file", "download_to", "upload_from", "copy_to"}
)
_MODELS = {
    "openai": ("OpenAI", "AsyncOpenAI", "Client", "AsyncClient", "AzureOpenAI", "AsyncAzureOpenAI"),
    "anthropic": ("Anthropic", "AsyncAnthropic", "Client", "AsyncClient"),
    "google.genai": ("Client",),
    "google": ("genai.Client",),
    "litellm": ("completion", "acompletion"),
}
_CHATS = ("openreward.chat_backends", "openreward.judging")
_WEB_TOOLSETS = ("WebToolset", "BackSearchToolset")
_WEB_MODULES = ("openreward.web_service", "openreward.tools", "openreward.search_backends", "tavily")
_WEB_VARIABLES = "OPENREWARD_WEB_"


@dataclass(frozen=True)
class Need:
    """One thing. ``what`` names it: a path, an image, a secret; ``environment`` is a name for buckets.

    ``owner`` is the ``environment`` of a bucket, ``folder`` the part of it; empty where a run decides.
    """

    kind: Kind
    what: str
    owner: str = ""
    folder: str = ""
    places: tuple[str, ...] = ()
    """Where it is asked for, as ``FILE:LINE``."""


def needs_of(modules: Sequence[Module], *, data_path: str = "/orwd_data") -> list[Need]:
    """All needs of a project, each once; ``data_path`` is where its own code looks for data."""
    texts = Texts(modules)
    readers = [_Reader(module, texts, data_path) for module in modules]
    for reader in readers:
        reader.visit(reader.module.tree)
    names = {need.what for reader in readers for need, _ in reader.found if need.kind == "environment"}
    only = names.pop() if len(names) == 1 else ""
    found: dict[Need, list[str]] = {}
    for reader in readers:
        for need, line in reader.found:
            if need.kind == "bucket" and not need.owner:  # made apart from its settings
                need = replace(need, owner=only)
            places = found.setdefault(need, [])
            if (place := f"{reader.module.name}:{line}") not in places:
                places.append(place)
    order = {kind: number for number, kind in enumerate(get_args(Kind))}
    needs = [Need(need.kind, need.what, need.owner, need.folder, tuple(at)) for need, at in found.items()]
    return sorted(needs, key=lambda need: (order[need.kind], need.what, need.folder))


class _Reader(ast.NodeVisitor):
    """Needs of one module, with their lines."""

    def __init__(self, module: Module, texts: Texts, data_path: str) -> None:
        self.module = module
        self._texts = texts
        self._data = data_path
        self._owners: frozenset[str] = frozenset()
        self.found: list[tuple[Need, int]] = []

    def _add(self, kind: Kind, what: str, node: ast.AST, *, owner: str = "", folder: str = "") -> None:
        self.found.append((Need(kind, what, owner, folder), getattr(node, "lineno", 1)))

    def _of(self, node: ast.expr | None) -> frozenset[str]:
        return frozenset() if node is None else self._texts.of(node, self.module)

    # imports

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            self._imports(each.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for each in node.names:
            self._imports(f"{node.module or ''}.{each.name}", node)
            if (node.module or "").startswith("openreward.toolsets"):
                self._add("web" if each.name in _WEB_TOOLSETS else "toolset", each.name, node)

    def _imports(self, name: str, node: ast.AST) -> None:
        if any(name == each or name.startswith(f"{each}.") for each in _CHATS):
            self._add("model", "openreward.chat_backends", node)
        for each in _WEB_MODULES:
            if name == each or name.startswith(f"{each}."):
                self._add("web", each, node)

    # calls

    def visit_Call(self, node: ast.Call) -> None:
        name = self.module.dotted(node.func)
        last = name.rpartition(".")[2] or getattr(node.func, "attr", "")
        arguments = {each.arg: each.value for each in node.keywords if each.arg is not None}
        for each in node.keywords:
            if each.arg is None:
                arguments = {**_given(each.value), **arguments}
        if last == "SandboxSettings":
            self._settings(node, {**dict(zip(_SETTINGS, node.args, strict=False)), **arguments})
            return
        if last == "SandboxBucketConfig":
            self._bucket(node, {**dict(zip(("mount_path",), node.args, strict=False)), **arguments})
            return
        for package, classes in _MODELS.items():
            if any(name == f"{package}.{each}" for each in classes):
                self._add("model", package.partition(".")[0], node)
        if last == "sandbox" and (name == "orsay.sandbox" or isinstance(node.func, ast.Attribute)):
            self._sandbox(node, arguments)
        if isinstance(node.func, ast.Attribute):
            if node.func.attr in ("get", "pop") and node.args and _is_secrets(node.func.value):
                self._secret(node.args[0])
            if node.func.attr in _IN_SANDBOX:
                for value in [*node.args, *arguments.values()]:
                    if not self._is_data(value):
                        self.visit(value)
                self.visit(node.func)
                return
        if not self._data_at(node):
            self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        """``SandboxSettings(**{...})`` is as good as keywords."""
        given = _given(node)
        if {"image", "machine_size"} <= given.keys():
            self._settings(node, given)
        else:
            self.generic_visit(node)

    def _sandbox(self, node: ast.Call, given: dict[str, ast.expr]) -> None:
        """``client.sandbox(settings)``, or ``self.sandbox(image=…, data={path: name})``."""
        self._add("sandbox", "sandboxes" if node.args else "self.sandbox", node)
        for image in self._of(given.get("image")):
            self._add("image", image, node)
        for path, owner in _given(given["data"]).items() if "data" in given else ():
            for name in self._of(owner):
                self._add("bucket", path, node, owner=name)

    def _settings(self, node: ast.expr, given: dict[str, ast.expr]) -> None:
        self._add("sandbox", "sandboxes", node)
        for name in self._of(given.get("environment")):
            self._add("environment", name, node)
        for image in self._of(given.get("image")):
            self._add("image", image, node)
        for size in self._of(given.get("machine_size")):
            self._add("size", size, node)
        for feature in _FEATURES:
            value = given.get(feature)
            if value is not None and not (isinstance(value, ast.Constant) and value.value is None):
                self._add("feature", feature, value)
        before, self._owners = self._owners, self._of(given.get("environment"))
        for name, value in given.items():
            if name not in ("environment", "image", "machine_size"):
                self.visit(value)
        self._owners = before

    def _bucket(self, node: ast.Call, given: dict[str, ast.expr]) -> None:
        folders = self._of(given.get("only_dir")) or {"*" if "only_dir" in given else ""}
        for path in self._of(given.get("mount_path")) or {"*"}:
            for owner in self._owners or {""}:
                for folder in folders:
                    self._add("bucket", path, node, owner=owner, folder=folder)

    # secrets, data, variables

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if _is_secrets(node.value):
            self._secret(node.slice)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if isinstance(node.ops[0], ast.In | ast.NotIn) and _is_secrets(node.comparators[0]):
            self._secret(node.left)
        self.generic_visit(node)

    def _secret(self, node: ast.expr) -> None:
        for name in self._of(node):
            if "*" not in name:
                self._add("secret", name.lower(), node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and node.value.startswith(_WEB_VARIABLES):
            self._add("web", node.value, node)
        self._data_at(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        if not self._data_at(node):
            self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not self._data_at(node):
            self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring tells, and needs nothing
            self.generic_visit(node)

    def _paths(self, node: ast.expr) -> Iterator[str]:
        for text in self._of(node):
            path = text.rstrip("/")
            if path == self._data or (path.startswith(f"{self._data}/") and not set(path) & set(" \n|;&<>")):
                yield path

    def _is_data(self, node: ast.expr) -> bool:
        return any(self._paths(node))

    def _data_at(self, node: ast.expr) -> bool:
        """Note paths of the data; True if the expression is one."""
        paths = [*self._paths(node)]
        for path in paths:
            self._add("data", path, node)
        return bool(paths)


def _given(node: ast.expr) -> dict[str, ast.expr]:
    """Items of a dictionary, or of several joined by ``|``, with texts as keys."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return {**_given(node.left), **_given(node.right)}
    if not isinstance(node, ast.Dict):
        return {}
    return {
        key.value: value
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


def _is_secrets(node: ast.expr) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name.rstrip("_").lower().endswith("secrets")
