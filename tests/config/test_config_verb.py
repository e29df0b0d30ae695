"""``orsay config``: what it prints, and what it keeps to itself; the schema that editors use."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from orsay.config.entries import TABLES, ImageTable, UpstreamOptions
from orsay.config.schema import schema
from orsay.runtimes.docker.options import DockerOptions
from orsay.runtimes.remote.options import RemoteOptions
from orsay.settings import Settings

from tests.support.servers import ROOT, orsay

from ..support.config_server import ENVS, SCRIPTED, written

pytestmark = pytest.mark.process

PUBLISHED = ROOT / "docs" / "orsay.schema.json"


def orsay_config(*arguments: str, folder: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ORSAY_")}
    return orsay("config", *arguments, cwd=folder, env={**clean, **variables})


def checked(path: Path, **variables: str) -> str:
    done = orsay_config("--check", str(path), folder=ROOT, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def origins(text: str) -> dict[str, str]:
    lines = (line.partition("  # ") for line in text.splitlines())
    return {re.split(r"\W+", start.strip("# "))[0]: origin for start, _, origin in lines if origin}


def test_every_setting_is_shown_with_its_value_and_where_it_comes_from(tmp_path: Path) -> None:
    path = written(
        tmp_path, f'\nport = 9000\nworkers = 3\nlog_level = "debug"\n[environments.a]\n{SCRIPTED}\n'
    )
    text = checked(path, ORSAY_WORKERS="5", orsay_idle_limit_s="7.5")
    parsed = tomllib.loads(text)
    assert (parsed["port"], parsed["workers"], parsed["idle_limit_s"]) == (9000, 5, 7.5)
    output = origins(text)
    assert set(Settings.model_fields) <= set(output)
    assert output["port"] == f"{path}:2" and output["log_level"] == f"{path}:4"
    assert output["workers"] == "variable ORSAY_WORKERS"
    assert output["idle_limit_s"] == "variable orsay_idle_limit_s"
    assert output["host"] == output["max_sessions_per_key"] == "default"


def test_entries_are_shown_as_they_are_effective(tmp_path: Path) -> None:
    text = f"""
[environments.one]
{SCRIPTED}
[environments.two]
directory = "{ENVS}/echo"
[environments.three]
{SCRIPTED}
serve = {{ scripted = "Another name" }}
workers = 2
[environments.four]
image = "games:1"
memory = "2g"
volumes = ["./data:/data"]
[environments.five]
url = "http://five:80"
"""
    shown = checked(written(tmp_path, text), ORSAY_ENVIRONMENTS__FIVE__URL="http://other:81")
    parsed = tomllib.loads(shown)["environments"]
    assert list(parsed) == ["one", "two", "three", "four", "five"]
    assert parsed["five"] == {"url": "http://other:81"}
    assert parsed["four"] == {"image": "games:1", "memory": "2g", "volumes": [f"{tmp_path}/data:/data"]}
    assert parsed["three"]["serve"] == {"scripted": "Another name"}
    assert "orsay.toml:2, shares workers with two" in shown
    assert '# class = ["echo_env.env:EchoEnvironment"]' in shown


def test_what_is_shown_can_be_read_again(tmp_path: Path) -> None:
    text = f"max_sessions = 5\n[environments.one]\n{SCRIPTED}\nworkers = 2\n[environments.two]\nurl = 'http://x'\n"
    once = checked(written(tmp_path, text))
    again = checked(written(tmp_path, once, "again.toml"))
    assert tomllib.loads(once) == tomllib.loads(again)


def test_no_secret_is_ever_shown(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("very-secret-1\n")
    text = """
api_keys = ["very-secret-2"]
api_keys_file = "keys"
[environments.a]
image = "x"
variables = { TOKEN = "very-secret-3" }
api_key = "very-secret-4"
[environments.b]
url = "http://me:very-secret-5@host"
api_key_file = "keys"
[environments.c]
url = "http://host"
api_key_variable = "THE_KEY"
"""
    path = written(tmp_path, text)
    shown = checked(path, THE_KEY="very-secret-6", ORSAY_ENVIRONMENTS__C__API_KEY_VARIABLE="THE_KEY")
    assert "very-secret" not in shown and shown.count("***") == 4
    assert 'api_key_variable = "THE_KEY"' in shown and f'api_keys_file = "{tmp_path}/keys"' in shown
    broken = orsay_config("--check", str(written(tmp_path, text + "nonsense = 1\n")), THE_KEY="very-secret-6")
    assert broken.returncode == 2 and "very-secret" not in broken.stdout + broken.stderr


def test_what_is_wrong_is_reported_and_nothing_else(tmp_path: Path) -> None:
    done = orsay_config("--check", str(written(tmp_path, '[environments.a]\ndirectory = "none"\nx = 1\n')))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{tmp_path}/orsay.toml:3: unknown key 'x' in a" in done.stderr and "Traceback" not in done.stderr


def test_nothing_is_imported_for_a_check(tmp_path: Path) -> None:
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')\n")
    (tmp_path / "trapped").mkdir()
    (tmp_path / "trapped" / "__init__.py").write_text("raise SystemExit('imported')\n")
    (tmp_path / "trapped" / "env.py").write_text("raise SystemExit('imported')\n")
    text = '[environments.a]\nclass = ["trap:X", "trapped.env:Y", "trap.py:Z"]\n'
    assert "trapped.env:Y" in checked(written(tmp_path, text))


def test_without_a_file_defaults_and_variables_are_shown(tmp_path: Path) -> None:
    done = orsay_config(folder=tmp_path, ORSAY_WORKRES="1")
    assert done.returncode == 0 and "# no file" in done.stdout
    assert "# ORSAY_WORKRES is set, but no setting reads it; did you mean 'workers'?" in done.stdout


def test_the_example_is_right_and_shows_every_kind_of_entry(tmp_path: Path) -> None:
    example = orsay_config("--example").stdout
    (tmp_path / "my_env").mkdir()
    (tmp_path / "my_env" / "__init__.py").touch()
    (tmp_path / "my_env" / "env.py").touch()
    assert "my_env.env:MyEnv" in checked(written(tmp_path, example))
    validate(example)
    everything = re.sub(r"^# (?=[a-z_]+ = |\[environments|\[journal)", "", example, flags=re.MULTILINE)
    (tmp_path / "keys.txt").write_text("key\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "echo").symlink_to(ENVS / "echo")
    everything = everything.replace('path = "src"', 'path = [".", "src"]')
    shown = tomllib.loads(checked(written(tmp_path, everything), FAR_KEY="key"))
    assert [next(iter(each)) for each in shown["environments"].values()] == list(TABLES)
    validate(everything)


# the schema


def validate(text: str) -> None:
    jsonschema.Draft7Validator(schema()).validate(tomllib.loads(text))


def test_the_published_schema_is_the_one_that_is_printed() -> None:
    done = orsay_config("--schema")
    assert done.returncode == 0
    assert json.loads(done.stdout) == json.loads(PUBLISHED.read_text()) == schema(), (
        "orsay config --schema > docs/orsay.schema.json"
    )


def test_the_schema_is_one() -> None:
    jsonschema.Draft7Validator.check_schema(schema())


@pytest.mark.parametrize(
    "text",
    [
        "prot = 1",
        'port = "80"',
        'log_level = "loud"',
        "[environments.a]",
        '[environments.a]\nclass = "a:B"\nurl = "http://x"',
        '[environments.a]\nclass = "a:B"\ncpus = 1',
        '[environments.a]\nimage = "x"\nreplicas = 0',
        '[environments.a]\nurl = "x"',
        '[environments."a b"]\nurl = "http://x"',
        '[environments.a]\nimage = "x"\nvariables = { A = [] }',
    ],
)
def test_the_schema_refuses_what_the_server_refuses(text: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        validate(text)


@pytest.mark.parametrize(
    "text",
    [
        'class = "a:B"\nserve = "a"',
        'class = ["a:B", "c"]\npath = ["x"]\nserve = { a = "b" }\ncall_time_limit_s = 3',
        'image = "x"\ncommand = "a b"\nvariables = { A = 1, B = true, C = "x" }\ncpus = 2',
    ],
)
def test_the_schema_takes_what_the_server_takes(text: str) -> None:
    validate(f"[environments.a]\n{text}\n")
    table = tomllib.loads(text)
    TABLES[next(iter(table))].model_validate(table)


# a table has all options of its runtime


def names(options: Any) -> set[str]:
    return {field.name for field in fields(options)}


def test_tables_of_images_have_every_option_of_containers() -> None:
    own = set(ImageTable.model_fields) - set(UpstreamOptions.model_fields)
    assert own == names(DockerOptions) - {"remote", "hash_seed"}


def test_tables_of_servers_have_every_option_of_upstreams() -> None:
    derived = {"hook_limit_s", "max_result_bytes", "slow_after_s"}  # made of setup_time_limit_s, and settings
    general = {"serve", "max_sessions", "call_time_limit_s", "setup_time_limit_s", "sandboxes"}
    own = set(UpstreamOptions.model_fields) - general - {"api_key_variable", "api_key_file"}
    assert own == names(RemoteOptions) - derived
