"""Holds tests and ledger together."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

from orsay.conformance import CHECKS

from .ledger import ENTRIES

ROOT = Path(__file__).parents[2]
JUDGED = ("tests/conformance/", "tests/system/", "tests/interop/")


@functools.cache
def marked() -> dict[str, list[str]]:
    """Entries that each test of the repository names, as the files write it: none of them is imported."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    assert len(files) > 200
    return {
        f"{path.relative_to(ROOT)}::{name}": entries
        for path in files
        for name, entries in marks(ast.parse(path.read_text()).body)
    }


def marks(body: list[ast.stmt], inherited: tuple[str, ...] = ()) -> Iterator[tuple[str, list[str]]]:
    """Tests of a file or class with the entries of their marks, which begin with those of ``pytestmark``."""
    whole = [*inherited]
    for each in body:
        if isinstance(each, ast.Assign) and target(each) == "pytestmark":
            whole += entries(each.value)
    for each in body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test"):
            yield each.name, [*whole, *entries(*each.decorator_list)]
        elif isinstance(each, ast.ClassDef) and each.name.startswith("Test"):
            yield from marks(each.body, (*whole, *entries(*each.decorator_list)))
        elif isinstance(each, ast.Assign) and target(each).startswith("Test"):  # a state machine's
            yield target(each), [*whole, *entries(each.value)]


def target(assignment: ast.Assign) -> str:
    return ast.unparse(assignment.targets[0])


def entries(*expressions: ast.expr) -> Iterator[str]:
    """What calls of ``pytest.mark.conformance`` in the expressions name."""
    for each in (node for expression in expressions for node in ast.walk(expression)):
        if isinstance(each, ast.Call) and ast.unparse(each.func) == "pytest.mark.conformance":
            yield from (name for argument in each.args for name in named(argument))


def named(argument: ast.expr) -> list[str]:
    if isinstance(argument, ast.Constant):
        return [str(argument.value)]
    text = ast.unparse(argument)
    if text == "check.entry":
        return [check.entry for check in CHECKS]
    assert text == "*(check.entry for check in STANDARD)", text
    return [check.entry for check in CHECKS if check.group == "standard"]


def test_every_entry_has_a_test() -> None:
    named = {name for names in marked().values() for name in names}
    missing = [entry.id for entry in ENTRIES.values() if not entry.planned and entry.id not in named]
    assert not missing, f"entries of the ledger without a test: {', '.join(missing)}"


def test_every_test_names_entries_that_exist() -> None:
    stray = {node: set(names) - ENTRIES.keys() for node, names in marked().items()}
    stray = {node: names for node, names in stray.items() if names}
    assert not stray, f"tests that name unknown entries: {stray}"


def test_every_test_of_the_contract_names_an_entry() -> None:
    silent = {
        node
        for node, names in marked().items()
        if node.startswith(JUDGED) and not names and "test_ledger.py" not in node
    }
    assert not silent, f"tests without a conformance marker: {', '.join(sorted(silent))}"


def test_no_known_gap_has_a_test() -> None:
    named = {name for names in marked().values() for name in names}
    closed = [entry.id for entry in ENTRIES.values() if entry.planned and entry.id in named]
    assert not closed, f"no longer gaps, take planned off: {', '.join(closed)}"


def test_every_check_belongs_to_an_entry() -> None:
    assert not {check.entry for check in CHECKS} - ENTRIES.keys()
    assert len({check.id for check in CHECKS}) == len(CHECKS)


def test_entries_are_sentences() -> None:
    assert [entry.id for entry in ENTRIES.values() if not entry.sentence.endswith(".")] == []
