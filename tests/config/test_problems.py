"""Errors of a wrong file: each thing with its line, all at once, and no secret."""
# ruff: noqa: E501  # a mistake and its message are on one line

from __future__ import annotations

from pathlib import Path

import pytest
from orsay.config import Configuration, find_file, read, unread_variables
from orsay.config.entries import ImageTable, UrlTable
from orsay.errors import ConfigError
from orsay.serving.resolve import resolve

from ..support.config_server import written


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os

    for name in [name for name in os.environ if name.upper().startswith("ORSAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def fine(text: str, **given: object) -> Configuration:
    return read(written(Path(), text), given)


def problems(text: str, **given: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        found = fine(text, **given)
        resolve(found.entries, found.settings, look_for_code=True)
    return str(caught.value).splitlines()


def entry(lines: str) -> str:
    return f"[environments.a]\n{lines}\n"


IN = entry('class = "os:X"')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # settings
        ("prot = 1", "1: unknown key 'prot'; did you mean 'port'?"),
        ("\n\nxyzzy = 1", "3: unknown key 'xyzzy'"),
        ("[logging]\nlevel = 1", "1: unknown key 'logging'"),
        ('port = "80"', '1: port = "80": must be a whole number'),
        ("port = 1.5", "1: port = 1.5: must be a whole number"),
        ("port = 70000", "1: port = 70000: must be less than or equal to 65535"),
        ("port = true", "1: port = true: must be a whole number"),
        ("idle_limit_s = 0", "1: idle_limit_s = 0: must be greater than 0"),
        ("idle_limit_s = '1'", '1: idle_limit_s = "1": must be a number'),
        ("allow_anonymous = 1", "1: allow_anonymous = 1: must be true or false"),
        ("host = 1", "1: host = 1: must be a text in quotation marks"),
        ('log_level = "wanring"', "1: log_level = \"wanring\": must be 'debug', 'info', 'warning' or 'error'; did you mean 'warning'?"),
        ('runtime = "cloud"', '1: runtime = "cloud": must be \'process\', \'local\', \'docker\' or \'remote\''),
        ('also = "mpc"', "1: also = \"mpc\": 'mpc' is no protocol that a server speaks beside ORS; there are: openenv, mcp"),
        ('api_keys = "one"', '1: api_keys: must be a list, such as ["one", "two"]'),
        ("api_keys = [1]", "1: api_keys: must be a text in quotation marks"),
        ('api_keys_file = "none"', "1: the file of API keys {folder}/none cannot be read: No such file or directory"),
        ("environments = 3", "1: write a table for each: [environments.LABEL]"),
        # entries
        ("[environments]\na = 3", "2: a must be a table: [environments.a]"),
        ("[environments.a]", "1: a has no source: give one of class, directory, image, url"),
        (entry("workers = 1"), "1: a has no source: give one of class, directory, image, url"),
        (entry('imag = "x"'), "2: unknown key 'imag' in a; did you mean 'image'?"),
        (entry('class = "m:C"\nimage = "x"'), "3: a has both 'class' and 'image': an entry has one source; make it two"),
        (entry('url = "http://x"\nurll = 1'), "3: unknown key 'urll' in a; did you mean 'url'?"),
        (entry('url = "http://x"\nworkers = 1'), "3: 'workers' goes with class and directory, not with url"),
        (entry('class = "os:X"\ncpus = 1'), "3: 'cpus' goes with image, not with class"),
        (entry('url = "x:80"'), '2: url = "x:80": must be a URL, such as http://host:8080'),
        (entry('url = ""'), '2: url = "": must be a URL, such as http://host:8080'),
        (entry('image = ""'), '2: image = "": must not be empty'),
        (entry("class = []"), "2: class: must not be empty"),
        (entry("class = [\n'os:X',\n1]"), "4: class = 1: must be a text in quotation marks"),
        (entry('class = ":X"'), "2: ':X' names no module; write module:Class or path/to/file.py:Class"),
        (entry('class = "http://x"'), '2: \'http://x\' is no class; use url = "http://x"'),
        (entry('class = "docker:x:1"'), '2: \'docker:x:1\' is no class; use image = "x:1"'),
        (entry('class = "os:X"\npath = "nowhere"'), "3: no folder {folder}/nowhere to import from"),
        (entry('class = "os:X"\nserve = [1]'), '3: serve: name environments, ["a", "b"], or rename them, { a = "another name" }'),
        (entry('image = "x"\n[environments.a.variables]\nA = []'), "4: variables.A: must be a text in quotation marks"),
        (entry('image = "x"\nvariables = "A=1"'), '3: variables: must be a table, such as { NAME = "value" }'),
        (entry('image = "x"\npull = "allways"'), "3: pull = \"allways\": must be 'missing', 'always' or 'never'; did you mean 'always'?"),
        (entry('url = "http://x"\napi_key = "k"\napi_key_file = "f"'), "4: a has both 'api_key' and 'api_key_file': one is enough"),
        (entry('url = "http://x"\napi_key_file = "f"'), "3: the file of API keys {folder}/f cannot be read: No such file or directory"),
        (entry('url = "http://x"\napi_key_variable = "NO"'), "3: the variable NO that should hold a key is not set"),
        ('[environments."a b"]\nurl = "http://x"', "1: 'a b' cannot be a label: use letters, digits, and . _ - inside"),
        # what only the surroundings show
        (entry('image = "x"\nmemory = "5"'), "1: a: image x: memory '5' is no size of at least 6 MiB; write 512m or 2g"),
        (entry('image = "x"\nvolumes = ["data:/data"]'), "1: a: image x: volume 'data:/data' is not /host:/container or /host:/container:ro, with absolute paths"),
        (entry('directory = "nowhere"'), "1: a: no folder {folder}/nowhere; 'orsay init NAME' starts a new project"),
        (entry('class = "nothing_of_this:X"'), "1: a: no module 'nothing_of_this', neither installed nor in {folder}"),
        (entry('class = "json.decodr:X"'), "1: a: no module 'json.decodr', neither installed nor in {folder}; did you mean 'decoder'?"),
        (entry('class = "below/none.py:X"'), "1: a: no file {folder}/below/none.py"),
    ],
)  # fmt: skip
def test_each_mistake_is_reported_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    assert problems(text) == [f"orsay.toml:{message.replace('{folder}', str(tmp_path))}"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = ", "1: this is no TOML: Invalid value"),
        ("a = 1\nb = [1,\n", "3: this is no TOML: Invalid value"),
        ('a = 1\n\nb = "x\n', "3: this is no TOML: Illegal character"),
        ("a = 1\na = 2", "2: this is no TOML: Cannot overwrite a value"),
        ("[environments.a]\n[environments.a]", "2: this is no TOML: Cannot declare"),
    ],
)
def test_what_is_no_toml_is_reported_with_its_line(text: str, message: str) -> None:
    (reported,) = problems(text)
    assert reported.startswith(f"orsay.toml:{message}")


def test_bytes_that_are_no_text_are_reported_with_their_line() -> None:
    Path("orsay.toml").write_bytes(b"port = 1\nhost = '\xff'\n")
    with pytest.raises(ConfigError, match=r"orsay\.toml:2: this is no UTF-8"):
        read(Path("orsay.toml"), {})


def test_everything_is_reported_at_once_in_the_order_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORSAY_WORKERS", "none")
    monkeypatch.setenv("ORSAY_ENVIRONMENTS__A__CPUS", "many")
    text = f"prot = 1\nworkers = 0\n{entry('image = 3')}\n[environments.b]\n{entry('').split(']')[1]}"
    assert problems(text, port=-1) == [
        "orsay.toml:1: unknown key 'prot'; did you mean 'port'?",
        "orsay.toml:2: workers = 0: must be greater than or equal to 1",
        "orsay.toml:4: image = 3: must be a text in quotation marks",
        "orsay.toml:6: b has no source: give one of class, directory, image, url",
        'variable ORSAY_ENVIRONMENTS__A__CPUS: cpus = "many": must be a number',
        "command line: port = -1: must be greater than or equal to 0",
        'variable ORSAY_WORKERS: workers = "none": must be a valid integer, unable to parse string as an integer',
    ]


def test_a_wider_address_without_keys_is_refused_wherever_they_could_come_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (reported,) = problems(f'host = "0.0.0.0"\n{IN}')
    assert "binding to 0.0.0.0 without API keys would let anyone in" in reported
    monkeypatch.setenv("ORSAY_API_KEYS", '["from-elsewhere"]')
    assert fine(f'host = "0.0.0.0"\n{IN}').settings.keys[0].get_secret_value() == "from-elsewhere"


@pytest.mark.parametrize("value", ["sk-very-secret", '["sk-very-secret"', '{"sk-very-secret": 1}', "[3]"])
def test_a_wrong_variable_with_keys_is_reported_without_them(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("ORSAY_API_KEYS", value)
    (reported,) = problems(IN)
    assert reported.startswith("variable ORSAY_API_KEYS: ") and "very" not in reported


def test_no_secret_is_in_a_report() -> None:
    text = f"""
api_keys = ["very-secret", 3]
{entry('image = "x"')}
api_key = ["very-secret"]
variables = {{ A = ["very-secret"] }}
[environments.b]
url = "ftp://me:very-secret@there"
"""
    reported = problems(text)
    assert len(reported) == 4 and "very-secret" not in "\n".join(reported)


# what is right


def test_variables_reach_into_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"URL": "http://other:1", "PING_S": "2.5", "SERVE": '["a"]'}.items():
        monkeypatch.setenv(f"ORSAY_ENVIRONMENTS__FAR_AWAY__{name}", value)
    (found,) = fine('[environments.far-away]\nurl = "http://one:1"\n').entries
    assert isinstance(found.table, UrlTable)
    assert (found.table.url, found.table.ping_s, found.table.names) == ("http://other:1", 2.5, {"a": "a"})


def test_a_variable_for_an_entry_that_is_not_there_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORSAY_ENVIRONMENTS__EHCO__WORKERS", "1")
    (reported,) = problems('[environments.echo]\nurl = "http://one:1"\n')
    message = "there is no [environments.ehco]; did you mean 'echo'?"
    assert reported == f"variable ORSAY_ENVIRONMENTS__EHCO__WORKERS: {message}"


def test_paths_are_those_of_the_file_and_not_of_the_folder_it_is_read_in(tmp_path: Path) -> None:
    (tmp_path / "conf" / "code").mkdir(parents=True)
    (tmp_path / "conf" / "key").write_text("the-key\n")
    text = """
[environments.a]
class = ["code/one.py:One", "pkg.env:Two", "text:mod:Three"]
path = ["code", "."]
[environments.b]
directory = "../envs/echo"
[environments.c]
image = "x"
api_key_file = "key"
secrets = { j = "s/judge" }
volumes = ["./data:/data:ro", "/abs:/abs", "~/x:/x"]
"""
    found = read(written(tmp_path / "conf", text), {})
    one, two, three = found.entries
    folder = tmp_path / "conf"
    assert one.targets == (f"{folder}/code/one.py:One", "pkg.env:Two", "text:mod:Three")
    assert one.folders == (f"{folder}/code", str(folder))
    assert two.table.model_dump()["directory"] == f"{tmp_path}/envs/echo"
    assert isinstance(three.table, ImageTable) and three.table.api_key is not None
    assert three.table.api_key.get_secret_value() == "the-key"
    assert three.table.secrets == {"j": f"{folder}/s/judge"}
    assert three.table.volumes == (f"{folder}/data:/data:ro", "/abs:/abs", f"{Path.home()}/x:/x")


def test_the_file_is_the_one_named_or_that_of_the_variable_or_the_one_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert find_file(None) is None
    written(Path(), "")
    assert find_file(None) == Path("orsay.toml")
    assert find_file(None, here=False) is None
    monkeypatch.setenv("ORSAY_CONFIG", "other.toml")
    assert find_file(None) == find_file(None, here=False) == Path("other.toml")
    assert find_file(Path("named.toml")) == Path("named.toml")


def test_variables_that_nothing_reads_are_found_with_what_they_may_mean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("ORSAY_WORKRES", "ORSAY_PORT", "ORSAY_CONFIG", "ORSAY_ENVIRONMENTS__A__CPUS", "ORSAY_Q"):
        monkeypatch.setenv(name, "1")
    assert unread_variables() == {
        "ORSAY_Q": "",
        "ORSAY_WORKRES": "; did you mean 'workers'?",
    }
