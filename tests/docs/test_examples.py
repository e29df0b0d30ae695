"""Code in the documentation is code that runs: each block is a piece of a file, and each file is run."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from orsay.runtimes.loader import load
from orsay_client import Client

from tests.interop.servers import serve
from tests.interop.venvs import TRL, python_for
from tests.support.documentation import EXAMPLES, ROOT, Block, blocks
from tests.support.servers import orsay_programs

pytestmark = pytest.mark.process

BLOCKS = list(blocks())
PYTHON = [block for block in BLOCKS if block.language == "python"]
CLIENTS = [path for path in sorted((EXAMPLES / "clients").glob("*.py")) if path.stem != "trl"]
ENVIRONMENTS = sorted((EXAMPLES / "environments").glob("*.py"))
SAYS = {
    "play": "Right.' detail=None type='text' 1.0 True",
    "explore": "'type': 'function', 'name': 'submit'",
    "many": "100.0 0",
    "last_message": "Take the essay.\n1.0",
}
LIMIT_S = 60


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server of all environments that the documentation shows."""
    with serve(*map(str, ENVIRONMENTS), options=["--workers", "1"]) as server:
        yield server.url


def run(path: Path, url: str, *more: str, python: Path | None = None) -> str:
    """What the example prints when it runs against ``url``."""
    arguments = ["-c", "\n".join([path.read_text().replace("http://127.0.0.1:8080", url), *more])]
    if python is None:
        done = orsay_programs().run(arguments, timeout=LIMIT_S)
    else:
        done = subprocess.run(
            [python, *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_is_shown_as_it_is_in_a_file_that_runs(block: Block) -> None:
    assert block.file is not None, "say which file this shows: ```python file=docs/examples/…"
    path = ROOT / block.file
    assert path.is_relative_to(EXAMPLES) or path.is_relative_to(ROOT / "examples")
    assert f"\n{block.code}" in f"\n{path.read_text()}"


def test_every_example_is_shown_somewhere() -> None:
    shown = {block.file for block in PYTHON if (block.file or "").startswith("docs/")}
    assert {str(path.relative_to(ROOT)) for path in EXAMPLES.rglob("*.py")} == shown


def test_every_block_says_its_language() -> None:
    known = ("python", "bash", "text", "toml", "yaml", "nginx", "mermaid")
    assert {str(block) for block in BLOCKS if block.language not in known} == set()


@pytest.mark.parametrize("path", ENVIRONMENTS, ids=lambda path: path.stem)
def test_an_environment_is_served_with_a_prompt_for_every_first_task(path: Path, url: str) -> None:
    with Client(url) as client:
        for cls in load(str(path)):
            environment = client.environment(cls.__name__)
            for split in environment.splits():
                with environment.session(split=split.name, index=0) as session:
                    assert session.prompt()
                    assert session.tools()


def test_the_pizzeria_takes_an_order_with_all_its_kinds_of_arguments(url: str) -> None:
    order = {"count": 2, "size": "large", "toppings": ["olives"], "address": {"street": "Main Street 1"}}
    with Client(url) as client, client.environment("pizzeria").session(split="train", index=0) as session:
        output = session.call("order", order)
    assert getattr(output.blocks[0], "text", "") == "2 large with olives to Main Street 1, now."


def test_the_workshop_keeps_files_and_its_toolset_sees_them(url: str) -> None:
    with Client(url) as client, client.environment("workshop").session(split="train", index=0) as session:
        session.call("write", {"name": "done", "text": ""})
        assert "done" in str(session.call("list_files").blocks)
        session.call("compile", {"seconds": 0})
        session.call("reset")
        assert "(nothing)" in str(session.call("list_files").blocks)


def test_colours_are_seen_as_images(url: str) -> None:
    with Client(url) as client, client.environment("colours").session(split="train", index=0) as session:
        assert session.call("look").blocks[0].type == "image"
        assert session.call("answer", {"colour": "red"}).reward == 1.0


@pytest.mark.parametrize("path", CLIENTS, ids=lambda path: path.stem)
def test_a_client_runs_and_says_what_it_should(path: Path, url: str) -> None:
    assert SAYS[path.stem] in run(path, url)


@pytest.mark.venv
def test_the_lines_for_trl_make_a_dataset_and_an_environment() -> None:
    python = python_for("trl", TRL)
    more = textwrap.dedent("""
        print(spec.train_dataset[0]["task_index"], len(spec.train_dataset))
        environment = spec.environment_factory()
        print("stone" in str(environment.reset(task_index=0)), environment.submit(text="enots"))
        print(spec.reward_funcs(environments=[environment]))
    """)
    with serve(str(EXAMPLES / "environments" / "reverse.py"), options=["--workers", "1"]) as server:
        shown = run(EXAMPLES / "clients" / "trl.py", server.url, more, python=python).splitlines()
    assert shown[0] == "0 2"
    assert shown[1].startswith("True") and "Right." in shown[1]
    assert shown[2] == "[1.0]"


def test_a_server_can_be_started_from_a_file_of_ones_own(tmp_path: Path) -> None:
    code = (EXAMPLES / "serving" / "embed.py").read_text().replace("port=8080", "port=0, workers=1")
    (tmp_path / "reverse.py").write_text((EXAMPLES / "environments" / "reverse.py").read_text())
    (tmp_path / "embed.py").write_text(code)
    # Servers of other tests are forked, and end without an interpreter that takes its modules apart.
    process = subprocess.Popen(
        [sys.executable, "-W", "always::ResourceWarning", "embed.py"],
        cwd=tmp_path,
        env={**os.environ, "ORSAY_LOG_LEVEL": "warning"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("Orsay serves Reverse at http://127.0.0.1:")
        with Client(line.split()[-1]) as client:
            assert client.environments() == ["reverse"]
            assert client.environment("reverse").splits()
    finally:
        process.terminate()
        _, trouble = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, trouble) == (0, "")


def test_the_tests_that_authors_are_shown_pass() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "tests"],
        cwd=EXAMPLES,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES / "environments")},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
