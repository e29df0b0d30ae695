"""Files of tests over the processes of xdist: what takes long first, and what imports TRL in one process.

TRL and torch take a process ten seconds to import, ``openreward`` and ``reasoning_gym`` three. One process
collects the files that need them; the others know nothing of those files, so that each process is given only
what it has collected, and begin while that one still imports.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.support.network import has_own

__all__ = ["Scheduling"]

_IMPORTS_TRL = re.compile(
    rb"^(\w+ = )?pytest\.importorskip\(\"(torch|trl|datasets|openreward|reasoning_gym)\b"
    rb"|\bmodel_(server|folder): (ServedModel|Path)\b",  # fixtures of tests/bridge, which import it
    re.MULTILINE,
)
_LONG = (
    *("tests/attack/", "tests/cli/", "tests/deploy/", "tests/envs/", "tests/gateway/", "tests/images/"),
    *("tests/interop/", "tests/runtimes/", "tests/spaces/", "tests/system/"),
)
_SHARE_NETWORK = (
    *("tests/console/", "tests/deploy/", "tests/docker/", "tests/images/", "tests/spaces/"),
    *("tests/config/test_images.py", "tests/envs/test_textarena_image.py"),
)
"""Where browsers cannot have a network of their own, their tests and those of containers take turns."""
_LEAVES_TRL = "leaves_trl"


@cache
def _imports_trl(path: Path) -> bool:
    return _IMPORTS_TRL.search(path.read_bytes()) is not None


class _Elsewhere(pytest.Module):
    """A file that another process collects. It is not imported."""

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        return []


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    worker = getattr(parent.config, "workerinput", {})
    if worker.get(_LEAVES_TRL) and _imports_trl(module_path):
        return _Elsewhere.from_parent(parent, path=module_path)
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first, so that no process ends long after the others."""

    def place(item: pytest.Item) -> int:
        return 0 if _imports_trl(item.path) else 1 if item.nodeid.startswith(_LONG) else 2

    items.sort(key=place)


class _Holder:
    """Which process collects the files that import TRL: the first, and after its end its replacement."""

    def __init__(self) -> None:
        self._node: Any = None

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        if self._node is None:
            self._node = node
        else:
            node.workerinput[_LEAVES_TRL] = True

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        if node is self._node:
            self._node = None


class Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """As its base; but processes may have collected different files, and get only what they have."""

    collection: list[str] | None

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self._scopes: dict[Any, set[str]] = {}

    def _split_scope(self, nodeid: str) -> str:
        file: str = nodeid.partition("::")[0]
        return "network" if file.startswith(_SHARE_NETWORK) and not has_own() else file

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        self.registered_collections[node] = list(collection)
        self._scopes[node] = {self._split_scope(nodeid) for nodeid in collection}

    @property
    def collection_is_completed(self) -> bool:
        """True once all processes but one have collected, which may be the one that imports TRL."""
        fewest = max(1, self.numnodes - has_own())  # a scope of several files is not cut in two
        return bool(self._collected >= fewest)

    @property
    def tests_finished(self) -> bool:
        return self._collected == self.numnodes and bool(super().tests_finished)

    @property
    def _collected(self) -> int:
        return min(len(self.registered_collections), int(self.numnodes))  # one that crashed counts as well

    def schedule(self) -> None:
        """Queue what was not known yet, and give each process that has collected something to do."""
        collections = sorted(self.registered_collections.values(), key=len, reverse=True)
        found = dict.fromkeys(each for collection in collections for each in collection)
        known = set(self.collection or ())
        late: dict[str, dict[str, bool]] = {}
        for nodeid in (each for each in found if each not in known):
            late.setdefault(self._split_scope(nodeid), {})[nodeid] = False
        for scope, unit in reversed(late.items()):  # before all else: the others have begun with that
            self.workqueue[scope] = unit
            self.workqueue.move_to_end(scope, last=False)
        self.collection = list(found)
        self.config.pluginmanager.get_plugin("session").testscollected = len(found)
        for node in [*self.nodes, *self.nodes]:  # a process runs a test when it knows the one after it
            self._reschedule(node)

    def _reschedule(self, node: Any) -> None:
        if node not in self._scopes:  # it collects still
            return
        if self._next(node) is not None:
            super()._reschedule(node)
        elif not node.shutting_down:
            node.shutdown()

    def _assign_work_unit(self, node: Any) -> None:
        scope = self._next(node)
        assert scope is not None
        self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _next(self, node: Any) -> str | None:
        """The first file that this process has collected, of those that wait."""
        mine = self._scopes.get(node, set())
        return next((scope for scope in self.workqueue if scope in mine), None)


def pytest_configure(config: pytest.Config) -> None:
    named = any("::" in argument for argument in config.args)  # a process that leaves it would not find it
    if config.getoption("dist", "no") == "loadfile" and not named and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Holder())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None
