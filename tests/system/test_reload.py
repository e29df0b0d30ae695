"""``orsay serve --reload``, for authors at work."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

pytestmark = pytest.mark.process

CODE = '''
from orsay import Environment, tool

class Draft(Environment):
    """Being written."""

    splits = {"train": [{"id": 0}]}

    def prompt(self) -> str:
        return "WORD"

    @tool
    def done(self) -> str:
        """Finish."""
        return "WORD"
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "draft.py").write_text(CODE.replace("WORD", "first"))
    return tmp_path


@pytest.fixture
def client(folder: Path) -> Iterator[httpx.Client]:
    command = [
        sys.executable,
        "-m",
        "orsay",
        "serve",
        "draft:Draft",
        "--port",
        "0",
        "--workers",
        "1",
        "--reload",
    ]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        with httpx.Client(base_url=url, timeout=20, trust_env=False) as client:
            yield client
    finally:
        process.terminate()
        process.communicate(timeout=30)


def prompt_of_a_new_session(client: httpx.Client, sid: str) -> str:
    headers = {"X-Session-ID": sid}
    client.post("/create", json={"split": "train", "index": 0}, headers=headers).raise_for_status()
    return prompt(client, sid)


def prompt(client: httpx.Client, sid: str) -> str:
    text: str = client.get("/prompt", headers={"X-Session-ID": sid}).json()[0]["text"]
    return text


def wait_for(client: httpx.Client, word: str) -> None:
    end = time.monotonic() + 30
    number = 0
    while prompt_of_a_new_session(client, f"{word}-{number}") != word:
        assert time.monotonic() < end, f"no new session says {word}"
        number += 1
        time.sleep(0.1)


@pytest.mark.conformance("A1")
def test_new_sessions_run_changed_code_old_ones_go_on_and_broken_code_changes_nothing(
    client: httpx.Client, folder: Path
) -> None:
    assert prompt_of_a_new_session(client, "old") == "first"
    (folder / "draft.py").write_text(CODE.replace("WORD", "second"))
    wait_for(client, "second")
    assert prompt(client, "old") == "first"

    (folder / "draft.py").write_text("this is no Python")
    time.sleep(2)  # nothing shows from outside that the new code was tried
    assert prompt_of_a_new_session(client, "meanwhile") == "second"

    (folder / "draft.py").write_text(CODE.replace("WORD", "third"))
    wait_for(client, "third")
    assert prompt(client, "old") == "first"
