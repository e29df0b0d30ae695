"""One Dockerfile for all environments, and what may be chosen of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from orsay.cli.init import project_files
from orsay.errors import ConfigError
from orsay.packaging.dockerfile import arguments, generate, text
from orsay.packaging.project import read

from tests.support.engine import ROOT

BUNDLED = ("echo", "guess", "arithmetic", "doors", "coding", "terminal", "textarena")


@pytest.mark.parametrize("name", BUNDLED)
def test_the_dockerfile_of_a_bundled_environment_is_the_common_one(name: str) -> None:
    folder = ROOT / "envs" / name
    assert (folder / "Dockerfile").read_text() == generate(read(folder).targets)


def test_so_is_the_one_of_a_new_project() -> None:
    assert project_files("my_env")["Dockerfile"] == generate(("my_env.env:MyEnv",))


def test_the_base_image_checks_its_health_in_the_same_way() -> None:
    def check(dockerfile: str) -> list[str]:
        return re.findall(r"HEALTHCHECK .*\n.*", dockerfile)

    assert check((ROOT / "docker" / "Dockerfile").read_text()) == check(generate(("a:B",))) != []


def test_requirements_are_installed_before_the_files_come() -> None:
    lines = generate(("env.py:A", "env.py:B"), kind="files", requirements=True).splitlines()
    assert lines.index("COPY requirements.txt *.whl ./") < lines.index('RUN pip install "${ORSAY}"')
    assert lines.index("COPY . .") < lines.index("RUN pip install -r requirements.txt")
    assert lines[-1] == 'CMD ["orsay", "serve", "env.py:A", "env.py:B", "--allow-anonymous"]'


def test_choices_become_defaults(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("ARG BASE=a\nFROM ${BASE}\narg ORSAY\nARG OTHER=1\n")
    project = read(tmp_path)
    assert text(project) == "ARG BASE=a\nFROM ${BASE}\narg ORSAY\nARG OTHER=1\n"
    chosen = text(project, orsay='orsay>=0.1; python_version>"3"', base="my/base:2")
    assert chosen.splitlines() == [
        'ARG BASE="my/base:2"',
        "FROM ${BASE}",
        'arg ORSAY="orsay>=0.1; python_version>\\"3\\""',
        "ARG OTHER=1",
    ]


def test_a_base_needs_an_argument_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    with pytest.raises(ConfigError, match="has no ARG BASE"):
        text(read(tmp_path), base="python:3.12-slim")
    assert text(read(tmp_path), orsay="orsay==9") == "FROM scratch\n"


def test_arguments_are_those_of_the_file_and_of_every_build() -> None:
    found = arguments("ARG BASE=a\n  arg who=you\n# ARG NOT\nRUN echo ARG NEITHER\n")
    assert {"BASE", "who", "HTTPS_PROXY"} <= found
    assert not found & {"NOT", "NEITHER"}
