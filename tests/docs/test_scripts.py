"""The scripts that newcomers run first."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.documentation import EXAMPLES, ROOT

pytestmark = pytest.mark.process

ENVS = os.pathsep.join(str(ROOT / "envs" / name) for name in ("echo", "guess", "arithmetic"))
DEMO = [sys.executable, str(ROOT / "scripts" / "demo.py")]
SCRIPTS = ("scripts/demo", "scripts/train-demo", "scripts/test", "scripts/check", "scripts/build", ".ci/run")
LIMIT_S = 60


def demo(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*DEMO, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": ENVS, "PYTHONUNBUFFERED": "1"},
    )


def bash(code: str, path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/bash", "-c", code],
        env={"PATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def fake_python(folder: Path, name: str, code: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{code}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_the_demonstration_plays_every_environment_to_a_win() -> None:
    process = demo("--once")
    shown, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, shown
    for name, prompt, call in (
        ("EchoEnvironment", "Win by calling the tool `echo`", "calls echo with {'text': "),
        ("GuessEnvironment", "I am thinking of a whole number", "calls guess with {'number': "),
        ("ArithmeticEnvironment", "Work it out", "calls answer with {'message': "),
    ):
        assert f"{name}, task " in shown and prompt in shown and call in shown
    assert shown.count("reward 1, ") == 3


def test_the_demonstration_keeps_serving_and_says_how_to_train() -> None:
    process = demo()
    try:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or "spec = OpenRewardSpec" not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], "".join(lines)
        url = next(line.split()[2] for line in lines if line.startswith("Serving at "))
        assert httpx.get(f"{url}/list_environments").json()[0] == "echoenvironment"
        printed = [line.strip() for line in lines[-4:]]
        shown = [line for line in (EXAMPLES / "clients" / "trl.py").read_text().splitlines() if line]
        assert printed == [line.replace("http://127.0.0.1:8080", url) for line in shown]
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/health")
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_can_be_run(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
    assert bash(f"bash -n {script}", "/usr/bin:/bin").returncode == 0


def test_the_demonstration_explains_itself_without_installing_anything() -> None:
    done = bash("./scripts/demo --help", "/usr/bin:/bin")
    assert done.returncode == 0
    assert "--once" in done.stdout and "Python 3.11" in done.stdout


def test_an_old_python_is_refused_with_the_way_out(tmp_path: Path) -> None:
    fake_python(tmp_path, "python3", "exit 1")
    done = bash(f". scripts/environment.sh; PATH={tmp_path} find_python", "/usr/bin:/bin")
    assert done.returncode == 1
    assert "Orsay needs Python 3.11 or newer; found only: python3." in done.stderr


def test_a_machine_without_python_is_reported(tmp_path: Path) -> None:
    done = bash(f". scripts/environment.sh; PATH={tmp_path} find_python", "/usr/bin:/bin")
    assert done.returncode == 1
    assert "there is none here" in done.stderr


def test_a_python_that_cannot_make_environments_is_distinguished(tmp_path: Path) -> None:
    fake_python(tmp_path, "python3", 'case "$2" in *ensurepip*) exit 1 ;; esac')
    done = bash(f". scripts/environment.sh; PATH={tmp_path} find_python", "/usr/bin:/bin")
    assert done.returncode == 1
    assert "apt install python3-venv" in done.stderr


def test_the_python_that_is_named_comes_first(tmp_path: Path) -> None:
    fake_python(tmp_path, "mine", "exit 0")
    done = bash(f". scripts/environment.sh; PYTHON={tmp_path}/mine find_python", "/usr/bin:/bin")
    assert done.stdout.strip() == f"{tmp_path}/mine"


@pytest.mark.parametrize(
    ("uv_exit", "expected"),
    [
        (None, ["python -m venv", "python -m pip"]),
        (0, ["uv venv -q", "uv pip install"]),
        (1, ["uv venv -q", "python -m venv", "uv pip install", "python -m pip"]),
    ],
    ids=["no uv", "uv", "uv that fails"],
)
def test_the_demonstration_is_installed_by_uv_where_there_is_one_and_else_by_pip(
    tmp_path: Path, uv_exit: int | None, expected: list[str]
) -> None:
    calls, venv, python = tmp_path / "calls", tmp_path / "venv", tmp_path / "python"
    note, copy = f'>>"{calls}"', f'mkdir -p "{venv}/bin"; cp "{python}" "{venv}/bin/python"'
    code = f'[ "$1" = -m ] && echo "python $1 $2" {note}; [ "$2" = venv ] && {{ {copy}; }}; exit 0'
    fake_python(tmp_path, "python", code)
    if uv_exit is not None:
        made = f'[ "$1" = venv ] && {{ {copy}; }}'
        fake_python(tmp_path, "uv", f'echo "uv $1 $2" {note}; {made}; exit {uv_exit}')
    script = f'. scripts/environment.sh; venv="{venv}"; PYTHON="{python}" install_demo'
    done = bash(script, f"{tmp_path}:/usr/bin:/bin")
    assert done.returncode == 0, done.stderr
    assert calls.read_text().splitlines() == expected
    assert (venv / ".orsay-demo").exists()


def test_the_license_and_the_readme_go_into_the_wheel() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert (ROOT / "README.md").read_text().startswith("# Orsay\n")
