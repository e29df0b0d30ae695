"""``orsay init``: the projects it writes work as they are, and what it refuses it explains."""

import argparse
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from orsay.authoring.hosted import host
from orsay.cli import init
from orsay.runtimes.loader import load

from ..support.engine import needs_engine

pytestmark = pytest.mark.process

SPELLINGS = [pytest.param([], id="short"), pytest.param(["--full"], id="full")]
ALL = [*SPELLINGS, pytest.param(["--template", "sandbox"], id="sandbox")]


def orsay_init(*arguments: str) -> int:
    parser = argparse.ArgumentParser(prog="orsay")
    init.add_parser(parser.add_subparsers(required=True))
    args = parser.parse_args(["init", *arguments])
    status = args.run(args)
    assert isinstance(status, int)
    return status


def in_project(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # the project needs none
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def test_it_writes_a_complete_project_and_says_what_to_do_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert orsay_init("my_env", "--into", str(tmp_path)) == 0
    folder = tmp_path / "my_env"
    written = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert written == {
        ".dockerignore",
        ".gitignore",
        "Dockerfile",
        "README.md",
        "my_env/__init__.py",
        "my_env/env.py",
        "pyproject.toml",
        "tests/test_my_env.py",
    }
    output = capsys.readouterr().out
    assert f"cd {folder}" in output
    assert "orsay serve my_env.env:MyEnv" in output


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_project_passes_its_own_tests(tmp_path: Path, spelling: list[str]) -> None:
    assert orsay_init("my_env", "--into", str(tmp_path), *spelling) == 0
    done = in_project(tmp_path / "my_env", "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


@needs_engine
def test_the_project_with_a_sandbox_passes_its_own_tests(tmp_path: Path) -> None:
    assert orsay_init("my_env", "--into", str(tmp_path), "--template", "sandbox") == 0
    done = in_project(tmp_path / "my_env", "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 passed" in done.stdout


ORSAY_ALONE = """
[[tool.mypy.overrides]]
module = ["gymnasium.*", "torch.*"]
follow_imports = "skip"
"""
"""What the project's own environment does not have: torch takes mypy three times as long as all the rest."""


@pytest.fixture(scope="module")
def checked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where mypy keeps, for the next run too, what it found out about orsay."""
    cache = getattr(request.config, "cache", None)
    return tmp_path_factory.mktemp("mypy") if cache is None else Path(cache.mkdir("mypy"))


@pytest.mark.timeout(300)  # the first run, without the cache, on a busy machine
@pytest.mark.parametrize("spelling", ALL)
def test_the_project_type_checks(tmp_path: Path, checked: Path, spelling: list[str]) -> None:
    assert orsay_init("my_env", "--into", str(tmp_path), *spelling) == 0
    with (tmp_path / "my_env" / "pyproject.toml").open("a") as file:
        file.write(ORSAY_ALONE)
    done = in_project(tmp_path / "my_env", "mypy", "--cache-dir", str(checked))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("spelling", ALL)
def test_the_project_is_tidy(tmp_path: Path, spelling: list[str]) -> None:
    assert orsay_init("my_env", "--into", str(tmp_path), *spelling) == 0
    for verb in (
        ["check", "--select", "E,F,W,I,B,UP", "--line-length", "120"],
        ["format", "--check", "--line-length", "120"],
    ):
        done = in_project(tmp_path / "my_env", "ruff", verb[0], "--no-cache", *verb[1:], ".")
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_class_that_the_readme_names_can_be_loaded_and_hosted(
    tmp_path: Path, spelling: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"sample_{'full' if spelling else 'short'}"
    assert orsay_init(name, "--into", str(tmp_path), *spelling) == 0
    readme = (tmp_path / name / "README.md").read_text()
    (target,) = set(re.findall(r"orsay serve (\S+)", readme))
    monkeypatch.syspath_prepend(tmp_path / name)
    (cls,) = load(target)
    hosted = host(cls)
    assert [spec.name for spec in hosted.listing.tools] == ["submit"]
    schema = hosted.listing.tools[0].input_schema
    assert schema is not None
    assert schema["properties"]["text"]["description"] == "The word, spelled backwards."


def test_pyproject_names_the_package_and_needs_orsay() -> None:
    project = tomllib.loads(init.project_files("my_env")["pyproject.toml"])
    assert project["project"]["name"] == "my-env"
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["my_env"]
    assert any(requirement.startswith("orsay") for requirement in project["project"]["dependencies"])


def test_the_dockerfile_serves_the_class_as_an_ordinary_user() -> None:
    lines = init.project_files("my_env")["Dockerfile"].splitlines()
    assert "ARG BASE=python:3.12-slim" in lines
    assert "FROM ${BASE}" in lines
    assert "USER 1000" in lines
    assert "    ORSAY_JOURNAL=off" in lines  # until somebody brings a volume
    command = json.loads(next(line for line in lines if line.startswith("CMD ")).removeprefix("CMD "))
    assert command[:3] == ["orsay", "serve", "my_env.env:MyEnv"]
    assert command[3:] == ["--allow-anonymous"]


def test_the_readme_is_that_of_a_hugging_face_space() -> None:
    front, _, _ = init.project_files("my_env")["README.md"].removeprefix("---\n").partition("\n---\n")
    assert "sdk: docker" in front.splitlines()
    assert "app_port: 8080" in front.splitlines()


@pytest.mark.parametrize("template", init.TEMPLATES)
def test_no_placeholder_is_left(template: str) -> None:
    for path, text in init.project_files("my_env", template).items():
        assert "{{" not in text, path
        assert text.endswith("\n"), path


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("my-env", "my_env"),
        ("MyEnv", "my_env"),
        ("my env", "my_env"),
        ("3d", "env_3d"),
        ("class", "class_env"),
        ("../evil", "evil"),
        ("a/b", "a_b"),
        ("", "my_env"),
        ("ümlaut", "mlaut"),
        ("_", "my_env"),
        ("json", "json_env"),
        ("orsay", "orsay_env"),
        ("tests", "tests_env"),
        ("environment", "environment_env"),
        ("submission", "submission_env"),
    ],
)
def test_a_bad_name_is_refused_with_a_better_one(
    tmp_path: Path, name: str, suggestion: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert orsay_init(name, "--into", str(tmp_path)) == 2
    assert capsys.readouterr().err.rstrip().endswith(f"try {suggestion}")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_something_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_env").mkdir()
    (tmp_path / "my_env" / "mine.txt").write_text("mine")
    assert orsay_init("my_env", "--into", str(tmp_path)) == 2
    assert "choose another name" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "my_env").iterdir()] == ["mine.txt"]


def test_a_file_of_that_name_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "my_env").write_text("mine")
    assert orsay_init("my_env", "--into", str(tmp_path)) == 2
    assert (tmp_path / "my_env").read_text() == "mine"


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "my_env").mkdir()
    assert orsay_init("my_env", "--into", str(tmp_path)) == 0
    assert (tmp_path / "my_env" / "pyproject.toml").exists()


def test_a_place_that_cannot_be_written_to_is_an_error_that_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert orsay_init("my_env", "--into", str(tmp_path / "file")) == 2
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "expected"), [("my_env", "MyEnv"), ("go", "Go"), ("a__b2_c", "AB2C"), ("x_", "X")]
)
def test_the_class_is_named_after_the_package(name: str, expected: str) -> None:
    assert init.class_name(name) == expected


def test_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        orsay_init("--help")
    assert stop.value.code == 0
    assert "orsay init my_env --full" in capsys.readouterr().out
