"""Holds tests and ledger together."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from orsay.conformance import CHECKS

from .ledger import ENTRIES

ROOT = Path(__file__).parents[2]
JUDGED = ("tests/conformance/", "tests/system/", "tests/interop/")
pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


@functools.cache
def collected() -> dict[str, list[str]]:
    """Entries that each test of the repository names, by node id; another pytest collects them."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests"]
    environment = {**os.environ, "ORSAY_LEDGER": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    line = next((line for line in done.stdout.splitlines() if line.startswith("ledger: ")), None)
    assert line is not None, done.stdout[-3000:] + done.stderr[-3000:]
    found: dict[str, list[str]] = json.loads(line.removeprefix("ledger: "))
    return found


def test_every_entry_has_a_test() -> None:
    named = {name for names in collected().values() for name in names}
    missing = [entry.id for entry in ENTRIES.values() if not entry.planned and entry.id not in named]
    assert not missing, f"entries of the ledger without a test: {', '.join(missing)}"


def test_every_test_names_entries_that_exist() -> None:
    stray = {node: set(names) - ENTRIES.keys() for node, names in collected().items()}
    stray = {node: names for node, names in stray.items() if names}
    assert not stray, f"tests that name unknown entries: {stray}"


def test_every_test_of_the_contract_names_an_entry() -> None:
    silent = {
        node.partition("[")[0]
        for node, names in collected().items()
        if node.startswith(JUDGED) and not names and "test_ledger.py" not in node
    }
    assert not silent, f"tests without a contract marker: {', '.join(sorted(silent))}"


def test_no_known_gap_has_a_test() -> None:
    named = {name for names in collected().values() for name in names}
    closed = [entry.id for entry in ENTRIES.values() if entry.planned and entry.id in named]
    assert not closed, f"no longer gaps, take planned off: {', '.join(closed)}"


def test_every_check_belongs_to_an_entry() -> None:
    assert not {check.entry for check in CHECKS} - ENTRIES.keys()
    assert len({check.id for check in CHECKS}) == len(CHECKS)


def test_entries_are_sentences() -> None:
    assert [entry.id for entry in ENTRIES.values() if not entry.sentence.endswith(".")] == []
