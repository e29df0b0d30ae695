"""``orsay`` itself: help, version, exit codes."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest
from orsay.cli import main

pytestmark = pytest.mark.process

VERBS = ("serve", "init", "play", "check")


def test_without_a_verb_the_help_is_shown_and_the_command_line_counts_as_wrong(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([]) == 2
    shown = capsys.readouterr().out
    assert "examples:" in shown
    assert all(f"  {verb} " in shown for verb in VERBS)


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"orsay {version('orsay')}\n"


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_every_verb_shows_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    assert f"examples:\n  orsay {verb} " in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["sreve"], ["--nonsense"], ["play"], ["serve", "--port", "many"]])
def test_a_wrong_command_line_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: orsay" in capsys.readouterr().err


def test_a_verb_loads_only_what_it_needs() -> None:
    code = (
        "import sys; from orsay.cli import main; main(['--version']); "
        "print([name for name in ('fastapi', 'uvicorn', 'httpx', 'rich') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
