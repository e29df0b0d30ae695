"""What a folder is taken for, without anything of it being run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from orsay.cli import main
from orsay.errors import LoadError
from orsay.packaging.project import read

from tests.support.engine import ROOT

pytestmark = pytest.mark.process

ENV = "from orsay import Environment\n\n\nclass {name}(Environment):\n    pass\n"
PYPROJECT = '[project]\nname = "{name}"\nversion = "1"\n'


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for place, text in files.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_bundled_environment_is_a_package() -> None:
    project = read(ROOT / "envs" / "guess")
    assert (project.name, project.kind, project.own_dockerfile) == ("guess-env", "package", True)
    assert project.targets == ("guess_env.env:GuessEnvironment",)


@pytest.mark.parametrize("spelling", [[], ["--full"]])
def test_a_project_of_orsay_init_is_a_package(tmp_path: Path, spelling: list[str]) -> None:
    assert main(["init", "my_env", "--into", str(tmp_path), *spelling]) == 0
    project = read(tmp_path / "my_env")
    assert (project.name, project.kind) == ("my-env", "package")
    assert project.targets == ("my_env.env:MyEnv",)


def test_files_are_served_as_they_lie(tmp_path: Path) -> None:
    files = {"one.py": ENV.format(name="One"), "more/two.py": ENV.format(name="Two"), "requirements.txt": ""}
    project = read(write(tmp_path / "My Games!", files))
    assert (project.name, project.kind, project.requirements) == ("my-games", "files", True)
    assert project.targets == ("one.py:One", "more.two:Two")


def test_a_dockerfile_alone_is_enough(tmp_path: Path) -> None:
    project = read(write(tmp_path, {"Dockerfile": "FROM scratch\n"}))
    assert (project.kind, project.targets, project.own_dockerfile) == ("image", (), True)


def test_a_pyproject_of_tools_alone_makes_no_package(tmp_path: Path) -> None:
    files = {"env.py": ENV.format(name="One"), "pyproject.toml": "[tool.ruff]\nline-length = 100\n"}
    assert read(write(tmp_path, files)).kind == "files"


def test_the_source_may_lie_in_a_folder_called_src(tmp_path: Path) -> None:
    files = {"pyproject.toml": PYPROJECT.format(name="x"), "src/pkg/env.py": ENV.format(name="One")}
    assert read(write(tmp_path, files)).targets == ("pkg.env:One",)


def test_what_to_serve_may_be_named(tmp_path: Path) -> None:
    named = '[tool.orsay]\nenvironments = ["gymnasium:FrozenLake-v1", "env.py:One"]\n'
    files = {"env.py": ENV.format(name="One") + ENV.format(name="Two"), "pyproject.toml": named}
    assert read(write(tmp_path, files)).targets == ("gymnasium:FrozenLake-v1", "env.py:One")


def test_modules_that_cannot_be_imported_here_are_read_all_the_same(tmp_path: Path) -> None:
    text = "import a_package_that_is_nowhere\n" + ENV.format(name="One") + "raise SystemExit('it ran')\n"
    assert read(write(tmp_path, {"env.py": text})).targets == ("env.py:One",)


@pytest.mark.parametrize(
    "base",
    [
        "from openreward.environments import Environment\nclass One(Environment): ...",
        "from ors import Environment\nclass One(Environment): ...",
        "import orsay\nclass One(orsay.Environment): ...",
        "import orsay as o\nclass One(o.Environment): ...",
        "from orsay import Environment as E\nclass One(E): ...",
        "from orsay.authoring.environment import Environment\nclass One(Environment): ...",
        "from .shared import Base\nclass One(Base): ...",
        "from . import shared\nclass One(shared.Base): ...",
        "from pkg import Base\nclass One(Base): ...",
        "from pkg.shared import Base\nclass Middle(Base): ...\nclass One(Middle): ...",
    ],
)
def test_environments_are_found_by_what_they_derive_from(tmp_path: Path, base: str) -> None:
    files = {
        "pyproject.toml": PYPROJECT.format(name="x"),
        "pkg/__init__.py": "from .shared import Base\n",
        "pkg/shared.py": "from orsay import Environment\nclass Base(Environment): ...\n",
        "pkg/env.py": base,
    }
    if "Base" not in base:
        del files["pkg/__init__.py"], files["pkg/shared.py"]
    assert read(write(tmp_path, files)).targets == ("pkg.env:One",)


def test_a_base_that_is_an_environment_itself_is_served_too(tmp_path: Path) -> None:
    easy = "class Easy(Environment):\n    def prompt(self): ...\n    @tool\n    def go(self): ...\n"
    text = f"from orsay import Environment, tool\n{easy}class Hard(Easy): ...\n"
    assert read(write(tmp_path, {"env.py": text})).targets == ("env.py:Easy", "env.py:Hard")


def test_other_classes_tests_and_hidden_names_are_left_alone(tmp_path: Path) -> None:
    files = {
        "env.py": ENV.format(name="One") + "class Other: ...\n" + ENV.format(name="_Hidden"),
        "model.py": "from other import Environment\nclass Env(Environment): ...\n",
        **{
            place: ENV.format(name="No")
            for place in ("tests/env.py", "test_env.py", ".x/env.py", "conftest.py")
        },
        "lib/pyvenv.cfg": "",
        "lib/pkg.py": ENV.format(name="No"),
    }
    assert read(write(tmp_path, files)).targets == ("env.py:One",)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "defines no environment and has no Dockerfile"),
        ({"env.py": "x = (\n"}, "env.py:1 cannot be read as Python"),
        ({"pyproject.toml": "[project\n"}, "pyproject.toml is no TOML"),
        ({"pyproject.toml": '[tool.orsay]\nenvironment = ["a:B"]\n'}, "did you mean 'environments'?"),
        ({"pyproject.toml": '[tool.orsay]\nenvironments = "a:B"\n'}, "is a list of texts"),
    ],
)
def test_a_folder_that_is_no_project_is_refused_with_what_to_do(
    tmp_path: Path, files: Mapping[str, str], words: str
) -> None:
    with pytest.raises(LoadError, match=words):
        read(write(tmp_path, files))


def test_a_file_and_a_missing_folder_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, {"env.py": ENV.format(name="One")}) / "env.py"
    with pytest.raises(LoadError, match="is a file; name the folder"):
        read(path)
    with pytest.raises(LoadError, match=r"no folder .*orsay init NAME"):
        read(tmp_path / "nowhere")


def test_the_command_line_says_so_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"orsay build: {tmp_path} defines no environment")


def test_without_an_engine_the_error_says_to_start_one() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "orsay", "build", str(ROOT / "envs" / "echo")],
        env={**os.environ, "DOCKER_HOST": "unix:///nowhere/docker.sock"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("orsay build: no Docker engine answers at unix:///nowhere/docker.sock")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tag", "My Env"], "cannot name an image"),
        (["--build-arg", "WHO"], "is not NAME=VALUE"),
        (["--build-arg", "BASE=x"], "is spelled --base"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_built(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", str(ROOT / "envs" / "echo"), *arguments]) == 2
    assert words in capsys.readouterr().err
