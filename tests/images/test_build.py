"""``orsay build`` with a real engine: projects of every kind become images that are played to a win."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.errors import ImageNotFound
from orsay.cli import main
from orsay_client import Client

from tests.support.engine import BASE, ROOT, image, needs_engine

from ..support.containers import BUNDLED, HARDENED, container, serving, win

pytestmark = [needs_engine, pytest.mark.timeout(600)]

COIN = """
from orsay import Environment, TextBlock, ToolOutput, tool

import sides


class Coin(Environment):
    splits = {"train": [{"word": "heads"}]}

    def prompt(self) -> str:
        return "Call it."

    @tool
    def call(self, word: str) -> ToolOutput:
        right = word == sides.HEADS and word == self.task["word"]
        return ToolOutput(blocks=[TextBlock(text=word)], reward=float(right), finished=True)
"""


@pytest.fixture
def tag(request: pytest.FixtureRequest) -> Iterator[str]:
    """A name for an image, which is removed at the end."""
    name = f"orsay-test-build-{abs(hash(request.node.nodeid)) % 10**8}"
    yield name
    client = docker.from_env(timeout=120)
    try:
        client.images.remove(name, force=True)
    except ImageNotFound:
        pass  # what it was for failed
    finally:
        client.close()


def build(*arguments: str) -> int:
    return main(["build", *arguments])


@pytest.mark.parametrize("name", ["arithmetic", "doors"])  # echo: tests/deploy/test_system.py
def test_a_bundled_environment_becomes_an_image_that_is_played(
    name: str, tag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(str(ROOT / "envs" / name), "--tag", tag, "--base", image("base")) == 0
    printed = capsys.readouterr().out
    assert f"orsay serve --runtime docker {tag}\n" in printed
    assert "step 1 of " in printed
    with container(tag, **HARDENED) as found:
        asyncio.run(win(serving(found), f"{name}environment", BUNDLED[f"{name}environment"]))
        assert {uid for _, uid, _ in found.top(ps_args="-eo pid,uid,args")["Processes"]} == {"1000"}
        assert b"journal" not in found.logs()  # it keeps none, and so misses no place to write to


def test_orsay_of_the_base_image_is_enough_where_it_fits(tag: str) -> None:
    arguments = (
        "--tag",
        tag,
        "--base",
        image("base"),
        "--orsay",
        "orsay>=0.1",
    )  # what a Space asks an index for
    assert build(str(ROOT / "envs" / "guess"), *arguments) == 0
    with container(tag, **HARDENED) as found:
        asyncio.run(win(serving(found), "guessenvironment", BUNDLED["guessenvironment"]))
        assert found.exec_run(["sh", "-c", "ls /app/*.whl"]).exit_code != 0


def test_a_new_project_becomes_an_image_on_a_plain_python_and_passes_the_checks(
    tmp_path: Path, tag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "my_env", "--into", str(tmp_path)]) == 0
    assert build(str(tmp_path / "my_env"), "--tag", tag, "--base", BASE, "--check") == 0
    assert " 0 failed" in capsys.readouterr().out

    # With a volume it keeps a journal, as its Dockerfile says.
    dockerfile = (tmp_path / "my_env" / "Dockerfile").read_text()
    [(volume, journal)] = re.findall(r"^# With a volume at (\S+): ORSAY_JOURNAL=(\S+) ", dockerfile, re.M)
    kept = {"volumes": [volume], "environment": {"ORSAY_JOURNAL": journal}, **HARDENED}
    with container(tag, **kept) as found:
        with (
            Client(serving(found)) as client,
            client.environment("myenv").session(split="train", index=0) as session,
        ):
            session.call("submit", {"text": "?"})
        stats = found.exec_run(["orsay", "journal", "stats", "--json"])
        assert stats.exit_code == 0 and json.loads(stats.output)["sessions"] == 1, stats.output


def test_a_folder_of_files_becomes_an_image_without_its_secrets(
    tmp_path: Path, tag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "env.py").write_text(COIN)
    (tmp_path / "sides.py").write_text("import roman\nHEADS = 'heads'\n")
    (tmp_path / "requirements.txt").write_text("roman\n")
    (tmp_path / ".env").write_text("PASSWORD=sesame\n")
    assert build(str(tmp_path), "--tag", tag, "--base", image("base")) == 0
    assert "looks like a secret: .env" in capsys.readouterr().out
    with container(tag, **HARDENED) as found:
        with (
            Client(serving(found)) as client,
            client.environment("coin").session(split="train", index=0) as session,
        ):
            session.call("call", {"word": "heads"})
            assert session.reward == 1.0
        assert found.exec_run(["ls", "/app/.env"]).exit_code != 0


def test_a_project_with_its_own_dockerfile_is_built_as_that_says(tmp_path: Path, tag: str) -> None:
    shutil.copytree(ROOT / "envs" / "echo", tmp_path / "echo", ignore=shutil.ignore_patterns("tests"))
    own = "ARG BASE\nFROM ${BASE}\nARG WHO=nobody\nENV WHO=${WHO}\nCOPY . /somewhere\nCMD echo hello ${WHO}\n"
    (tmp_path / "echo" / "Dockerfile").write_text(own)
    assert build(str(tmp_path / "echo"), "--tag", tag, "--base", BASE, "--build-arg", "WHO=you") == 0
    client = docker.from_env(timeout=120)
    try:
        assert client.containers.run(tag, remove=True) == b"hello you\n"
    finally:
        client.close()


def test_a_step_that_fails_is_shown_with_its_last_words(
    tmp_path: Path, tag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {BASE}\nRUN echo one moment && echo it broke >&2 && exit 9\n")
    assert build(str(tmp_path), "--tag", tag) == 1
    printed = capsys.readouterr().err
    assert printed.startswith(f"orsay build: cannot build {tag}: ")
    assert "RUN echo one moment" in printed and "it broke" in printed and "Traceback" not in printed


def test_a_base_that_no_registry_has_is_answered_with_what_to_do(
    tag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(str(ROOT / "envs" / "echo"), "--tag", tag, "--base", "localhost:9/nothing:1") == 1
    printed = capsys.readouterr().err
    assert "localhost:9/nothing:1" in printed or "connection refused" in printed
    assert "--base" in printed


def test_a_check_of_an_image_that_does_not_start_shows_its_output(
    tmp_path: Path, tag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {BASE}\nCMD echo no such luck >&2; exit 3\n")
    assert build(str(tmp_path), "--tag", tag, "--check") == 1
    printed = capsys.readouterr().err
    assert "does not answer on port 8080" in printed and "no such luck" in printed


def test_nothing_of_a_check_is_left_running() -> None:
    client: Any = docker.from_env(timeout=120)
    try:
        trials = client.containers.list(all=True, filters={"label": "orsay.trial"})
        assert [each for each in trials if "orsay-test-build" in each.labels["orsay.trial"]] == []
    finally:
        client.close()
