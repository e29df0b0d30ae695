"""``orsay data doctor``: needs of an environment against a configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..support.servers import ROOT, orsay

pytestmark = pytest.mark.process

ENVIRONMENT = """
import openai
from openreward import SandboxBucketConfig, SandboxSettings
from openreward.toolsets import CLIToolset

TASKS = "/orwd_data/tasks.json"

class Ledger:
    def __init__(self, task, secrets={}):
        self.judge = openai.AsyncClient(api_key=secrets["openai_api_key"])
        self.key = secrets.get("api_key")
        self.settings = SandboxSettings(
            environment="Owner/Ledger", image="owner/tools:1", machine_size="1:2",
            bucket_config=SandboxBucketConfig("/orwd_data", only_dir=f"files/{task['id']}"),
        )
"""
COMPLETE = """
[sandboxes]
backend = "docker"
[sandboxes.images]
"owner/tools:1" = "tools:local"
[sandboxes.data]
"Owner/Ledger" = "data"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger" / "server.py").write_text(ENVIRONMENT)
    (tmp_path / "data" / "files" / "one").mkdir(parents=True)
    (tmp_path / "data" / "tasks.json").write_text("[]")
    return tmp_path


def doctor(folder: Path, *arguments: str, **variables: str) -> tuple[int, dict[tuple[str, str], str], str]:
    ended = orsay(
        "data", "doctor", *arguments, "--json", cwd=folder, env={"PATH": "/usr/bin:/bin", **variables}
    )
    assert ended.returncode in (0, 1), ended.stderr
    told: dict[str, Any] = json.loads(ended.stdout)
    return ended.returncode, {(n["kind"], n["what"]): n["state"] for n in told["needs"]}, told["toml"]


def test_everything_lacks_and_the_file_is_dictated(folder: Path) -> None:
    code, states, toml = doctor(folder, "ledger")
    lacking = {key for key, state in states.items() if state == "lacks"}
    assert code == 1
    assert lacking == {
        ("data", "/orwd_data/tasks.json"),
        ("bucket", "/orwd_data"),
        ("sandbox", "sandboxes"),
        ("image", "owner/tools:1"),
        ("secret", "api_key"),
        ("secret", "openai_api_key"),
        ("model", "openai"),
    }
    assert states["size", "1:2"] == "there" and states["toolset", "CLIToolset"] == "note"
    (folder / "orsay.toml").write_text(toml.replace("FOLDER", "data").replace("IMAGE", "tools:local"))
    code, states, toml = doctor(folder, "ledger", "--secret", "OpenAI_API_key")
    assert (code, toml) == (0, ""), states


def test_an_entry_of_the_file_is_read_where_it_is(folder: Path) -> None:
    (folder / "orsay.toml").write_text(COMPLETE + '[environments.books]\ndirectory = "ledger"\n')
    (folder / "ledger" / "server.py").write_text(
        ENVIRONMENT.replace("class Ledger:", "from orsay import Environment\nclass Folio(Environment):")
    )
    code, states, toml = doctor(folder, "books", OPENAI_BASE_URL="http://127.0.0.1:1")
    assert code == 1 and states["data", "/orwd_data/tasks.json"] == "there"  # the folder is called Ledger
    assert {key for key, state in states.items() if state == "lacks"} == {("secret", "openai_api_key")}
    assert toml == ""
    (folder / "ledger").rename(folder / "elsewhere")
    (folder / "orsay.toml").write_text(COMPLETE + '[environments.books]\ndirectory = "elsewhere"\n')
    _, states, toml = doctor(folder, "elsewhere")
    assert states["data", "/orwd_data/tasks.json"] == "lacks" and states["bucket", "/orwd_data"] == "there"
    assert toml == '[environments.books]\ndata = "Owner/Ledger"'


def test_files_that_the_folder_lacks(folder: Path) -> None:
    (folder / "orsay.toml").write_text(COMPLETE)
    (folder / "data" / "tasks.json").unlink()
    (folder / "data" / "files" / "one").rmdir()
    _, states, _ = doctor(folder, "ledger/server.py:Ledger")
    assert states["data", "/orwd_data/tasks.json"] == "lacks" and states["bucket", "/orwd_data"] == "lacks"


def test_the_table_for_people(folder: Path) -> None:
    shown = orsay("data", "doctor", "ledger", cwd=folder, env={"PATH": "/usr/bin:/bin", "COLUMNS": "160"})
    assert shown.returncode == 1
    (row,) = [line for line in shown.stdout.splitlines() if line.startswith("image")]
    assert row.split()[:3] == ["image", "owner/tools:1", "lacks"] and "server.py:12" in row
    assert '# for orsay.toml\n[sandboxes]\nbackend = "docker"\n' in shown.stdout
    nothing = orsay("data", "doctor", str(ROOT / "envs" / "echo"), cwd=folder)
    assert (nothing.returncode, nothing.stdout) == (0, "It needs nothing but itself.\n")


@pytest.mark.parametrize("target", ["http://127.0.0.1:1", "docker:image", "nosuchmodule:X", "no/such.py"])
def test_what_has_no_sources_here(folder: Path, target: str) -> None:
    assert orsay("data", "doctor", target, cwd=folder).returncode == 2


@pytest.mark.parametrize(
    ("code", "backend", "state"),
    [
        ("self.sandbox(image='a')", "auto", "there"),
        ("self.sandbox(image='a')", "off", "lacks"),
        ("self.client.sandbox(settings)", "auto", "lacks"),
        ("self.client.sandbox(settings)", "bubblewrap", "there"),
    ],
)
def test_which_back_ends_serve_which_code(folder: Path, code: str, backend: str, state: str) -> None:
    (folder / "ledger" / "server.py").write_text(f"def f(self):\n    {code}\n")
    _, states, _ = doctor(folder, "ledger", ORSAY_SANDBOXES_BACKEND=backend)
    assert {states[key] for key in states if key[0] == "sandbox"} == {state}
