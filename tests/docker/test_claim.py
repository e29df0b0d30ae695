"""Claims: held by the living, cleared away behind the dead."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from orsay.runtimes.docker.claim import Claim

pytestmark = pytest.mark.process


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files of the test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / "orsay-claims"


def test_what_a_claim_makes_bears_its_labels(folder: Path) -> None:
    claim = Claim("server-1", "scripted")
    assert claim.labels == {
        "orsay.server": "server-1",
        "orsay.label": "scripted",
        "orsay.claim": claim.word,
    }
    assert claim.word != Claim("server-1", "scripted").word


def test_a_claim_leaves_no_file_when_it_is_released(folder: Path) -> None:
    claim = Claim("server-1", "")
    claim.take()
    assert [each.name for each in folder.iterdir()] == [claim.word]
    claim.release()
    claim.release()
    assert list(folder.iterdir()) == []


def test_files_of_the_dead_are_cleared_away_in_time_and_those_of_the_living_stay(folder: Path) -> None:
    code = (
        "import os, sys, tempfile; tempfile.tempdir = sys.argv[1];"
        "from orsay.runtimes.docker.claim import Claim;"
        "claim = Claim('server-1', ''); claim.take(); print(claim.word, flush=True); os._exit(1)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder.parent)], capture_output=True, text=True, timeout=60
    )
    dead = folder / done.stdout.strip()
    living = Claim("server-2", "")
    living.take()
    assert dead.is_file()
    long_ago = time.time() - 7200
    os.utime(dead, (long_ago, long_ago))
    os.utime(folder / living.word, (long_ago, long_ago))
    third = Claim("server-3", "")
    third.take()
    assert {each.name for each in folder.iterdir()} == {living.word, third.word}
    living.refresh()
    assert (folder / living.word).stat().st_mtime > long_ago + 3600
    living.release()
    third.release()


def test_without_a_folder_to_write_to_containers_run_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    claim = Claim("server-1", "")
    claim.take()
    claim.refresh()
    claim.release()
