"""``orsay serve``: errors of a wrong command line, and what the options do."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from orsay.settings import Settings

from tests.interop.servers import serve
from tests.support.servers import orsay

pytestmark = pytest.mark.process

FINE = """
from orsay import Environment, tool

class Fine(Environment):
    splits = {"train": [{}]}

    def prompt(self) -> str:
        return "go"

    @tool
    def go(self) -> str:
        return "gone"
"""
WITHOUT_TOOLS = FINE.replace("    @tool\n", "")
BAD_TOOL = FINE.replace("def go(self)", "def go(self, where)")
RAISES = "import nothing_of_this_name\n"


def orsay_serve(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return orsay(
        "serve", *arguments, env={**os.environ, "ORSAY_PORT": "0", "ORSAY_WORKERS": "1", **variables}
    )


@pytest.fixture
def fine(tmp_path: Path) -> str:
    return written(tmp_path, FINE)


def written(folder: Path, text: str, name: str = "env.py") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def refused(*arguments: str, **variables: str) -> str:
    """The error when the server does not start."""
    done = orsay_serve(*arguments, **variables)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr


def test_without_an_environment_it_says_what_to_write() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "orsay", "serve"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "name at least one environment, for example: orsay serve my_env.env:MyEnv" in done.stderr


def test_a_module_that_is_not_there_is_named_with_its_neighbours(fine: str) -> None:
    assert "no file 'enw.py'" in (message := refused(fine.replace("env.py", "enw.py") + ":Fine"))
    assert "did you mean 'env.py'?" in message
    assert "no module 'nothing_of_this_name'" in refused("nothing_of_this_name:Fine")


def test_a_class_that_is_not_there_is_named_with_its_neighbours(fine: str) -> None:
    assert "did you mean 'Fine'?" in refused(f"{fine}:Fin")


def test_a_class_without_tools_is_named(tmp_path: Path) -> None:
    assert "Fine" in (message := refused(written(tmp_path, WITHOUT_TOOLS) + ":Fine"))
    assert "tool" in message


def test_a_malformed_tool_is_named_with_its_file(tmp_path: Path) -> None:
    assert "env.py" in (message := refused(written(tmp_path, BAD_TOOL)))
    assert "'go'" in message or "go" in message
    assert "where" in message


def test_an_import_that_fails_is_named_with_its_line(tmp_path: Path) -> None:
    assert "env.py:1" in (message := refused(written(tmp_path, RAISES)))
    assert "nothing_of_this_name" in message


def test_two_classes_of_one_name_are_refused(fine: str, tmp_path: Path) -> None:
    other = written(tmp_path, FINE.replace("Fine", "FINE"), "other.py")
    assert "fine" in refused(fine, other).lower()


def test_a_port_in_use_is_named_with_the_way_out(fine: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = refused(fine, "--port", str(port))
    assert f"cannot listen on 127.0.0.1:{port}" in message
    assert "another --port, or 0 for any free one" in message


def test_listening_wider_without_keys_is_refused_until_it_is_asked_for(fine: str) -> None:
    message = refused(fine, "--host", "0.0.0.0")
    assert "ORSAY_API_KEYS" in message
    assert "--allow-anonymous" in message


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ORSAY_WORKERS", "0"),
        ("ORSAY_IDLE_LIMIT_S", "soon"),
        ("ORSAY_RUNTIME", "cloud"),
        ("ORSAY_PORT", "70000"),
    ],
)
def test_a_bad_setting_is_named_with_its_variable(fine: str, variable: str, value: str) -> None:
    assert f"variable {variable}: {variable[6:].lower()} = " in refused(fine, **{variable: value})


def test_reloading_needs_worker_processes(fine: str) -> None:
    assert "--runtime process" in refused(fine, "--reload", "--runtime", "local", "--port", "0")


def test_the_settings_are_listed_with_their_variables() -> None:
    done = orsay_serve("--settings")
    assert done.returncode == 0
    for name in Settings.model_fields:
        assert f"ORSAY_{name.upper()}=" in done.stdout


def test_a_file_without_a_class_serves_every_environment_in_it(fine: str) -> None:
    with serve(fine, options=["--workers", "1"]) as server:
        assert httpx.get(f"{server.url}/list_environments").json() == ["fine"]
        assert "Orsay serves Fine at http://127.0.0.1:" in "".join(server.output)


def test_an_argument_wins_over_its_variable(fine: str) -> None:
    with serve(fine, options=["--workers", "1"], runtime="local", env={"ORSAY_RUNTIME": "cloud"}) as server:
        assert httpx.get(f"{server.url}/ready").status_code == 200
