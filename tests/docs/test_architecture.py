"""``docs/architecture.md`` names files, classes and functions that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support.documentation import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
FOLDERS = "|".join(sorted(path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "."))
NAMED = re.compile(rf"`((?:{FOLDERS})/[\w./-]+)(?:::([\w.]+))?`")


def defined(path: Path) -> set[str]:
    """Names of the classes and functions of a module, members as ``Class.member``."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
            members = node.body if isinstance(node, ast.ClassDef) else []
            found |= {
                f"{node.name}.{each.name}"
                for each in members
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return found


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED.findall(PAGE))))
def test_what_the_page_names_exists(file: str, name: str) -> None:
    path = ROOT / file
    assert path.exists(), f"docs/architecture.md names {file}, which is not there"
    assert not name or name in defined(path), f"{file} defines no {name}"


def test_rooms_of_the_server_are_all_on_the_page() -> None:
    rooms = {
        path.stem for path in (ROOT / "server" / "orsay").iterdir() if not path.name.startswith(("_", "py."))
    }
    missing = {room for room in rooms - {"templates"} if f"`{room}`" not in PAGE}
    assert not missing, f"docs/architecture.md does not name {sorted(missing)}"


def test_a_tool_call_takes_at_most_twelve_steps() -> None:
    steps = PAGE.partition("## The life of a tool call")[2].partition("\n## ")[0]
    assert 1 < len(re.findall(r"^\d+\. ", steps, re.MULTILINE)) <= 12
