"""docs/deploy.md: each block of commands is run by a test or says why not, and what it shows is a file."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support.documentation import ROOT, blocks

from .commands import PAGE, Documented, documented

SHOWN = [block for block in blocks() if block.page == PAGE and block.language not in ("bash", "text")]


@pytest.mark.parametrize("block", list(documented()), ids=str)
def test_a_block_of_commands_is_run_by_a_test_or_says_why_not(block: Documented) -> None:
    assert block.test or block.reason, "say before it: <!-- run by FILE::TEST --> or <!-- not run: REASON -->"
    sources = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    for name in re.findall(r"\btest_\w+", block.reason):
        assert f"def {name}(" in sources, f"there is no {name}"
    if block.test:
        path, _, name = block.test.partition("::")
        statements = ast.parse((ROOT / path).read_text()).body
        named = [each for each in statements if isinstance(each, ast.FunctionDef) and each.name == name]
        assert named, f"{path} has no {name}"
        assert "commands" in {argument.arg for argument in named[0].args.args}, "it does not take its text"


def test_what_the_page_shows_of_other_files_is_the_whole_file() -> None:
    assert SHOWN
    for block in SHOWN:
        assert block.file is not None, f"{block}: say which file this shows"
        assert (ROOT / block.file).read_text() == block.code, block
    files = {str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "examples" / "deploy").iterdir()}
    assert files == {block.file for block in SHOWN}
