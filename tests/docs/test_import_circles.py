"""Imports between the modules of the packages: no circle, not even one that TYPE_CHECKING would hide."""

from __future__ import annotations

from graphlib import TopologicalSorter

import grimp

PACKAGES = ("orsay_protocol", "orsay_client", "orsay_eval", "orsay_trl", "orsay")


def test_no_imports_form_a_circle() -> None:
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=False, cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert "orsay.console.about" in imported["orsay.console.mount"]
    assert "orsay.journal.write.writer" in imported["orsay.console.mount"]  # for types only
    TopologicalSorter(imported).prepare()  # raises CycleError, with the modules
