"""The folder of a Space, as a dry run writes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from orsay.cli import main
from orsay.cli.init import project_files
from orsay.spaces.folder import MARK

from ..support.documentation import ROOT


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "walls"
    for place, text in project_files("walls").items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def dry(project: Path, into: Path, *options: str) -> dict[str, str]:
    """What lies there then, as text."""
    assert main(["push", str(project), "--space", "me/walls", "--dry-run", str(into), *options]) == 0
    return files_of(into)


def files_of(into: Path) -> dict[str, str]:
    found = [path for path in into.rglob("*") if path.is_file()]
    return {path.relative_to(into).as_posix(): path.read_bytes().decode(errors="replace") for path in found}


def refused(project: Path, into: Path, *options: str) -> int:
    code = main(["push", str(project), "--space", "me/walls", "--dry-run", str(into), *options])
    assert code != 0
    return code


def test_it_has_the_project_a_dockerfile_and_the_wheel(project: Path, tmp_path: Path) -> None:
    space = dry(project, tmp_path / "space")
    (wheel,) = (place for place in space if place.endswith(".whl"))
    assert {"walls/env.py", "walls/__init__.py", "pyproject.toml", "README.md", "Dockerfile"} <= space.keys()
    lines = space["Dockerfile"].splitlines()
    assert f'ARG ORSAY="./{wheel}"' in lines and "ARG BASE=python:3.12-slim" in lines
    users = [line for line in lines if line.startswith("USER")]
    assert users[-1] == "USER 1000"
    assert space["README.md"].startswith("---\ntitle: Walls\n")
    assert not [place for place in space if place.startswith(("tests/", ".git")) or "__pycache__" in place]


def test_a_second_one_leaves_nothing_of_the_first(project: Path, tmp_path: Path) -> None:
    into = tmp_path / "space"
    (project / "walls" / "maps").mkdir()
    (project / "walls" / "maps" / "one.txt").write_text("#")
    assert "walls/maps/one.txt" in dry(project, into)
    (into / ".git").mkdir()
    (into / ".git" / "config").write_text("of the Space's own repository")
    (project / "walls" / "maps" / "one.txt").unlink()
    (project / "walls" / "maps").rmdir()
    again = dry(project, into)
    assert "walls/maps/one.txt" not in again and not (into / "walls" / "maps").exists()
    assert ".git/config" in again, "what is not ours stays"


def test_names_in_the_mark_are_whole_whatever_characters_they_have(project: Path, tmp_path: Path) -> None:
    into = tmp_path / "space"
    dry(project, into)
    (into / MARK).write_text((into / MARK).read_text() + "walls/a\u2028b.txt\n")
    (into / "b.txt").write_text("years of work")
    assert dry(project, into, "--force")["b.txt"] == "years of work"


def test_a_folder_of_something_else_is_refused_unless_forced(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = tmp_path / "space"
    into.mkdir()
    (into / "thesis.txt").write_text("years of work")
    assert refused(project, into) == 1
    assert "--force" in capsys.readouterr().err
    assert files_of(into) == {"thesis.txt": "years of work"}
    assert dry(project, into, "--force")["thesis.txt"] == "years of work"


def test_a_mark_cannot_lead_out_of_the_folder(project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("mine")
    dry(project, tmp_path / "space")
    mark = tmp_path / "space" / MARK
    mark.write_text(mark.read_text() + f"../outside.txt\n{outside}\n")
    dry(project, tmp_path / "space")
    assert outside.read_text() == "mine"


def test_a_dry_run_inside_the_project_is_no_part_of_it(project: Path) -> None:
    first = dry(project, project / "space")
    assert dry(project, project / "space").keys() == first.keys()


def test_secrets_stay_here_and_are_named(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / ".env").write_text("PASSWORD=hunter2")
    (project / "walls" / "service.key").write_text("hunter2")
    space = dry(project, tmp_path / "space")
    assert "hunter2" not in "".join(space.values())
    output = capsys.readouterr().err
    assert ".env" in output and "walls/service.key" in output


def test_a_dockerfile_of_its_own_keeps_its_port_and_gets_what_a_space_needs(tmp_path: Path) -> None:
    project = tmp_path / "own"
    project.mkdir()
    (project / "Dockerfile").write_text('FROM debian:12\nUSER root\nEXPOSE 7860\nCMD ["./serve"]\n')
    (project / "serve").write_text("#!/bin/sh\n")
    space = dry(project, tmp_path / "space")
    assert space["Dockerfile"].startswith("FROM debian:12\n")
    assert "USER 1000" in space["Dockerfile"] and "ORSAY_PORT=7860" in space["Dockerfile"]
    assert "app_port: 7860" in space["README.md"] and "title: Own" in space["README.md"]
    assert not [place for place in space if place.endswith(".whl")], "nothing installs it"


def test_base_and_orsay_are_the_defaults_of_the_dockerfile(project: Path, tmp_path: Path) -> None:
    space = dry(project, tmp_path / "space", "--base", "python:3.13-slim", "--orsay", "orsay==9.9")
    assert 'ARG BASE="python:3.13-slim"' in space["Dockerfile"]
    assert 'ARG ORSAY="orsay==9.9"' in space["Dockerfile"]
    assert not [place for place in space if place.endswith(".whl")]


@pytest.mark.parametrize("folder", ["nowhere", "empty"])
def test_what_is_no_project_is_refused(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert refused(tmp_path / folder, tmp_path / "space") == 2
    assert folder in capsys.readouterr().err and not (tmp_path / "space").exists()


@pytest.mark.parametrize("name", ["arithmetic", "coding", "doors", "echo", "guess", "textarena"])
def test_every_bundled_environment_becomes_a_space(name: str, tmp_path: Path) -> None:
    source = ROOT / "envs" / name
    if not (source / "pyproject.toml").is_file():
        pytest.skip(f"there is no {name}")
    space = dry(source, tmp_path / "space")
    assert f"{name}_env/env.py" in space and "sdk: docker" in space["README.md"]
    assert "license: apache-2.0" in space["README.md"]
