"""``--reload`` for code that a file names, wherever it lies."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.support.server_process import ENVIRONMENTS, server
from tests.support.waiting import until

from ..support.config_server import configured

pytestmark = pytest.mark.process

CODE = '''
from orsay import Environment, tool

class Draft(Environment):
    """Says WORD."""

    splits = {"train": [{}]}

    def prompt(self) -> str:
        return "go"

    @tool
    def WORD(self) -> str:
        """Say it."""
        return "WORD"
'''


def tools(url: str) -> list[str]:
    answer = httpx.get(f"{url}/draft/tools").raise_for_status()
    return [tool["name"] for tool in answer.json()["tools"]]


async def test_code_is_watched_where_the_file_finds_it(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere" / "code"
    folder.mkdir(parents=True)
    (folder / "draft.py").write_text(CODE.replace("WORD", "first"))
    (tmp_path / "server").mkdir()
    with server(f"{ENVIRONMENTS}:Plain") as upstream:
        text = f"""
[environments.draft]
directory = "../elsewhere/code"
[environments.far]
url = "{upstream.url}"
"""
        with configured(tmp_path / "server", text, "--reload") as running:
            assert tools(running.url) == ["first"]
            (folder / "draft.py").write_text(CODE.replace("WORD", "second"))
            await until(lambda: tools(running.url) == ["second"])
