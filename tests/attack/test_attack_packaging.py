"""No secret and nothing of what was played leaves with an image or a Space, whatever it is called there."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
import tarfile
import tempfile
from base64 import b64encode, encodebytes
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from orsay.cli import main
from orsay.errors import ConfigError, LoadError
from orsay.packaging import wheel
from orsay.packaging.context import Contents, read, tar
from orsay.packaging.ignore import line_for
from orsay.packaging.project import read as read_project
from orsay_client import Client
from orsay_protocol.evaluation import EvaluationReport

from tests.interop.servers import serve
from tests.journal.fill import Fill, empty_journal, fill

pytestmark = pytest.mark.process

MARK = b"hunter2-nobody-may-read-this"
ECHO = "echo_env.env:EchoEnvironment"
ENV = "from orsay import Environment\n\n\nclass Env(Environment):\n    pass\n"
BASE64 = b"MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
HEX = b"e1f0a7b3c4d5968778695a4b3c2d1e0f"
KEY = b"-----BEGIN OPENSSH PRIVATE KEY-----\n%s\n%s\n-----END OPENSSH PRIVATE KEY-----\n" % (BASE64, MARK)

SECRET_NAMES = (
    *(
        ".env",
        ".env.local",
        ".env.production",
        "prod.env",
        ".envrc",
        ".direnv/x",
        ".env~",
        ".env.bak",
        ".env.gz",
    ),
    *("server.pem", "tls.key", "AuthKey.p8", "cert.p12", "cert.pfx", "store.jks", "a.keystore", "mine.kdbx"),
    *("putty.ppk", "krb5.keytab", "office.ovpn", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "deploy_rsa"),
    *("keys", "keys.txt", "keys.txt~", "keys.txt.bak", ".keys.txt.swp", "#keys.txt#", "keys (1).txt"),
    *("api_keys", "api_keys.txt", "api-keys.json", "my_api_key", "apikey.txt", "token", ".token", "hf_token"),
    *(
        "token.txt",
        "token.json",
        "access_token",
        "secrets.toml",
        "secrets.yaml",
        "secrets.json",
        "secrets.ipynb",
        "secrets.sh",
        "secrets.py.bak",
    ),
    *(
        "secrets/judge_key",
        "secrets/judge.json",
        ".secret",
        "client_secret_1.json",
        "credentials",
        "credentials.json",
    ),
    *(
        "application_default_credentials.json",
        "service-account.json",
        "service_account_prod.json",
        "kaggle.json",
    ),
    *(".netrc", "_netrc", ".pgpass", ".my.cnf", ".pypirc", ".npmrc", ".yarnrc", ".yarnrc.yml", ".htpasswd"),
    *(
        ".git-credentials",
        ".dockercfg",
        ".docker/config.json",
        ".aws/credentials",
        ".aws/config",
        ".ssh/config",
    ),
    *(".azure/accessTokens.json", ".gcloud/x", ".kube/config", "kubeconfig", "prod.kubeconfig", ".gnupg/x"),
    *(".huggingface/token", ".kaggle/kaggle.json", ".vault-token", ".vault_pass", "rclone.conf", ".s3cfg"),
    *("terraform.tfstate", "terraform.tfstate.backup", "prod.tfvars", "prod.tfvars.json", ".terraform/x"),
    *("password.txt", "passwords", "passwords.txt", "db_password", "db_password.txt", ".password", "dotenv"),
    *("keys.json", "keys.yaml", "keys.toml", "my_keys.txt", "orsay_keys", "openai-key.txt", "deploy_key"),
    *("api.key.txt", "my.keys.txt", "prod.env.txt"),
    *("tokens.json", "tokens.txt", "tokens.yml", "github_token.yml", "hf-token.json", "rootkey.csv"),
    *("gcp-key.json", "sa-key.json", "my_private_key.json", "walls-firebase-adminsdk-1x2y-0a1b2c3d4e.json"),
    *(
        "copy of keys.txt",
        "copy (2) of keys.txt",
        "kopie von keys.txt",
        "old_token.json",
        "backup-tokens.txt",
    ),
    *("keys.txt-old", "keys.txt_bak", "keys.txt.2026-11-22", "token-20261122", "tokens.txt.20261122t101500z"),
    *("keys_old.txt", "keys.backup.json", "tokens - copy.txt", "passwords-2026-11-22.txt", "keys.txt.b64"),
    *(".ssh.bak/config", ".aws-old/config", "copy of .kube/config", "secrets.2026-11-22/judge"),
    *(".bash_history", ".zsh_history", ".python_history", ".psql_history"),
    *(".orsay/journal.db", ".orsay/journal.db-wal", ".orsay/journal-search.db", "j.db-recent-0a1b2c3d"),
)
"""Files with these names, in any letter case, hold what nobody else may read."""

HARMLESS_NAMES = (
    *(".env.example", ".env.sample", ".env.template", "id_rsa.pub", "terraform.tfvars.example"),
    *("keyboard.py", "keys/map.json", "monkeys.txt", "tokens.py", "tokenizer.json"),
    *("special_tokens_map.json", "tokenizer_config.json", "environment.yml", "secret.py", "secretary.txt"),
    *("data.db", "history.json", "walls/env.py", "token_counts.csv", "credentials_form.html", "docs/keys.md"),
    *(
        "answer_key.txt",
        "answer-keys.txt",
        "exam_answer_key",
        "authorized_keys",
        "passwords.html",
        "keys.csv",
    ),
    *(
        "keyring.txt",
        "hotkeys.json",
        "monkey.json",
        "turkey_key.png",
        "added_tokens.json",
        "google_keywords.json",
    ),
    *("old_walls.json", "level-2026-11-22.txt", "copy of level.txt", "firebase.json", "password_reset.html"),
    *("pip.conf", "requirements.txt", "passwordless.md", "2026-11-22/level.txt", "levels-old/map.txt"),
)
"""An environment may need these."""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine that the tests run on says which files are secret."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in list(os.environ):
        if name.upper().startswith("ORSAY_"):
            monkeypatch.delenv(name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return project(tmp_path / "project")


def project(folder: Path) -> Path:
    folder.mkdir()
    (folder / "env.py").write_text(ENV)
    return folder


def put(folder: Path, relpath: str, data: bytes = MARK) -> Path:
    path = folder / relpath
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def ignore(folder: Path, *lines: str) -> None:
    (folder / ".dockerignore").write_text("\n".join(lines), encoding="utf-8")


def contents_of(folder: Path) -> Contents:
    return read(read_project(folder))


def packed(folder: Path) -> Mapping[str, bytes]:
    """The files of the tar that a Docker engine gets."""
    found = read_project(folder)
    with tar(found, read(found), dockerfile="FROM scratch\n") as data, tarfile.open(fileobj=data) as archive:
        members = [member for member in archive.getmembers() if member.name != "Dockerfile"]
        assert all(member.isreg() for member in members)
        files = {member.name: archive.extractfile(member) for member in members}
        return {name: file.read() for name, file in files.items() if file is not None}


def sent(folder: Path, *options: str) -> Mapping[str, bytes]:
    """The files of the Space."""
    into = folder.parent / "space"
    shutil.rmtree(into, ignore_errors=True)
    command = ["push", str(folder), "--space", "me/walls", "--dry-run", str(into), "--orsay", "orsay"]
    assert main([*command, *options]) == 0
    return {
        path.relative_to(into).as_posix(): path.read_bytes() for path in into.rglob("*") if path.is_file()
    }


def leaks(files: Mapping[str, bytes]) -> list[str]:
    return [relpath for relpath, data in files.items() if MARK in data]


def cased(name: str, how: str) -> str:
    if how == "mixed":
        return "".join(each.upper() if number % 2 else each.lower() for number, each in enumerate(name))
    return name.upper() if how == "upper" else name


# names


def numbered(names: Iterable[str], within: str = "") -> list[str]:
    """Places of files with these names, each in a folder of its own."""
    return [f"{within}{number:03}/{name}" for number, name in enumerate(names)]


@pytest.mark.parametrize("how", ["as it is", "upper", "mixed"])
def test_a_secret_stays_here_by_its_name_in_any_letter_case(how: str, folder: Path) -> None:
    names = [cased(name, how) for name in SECRET_NAMES]
    places = {*names, *numbered(names, "data/deep/")}
    for place in places:
        put(folder, place)
    assert leaks(packed(folder)) == [] == leaks(sent(folder))
    assert set(contents_of(folder).secrets) == places


def test_a_secret_stays_here_under_the_name_of_a_link_to_it(folder: Path) -> None:
    expected = set[str]()
    for number, name in enumerate(SECRET_NAMES):
        secret = put(folder, f"{number:03}/{name}")
        own = folder / f"{number:03}"
        (own / "data").mkdir()
        (own / "config.txt").symlink_to(name)
        (own / "data" / "far.txt").symlink_to(secret)
        (own / "chain.txt").symlink_to("data/far.txt")
        os.link(secret, own / "data" / "hard.txt")
        links = ("config.txt", "data/far.txt", "chain.txt", "data/hard.txt")
        expected |= {f"{number:03}/{link}" for link in (name, *links)}
    assert leaks(packed(folder)) == [] == leaks(sent(folder))
    assert set(contents_of(folder).secrets) == expected


def test_a_link_with_the_name_of_a_secret_makes_one_of_the_file(folder: Path) -> None:
    links = numbered(SECRET_NAMES)
    files = numbered(["settings/production.conf"] * len(links))
    for file, place in zip(files, links, strict=True):
        put(folder, file)
        link = folder / place
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder / file)
    assert leaks(packed(folder)) == [] == leaks(sent(folder))
    assert set(contents_of(folder).secrets) == {*links, *files}


@pytest.mark.parametrize("how", ["as it is", "upper"])
def test_an_allow_list_lets_no_secret_in(how: str, folder: Path) -> None:
    names = [cased(name, how) for name in SECRET_NAMES]
    for number, name in enumerate(names):
        put(folder, f"my_env/{name}")
        (folder / "my_env" / f"plain-{number}.txt").symlink_to(name)
    put(folder, "my_env/code.py", b"pass")
    tops = dict.fromkeys(name.partition("/")[0] for name in names)
    for lines in (
        ["*", "!my_env"],
        ["*", "!my_env/**"],
        ["**", "!**"],
        ["*", "!my_env", *(f"!my_env/{top}*" for top in tops)],
        ["!*"],
    ):
        ignore(folder, *lines)
        files = packed(folder)
        assert leaks(files) == [] and "my_env/code.py" in files, lines
    assert leaks(sent(folder)) == []


def test_a_line_that_names_the_very_file_lets_it_in(folder: Path) -> None:
    asked = numbered(SECRET_NAMES, "a/")
    for place in (*asked, *numbered(SECRET_NAMES, "b/")):
        put(folder, place)
    found = {each.relpath: each.line for each in contents_of(folder).left_out}
    lines = [str(found[place]) for place in asked]
    assert lines == [f"!{place}" for place in asked]
    ignore(folder, *lines)
    assert sorted(leaks(packed(folder))) == sorted(asked) == sorted(leaks(sent(folder)))
    ignore(folder, "*", *lines, "**/nothing")
    assert sorted(leaks(packed(folder))) == sorted(asked)
    ignore(folder, *lines, "a")  # taken back
    assert leaks(packed(folder)) == []


def test_what_an_environment_needs_goes_with_it(folder: Path) -> None:
    places = [*HARMLESS_NAMES, *numbered(HARMLESS_NAMES, "data/")]
    for place in places:
        put(folder, place, b"# of use")
    for files in (packed(folder), sent(folder)):
        assert [place for place in places if files.get(place) != b"# of use"] == []
    assert contents_of(folder).left_out == ()


@pytest.mark.parametrize(
    "name", ["secrets.py", "my_env/credentials/oauth.py", "api_keys.ts", "Secrets (1).PY"]
)
@pytest.mark.parametrize(
    "token",
    [
        "hf_" + "aB3" * 11,
        "sk-proj-" + "aB3_" * 12,
        "sk-ant-api03-" + "aB3-" * 12,
        "ghp_" + "aB3" * 12,
        "github_pat_" + "aB3_" * 20,
        "glpat-" + "aB3" * 7,
        "AKIA" + "AB34" * 4,
        "AIza" + "aB3_-" * 7,
        "xoxb-" + "123-" * 6,
        "gsk_" + "aB3" * 16,
        "pypi-AgE" + "aB3_" * 16,
    ],
)
def test_a_source_that_is_called_secret_stays_here_with_a_token_in_it(
    name: str, token: str, folder: Path
) -> None:
    put(folder, name, f'TOKEN = "{token}"\n'.encode())
    put(folder, "my_env/shown.py", f'EXAMPLE = "{token}"\n'.encode())
    reasons = {each.relpath: each.reason for each in contents_of(folder).left_out}
    assert reasons == {name: "looks like a secret: it holds a token"}
    assert name not in packed(folder) and "my_env/shown.py" in packed(folder)
    ignore(folder, f"!{name}".replace("(", r"\(").replace(")", r"\)"))
    assert name in packed(folder)


@pytest.mark.parametrize("relpath", ["my_env/secrets.py", "secrets/__init__.py", ".ssh/known.py", ".env.py"])
def test_a_source_stays_here_with_a_private_key_or_in_a_folder_of_secrets(relpath: str, folder: Path) -> None:
    put(folder, relpath, b"KEY = '''%s'''" % KEY)
    assert contents_of(folder).secrets == (relpath,)
    put(folder, relpath, b'TOKEN = os.environ["TOKEN"]')
    assert contents_of(folder).secrets == ((relpath,) if relpath.startswith(".") else ())


def test_a_source_below_a_link_of_the_name_of_secrets_goes_along(folder: Path) -> None:
    put(folder, "conf/__init__.py", b"# of use")
    put(folder, "conf/judge")
    (folder / "secrets").symlink_to("conf")
    assert contents_of(folder).secrets == ("conf/judge",)
    (folder / ".ssh").symlink_to("conf")
    assert contents_of(folder).secrets == ("conf/__init__.py", "conf/judge")


def test_what_is_left_out_is_printed_with_the_reason_and_the_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder, ".env")
    put(folder, "odd/[1].pem")
    (folder / "config.txt").symlink_to(".env")
    put(folder, "tests/test_env.py", b"pass")
    ignore(folder, "tests")
    sent(folder)
    message = capsys.readouterr().err
    assert "looks like a secret: .env, odd/[1].pem" in message and r"'!.env', '!odd/\[1\].pem'" in message
    assert "is the same file as .env, which looks like a secret: config.txt (the line '!.env'" in message
    assert "left out by .dockerignore: tests/" in message
    assert "sends 5 files, " in message and " env.py\n" in message
    ignore(folder, r"!odd/\[1\].pem")
    assert leaks(packed(folder)) == ["odd/[1].pem"]


def test_many_files_are_counted_and_named_on_demand(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(40):
        put(folder, f"maps/{number:02}.txt", b"#" * number)
        put(folder, f".aws/{number:02}")
    sent(folder)
    message = capsys.readouterr().err
    assert ".aws/ (40 files)" in message and "maps/03.txt" not in message and "sends 45 files, " in message
    sent(folder, "--list")
    message = capsys.readouterr().err
    assert all(f"maps/{number:02}.txt" in message and f".aws/{number:02}" in message for number in range(40))


# by any combination


NAMES = st.builds(
    lambda folder, name, how: f"{folder}{cased(name, how)}",
    st.sampled_from(["", "my_env/", "A/b/", "data/"]),
    st.sampled_from([name for name in SECRET_NAMES if "/" not in name]),
    st.sampled_from(["as it is", "upper", "mixed"]),
)
LINKS = st.tuples(
    st.sampled_from(["x", "my_env/y", "a/z.txt", "p/q/r.json"]),
    st.integers(0, 5),
    st.sampled_from(["relative", "absolute", "hard", "chain"]),
)
LINES = st.sampled_from(
    [
        "*",
        "**",
        "!*",
        "!**",
        "!my_env",
        "!my_env/**",
        "!a",
        "!A/**",
        "**/*.txt",
        "!**/.*",
        "!**/*.*",
        "A/b",
        "data",
    ]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    secrets=st.lists(NAMES, min_size=1, max_size=3, unique_by=str.casefold),
    links=st.lists(LINKS, max_size=4, unique_by=lambda each: each[0]),
    lines=st.lists(LINES, max_size=5),
)
def test_no_byte_of_a_secret_leaves_whatever_links_and_lines_there_are(
    secrets: list[str],
    links: list[tuple[str, int, str]],
    lines: list[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = project(tmp_path_factory.mktemp("tree") / "project")
    for relpath in secrets:
        put(folder, relpath)
    last = secrets[0]
    for relpath, number, kind in links:
        target = last if kind == "chain" else secrets[number % len(secrets)]
        link = folder / relpath
        link.parent.mkdir(parents=True, exist_ok=True)
        if kind == "hard":
            os.link(os.path.realpath(folder / target), link)
        else:
            link.symlink_to(
                folder / target if kind == "absolute" else os.path.relpath(folder / target, link.parent)
            )
        last = relpath
    ignore(folder, *lines)
    assert leaks(packed(folder)) == []
    line = line_for(secrets[0])
    assert line is not None
    ignore(folder, *lines, line)
    found = set(leaks(packed(folder)))
    assert secrets[0] in found and not found & set(secrets[1:])


# settings


def test_files_that_settings_name_stay_here(folder: Path) -> None:
    put(folder, "orsay.toml", b"""
api_keys_file = "data/who.txt"
[journal]
url = "data/log.sqlite"
[environments.far]
url = "http://far:8080"
api_key_file = "far.txt"
[environments.games]
image = "games:1"
secrets = { judge = "judge.txt" }
""")  # fmt: skip
    secret = (
        "data/who.txt",
        "far.txt",
        "judge.txt",
        "data/LOG.sqlite-wal",
        "data/log.sqlite",
        "data/log-search.sqlite",
    )
    for relpath in (*secret, "data/log.sqlite-shm", "data/log.sqlite.damaged-20260101-000000"):
        put(folder, relpath)
    put(folder, "data/logic.txt", b"# of use")
    (folder / "harmless.txt").symlink_to("data/who.txt")
    os.link(folder / "far.txt", folder / "hard.txt")
    files = packed(folder)
    assert leaks(files) == [] == leaks(sent(folder))
    assert {"orsay.toml", "data/logic.txt"} <= set(files)
    ignore(folder, "*", "!data", "!orsay.toml")
    assert leaks(packed(folder)) == []
    ignore(folder, "!data/who.txt")
    assert set(leaks(packed(folder))) == {"data/who.txt", "harmless.txt"}


def test_files_that_another_file_of_settings_names_stay_here(folder: Path) -> None:
    put(folder, "servers/big.toml", b'api_keys_file = "../a.txt"\njournal = "sqlite:///b.sqlite"\n')
    put(folder, "package.toml", b'[other]\napi_keys_file = "c.txt"\n')
    for relpath in ("a.txt", "servers/b.sqlite"):
        put(folder, relpath)
    put(folder, "c.txt", b"# of use")
    files = packed(folder)
    assert leaks(files) == [] and "c.txt" in files


def test_files_that_settings_elsewhere_name_stay_here(folder: Path, tmp_path: Path) -> None:
    (folder / "orsay.toml").symlink_to(put(tmp_path, "shared/orsay.toml", b'api_keys_file = "a.txt"\n'))
    put(folder, "a.txt")
    files = packed(folder)
    assert leaks(files) == [] and "orsay.toml" not in files


def test_files_that_the_settings_of_the_current_folder_name_stay_here(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, "a.txt")
    put(folder, "b.txt")
    put(tmp_path, "outside.txt")
    os.link(tmp_path / "outside.txt", folder / "c.txt")
    put(tmp_path / "here", "orsay.toml", b'api_keys_file = "../project/a.txt"\n')
    monkeypatch.setenv("ORSAY_JOURNAL", "../project/b.txt")
    monkeypatch.setenv("orsay_api_keys_file", str(tmp_path / "outside.txt"))
    assert leaks(packed(folder)) == []
    monkeypatch.setenv("ORSAY_CONFIG", str(tmp_path / "else.toml"))
    put(tmp_path, "else.toml", b'api_keys_file = "project/d.txt"\n')
    put(folder, "d.txt")
    put(folder, "e.txt")
    monkeypatch.setenv("ORSAY_ENVIRONMENTS__FAR__API_KEY_FILE", str(folder / "e.txt"))
    assert leaks(packed(folder)) == ["a.txt"]  # which nothing names any more


@pytest.mark.parametrize(
    "text",
    [
        f'api_keys = ["{MARK.decode()}"]',
        f'journal = "postgresql://orsay:{MARK.decode()}@db/journal"',
        f'[journal]\nurl = "postgresql://orsay:{MARK.decode()}@db/journal"',
        f'[environments.far]\nurl = "http://far"\napi_key = "{MARK.decode()}"',
        f'[environments.games]\nimage = "g"\nvariables = {{ JUDGE_TOKEN = "{MARK.decode()}" }}',
    ],
)
def test_settings_that_hold_a_key_themselves_stay_here(text: str, folder: Path) -> None:
    put(folder, "orsay.toml", text.encode())
    put(folder, "servers/one.toml", text.encode())
    assert leaks(packed(folder)) == []


def test_settings_that_cannot_be_read_send_nothing(folder: Path, tmp_path: Path) -> None:
    put(folder, "orsay.toml", b'api_keys_file = "a.txt\n')
    put(folder, "a.txt")
    with pytest.raises(LoadError, match=r"orsay\.toml cannot be read, .*orsay config --check"):
        contents_of(folder)
    assert main(["push", str(folder), "--space", "me/w", "--dry-run", str(tmp_path / "space")]) == 2
    assert not (tmp_path / "space").exists()


# what was played


def test_the_journal_of_a_server_that_ran_here_stays_here(folder: Path) -> None:
    """As ``orsay serve`` in the project's folder makes it, while the server runs and after."""
    path = folder / ".orsay" / "journal.db"
    with serve(ECHO, env={"ORSAY_JOURNAL": str(path)}) as server:
        play(server.url)
        assert any(MARK in each.read_bytes() for each in path.parent.iterdir())
        assert leaks(packed(folder)) == [] == leaks(sent(folder))
    assert leaks(packed(folder)) == []
    assert not [relpath for relpath in packed(folder) if "orsay/" in relpath.lower()]


def play(url: str) -> None:
    """One call with the mark in it."""
    with Client(url) as client, client.environment().session(split="train", index=0) as session:
        session.call(session.listing().tools[0].name, {"text": MARK.decode()})


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("journal") / "journal.db"
    store = empty_journal(path)
    with store.writing() as connection:
        fill(connection, Fill(sessions=40))
    store.close()
    return path


def test_a_journal_is_known_by_its_content(journal: Path, folder: Path, tmp_path: Path) -> None:
    shutil.copy(journal, folder / "walls.dat")
    with sqlite3.connect(folder / "levels.db") as other:
        other.execute("CREATE TABLE sessions (one)")
        other.execute("CREATE TABLE levels (one)")
    other.close()
    reasons = {each.relpath: each.reason for each in contents_of(folder).left_out}
    assert reasons == {"walls.dat": "is a journal of Orsay"}
    assert "levels.db" in packed(folder) and (folder / "walls.dat").read_bytes() == journal.read_bytes()
    damaged = bytearray(journal.read_bytes())
    damaged[60:100] = b"\xff" * 40
    put(folder, "walls.dat", bytes(damaged))
    assert "walls.dat" not in packed(folder)


@pytest.mark.parametrize("options", [(), ("--full",)])
def test_an_export_of_a_journal_is_known_by_its_content(
    journal: Path, folder: Path, options: tuple[str, ...]
) -> None:
    assert (
        main(["journal", "export", str(folder / "x.jsonl"), "--journal", str(journal), "--faults", *options])
        == 0
    )
    lines = (folder / "x.jsonl").read_bytes()
    put(folder, "lessons.txt", lines)
    put(folder, "blank.jsonl", b"\r\n\n  " + lines)
    put(folder, "marked.jsonl", b"\xef\xbb\xbf" + lines)
    put(folder, "list.json", b"[\n  " + b",\n".join(lines.splitlines()) + b"]")
    put(folder, "maps.json", b'[{"environment": "walls"}]')
    reasons = {each.relpath: each.reason for each in contents_of(folder).left_out}
    found = ("x.jsonl", "lessons.txt", "blank.jsonl", "marked.jsonl", "list.json")
    assert reasons == dict.fromkeys(found, "is an export of a journal")


def test_a_report_of_an_evaluation_is_known_by_its_content(folder: Path) -> None:
    with serve(ECHO) as server:
        output = folder / "results" / "one.json"
        assert (
            main(
                [
                    "eval",
                    server.url,
                    "--policy",
                    "random",
                    "--split",
                    "train",
                    "-n",
                    "2",
                    "--output",
                    str(output),
                ]
            )
            == 0
        )
    EvaluationReport.model_validate_json(output.read_bytes())
    put(folder, "reports.json", b'{"format": 1, "name": "levels", "split": [1, 2]}')
    files = packed(folder)
    assert "reports.json" in files and not [relpath for relpath in files if relpath.startswith("results/")]


def test_the_newest_rows_of_a_journal_are_known_by_their_content(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "played" / "journal.db"
    with serve(ECHO, env={"ORSAY_JOURNAL": str(path)}) as server:
        play(server.url)
        while not _copied(path.parent.glob("*-recent-*"), folder / "walls.bin"):
            play(server.url)
    assert "walls.bin" not in packed(folder)


def _copied(segments: Iterable[Path], to: Path) -> bool:
    """Whether one was there: each is for a second, until the tables have its rows."""
    for segment in segments:
        with suppress(FileNotFoundError):
            shutil.copy(segment, to)
            return True
    return False


@pytest.mark.parametrize(
    "data",
    [
        KEY,
        b"-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n" + KEY,
        b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A1B\n\n%s" % BASE64,
        b"-----BEGIN PGP PRIVATE KEY BLOCK-----\r\nVersion: GnuPG v2\r\n\r\n%s\r\n" % BASE64,
        b'---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nComment: "me"\n%s\n' % BASE64,
        b"-----BEGIN OpenVPN Static key V1-----\n%s\n" % HEX,
        b"PuTTY-User-Key-File-3: ssh-ed25519\n",
        b"# created\nAGE-SECRET-KEY-1QQQ\n",
        b"\xef\xbb\xbf" + KEY,
        b"\xef\xbb\xbfPuTTY-User-Key-File-3: ssh-ed25519\r\n",
        b"stringData:\n  tls.key: |\n" + b"".join(b"    %s\n" % line for line in KEY.split(b"\n")),
        b"tls.key: >-\n\t" + KEY.replace(b"\n", b"\n\n\t"),
        b"- identity: AGE-SECRET-KEY-1QQQ\n",
        b"KEY = '''%s'''" % KEY,
        b'KEY = (\n    "-----BEGIN EC PRIVATE KEY-----\\n"\n    "%s\\n"\n)\n' % BASE64,
        b'["-----BEGIN PRIVATE KEY-----", "%s"]' % BASE64,
        b'{"type": "service_account", "private_key": "-----BEGIN PRIVATE KEY-----\\n%s' % BASE64,
        b'{"key": "-----BEGIN PRIVATE KEY-----\\r\\n%s' % BASE64.replace(b"A", b"\\/"),
        b'"{\\"key\\": \\"-----BEGIN PRIVATE KEY-----\\\\n%s' % BASE64,
        b'{"key": "-----BEGIN PRIVATE KEY-----\\u000a%s"}' % BASE64,
        b"SIGNING_KEY=-----BEGIN PRIVATE KEY----- %s -----END PRIVATE KEY-----" % BASE64,
        b"hello\r" + KEY.replace(b"\n", b"\r"),
        KEY.replace(b"\n", b"\r\n"),
        KEY.decode().encode("utf-16"),
        b"\xfe\xff" + KEY.decode().encode("utf-16-be"),
        KEY.decode().encode("utf-16-le"),
        KEY.decode().encode("utf-32"),
        b"kind: Secret\ndata:\n  tls.key: " + b64encode(KEY),
        b"client-key-data: " + b64encode(b"-----BEGIN RSA PRIVATE KEY-----\n" + BASE64),
        b"data: >\n  " + encodebytes(KEY).replace(b"\n", b"\n  "),
    ],
)
def test_a_private_key_is_known_by_its_content(data: bytes, folder: Path) -> None:
    put(folder, "notes.md", data)
    (folder / "link.md").symlink_to("notes.md")
    assert {each.relpath for each in contents_of(folder).left_out} == {"notes.md", "link.md"}
    assert not {"notes.md", "link.md"} & {*packed(folder), *sent(folder)}
    ignore(folder, "!notes.md")
    assert {"notes.md", "link.md"} <= set(packed(folder))


@pytest.mark.parametrize(
    "data",
    [
        b"-----BEGIN PRIVATE KEY-----",
        b"-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----\n",
        b"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg...\n-----END PRIVATE KEY-----\n",
        b"-----BEGIN RSA PRIVATE KEY-----\nPut the lines of your key between these two, commit none.\n",
        b"A file that begins with `-----BEGIN OPENSSH PRIVATE KEY-----` is refused.\n",
        b'{"private_key": "-----BEGIN PRIVATE KEY-----\\nYOUR KEY\\n-----END PRIVATE KEY-----\\n"}',
        b'if text.startswith("-----BEGIN PRIVATE KEY-----"):\n    raise CannotBeSentToAnybodyAtAll1(text)\n',
        b'MARKS = (\n    "-----BEGIN PRIVATE KEY-----",\n    "-----BEGIN RSA PRIVATE KEY-----",\n)\n',
        b'allow:\n- "-----BEGIN PRIVATE KEY-----"\n- tests/fixtures/certificates/examples/server\n',
        b'KEY = re.compile(rb"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----")\n',
        b"-----BEGIN PUBLIC KEY-----\n%s\n-----END PUBLIC KEY-----\n" % BASE64,
        b"-----BEGIN CERTIFICATE-----\n%s\n-----END CERTIFICATE-----\n" % BASE64,
        b"ca.crt: " + b64encode(b"-----BEGIN CERTIFICATE-----\n%s\n" % BASE64),
        b"Of PuTTY: PuTTY-User-Key-File-, of age: AGE-SECRET-KEY-1...\n",
        b"-----BEGIN PRIVATE KEY-----" + b"\\n\\\\n, " * 8000,
        b"-----BEGIN PRIVATE KEY-----\n" + b"a: a: " * 10000,
        b"-----BEGIN PRIVATE KEY-----\n" + b"Comment: a\n" * 5000,
        b"-" * 60000,
    ],
)
@pytest.mark.timeout(30)
def test_a_mention_of_a_private_key_is_none(data: bytes, folder: Path) -> None:
    put(folder, "notes.md", data)
    assert contents_of(folder).left_out == () and packed(folder)["notes.md"] == data


@pytest.mark.parametrize("name", ["pip.conf", "requirements-dev.txt", "requirements/gpu.txt", "Pip.INI"])
@pytest.mark.parametrize(
    "line",
    [
        "index-url = https://me:%s@index.example/simple",
        "--extra-index-url https://__token__:%s@index.example/simple",
        "walls @ git+https://me:%s@github.com/me/walls",
        "--index-url=https://%s:@pypi.example/me/",
        "-e git+https://%s@github.com/me/walls#egg=walls",
        "-e git+https://%s:x-oauth-basic@github.com/me/walls",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_list_of_packages_stays_here_with_a_password_in_an_address(
    name: str, line: str, encoding: str, folder: Path
) -> None:
    put(folder, name, f"# of the index\r\n{line % MARK.decode()}\n".encode(encoding))
    (left_out,) = contents_of(folder).left_out
    assert (left_out.relpath, left_out.reason) == (name, "holds a password in a URL")
    assert name not in packed(folder) and leaks(sent(folder)) == []
    ignore(folder, f"!{name}")
    assert name in packed(folder)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "pip.conf~",
            "constraints.txt",
            "requirements.in",
            "Pipfile",
            "Pipfile.lock",
            "poetry.toml",
            "uv.toml",
        ),
        *(".condarc", "environment.yml", ".gitmodules", "docs/pyproject.toml"),
    ],
)
def test_other_files_that_name_packages_stay_here_with_a_password_too(name: str, folder: Path) -> None:
    put(folder, name, b'url = "https://me:%s@index.example/simple"' % MARK)
    assert contents_of(folder).secrets == (name,)


@pytest.mark.parametrize(
    "data",
    [
        b"index-url = https://index.example/simple",
        b"--index-url https://${USER}:${PASSWORD}@index.example/simple",
        b"--index-url https://__token__:${INDEX_TOKEN}@index.example/simple",
        b"--index-url https://$TOKEN:@index.example/simple",
        b"walls @ git+https://${GITHUB_TOKEN}@github.com/me/walls",
        b"# as https://<user>:<password>@index.example/, or https://user:****@index.example/",
        b"walls @ git+ssh://git@github.com/me/walls",
        b"walls @ git+https://git@github.com/me/walls@v1",
        b"walls @ git+ssh://a-long-name-of-a-user@host/me/walls",
        b"walls @ https://host:8080/walls-1-py3-none-any.whl",
        b"walls @ https://host/a:b@c",
        b"//" * 30000,
        b"https://" + b"a" * 60000,
        b"//:" * 20000 + b"@",
    ],
)
@pytest.mark.timeout(30)
def test_a_list_of_packages_without_a_password_goes_along(data: bytes, folder: Path) -> None:
    put(folder, "requirements.txt", data)
    put(folder, "pip.conf", data)
    assert contents_of(folder).left_out == ()


def test_an_address_with_a_password_in_another_file_goes_along(folder: Path) -> None:
    put(folder, "README.md", b"https://me:secret@index.example/simple")
    put(folder, "db.py", b'URL = "postgresql://postgres:postgres@localhost/walls"')
    assert contents_of(folder).left_out == ()


# links and what is no file


def test_a_folder_under_another_name_stays_here(folder: Path, tmp_path: Path) -> None:
    put(folder, "ssh/config")
    (folder / ".ssh").symlink_to("ssh")
    put(tmp_path, "outside/x.txt")
    (folder / "docs").symlink_to("../outside")
    (folder / "up").symlink_to("..")
    (folder / "self").symlink_to(".")
    (folder / "round").symlink_to("round")
    contents = contents_of(folder)
    assert set(contents.files) == {"env.py"}
    assert set(contents.links) == {".ssh", "docs", "up", "self", "round"}


def test_a_link_into_what_stays_out_is_no_way_round(folder: Path) -> None:
    put(folder, "private/notes.txt")
    put(folder, ".git/config")
    put(folder, ".venv/lib/settings.txt")
    (folder / "a.txt").symlink_to("private/notes.txt")
    (folder / "b.txt").symlink_to(".git/config")
    (folder / "c.txt").symlink_to(".venv/lib/settings.txt")
    os.link(folder / "private" / "notes.txt", folder / "d.txt")
    os.link(folder / ".git" / "config", folder / "e.txt")
    ignore(folder, "private")
    assert leaks(packed(folder)) == []
    lines = {each.relpath: each.line for each in contents_of(folder).left_out}
    assert lines["a.txt"] == "!private/notes.txt" == lines["d.txt"]


def test_a_submodule_in_an_allow_list_keeps_its_history_here(folder: Path) -> None:
    put(folder, "my_env/.git/config", b"url = https://me:" + MARK + b"@github.com/me/it")
    put(folder, "my_env/.git/objects/aa/bb")
    put(folder, "my_env/code.py", b"pass")
    ignore(folder, "*", "!my_env")
    files = packed(folder)
    assert leaks(files) == [] and "my_env/code.py" in files


def test_empty_files_are_no_names_of_each_other(folder: Path) -> None:
    put(folder, "tests/__init__.py", b"")
    put(folder, "my_env/empty.txt", b"")
    os.link(folder / "tests" / "__init__.py", folder / "my_env" / "__init__.py")
    ignore(folder, "tests")
    assert {"my_env/__init__.py", "my_env/empty.txt"} <= set(packed(folder))


@pytest.mark.timeout(30)
def test_a_pipe_a_socket_and_a_device_are_not_waited_for(folder: Path) -> None:
    for name in ("pipe", "lib.py", "README.md", "extra.toml", "orsay.toml.pipe", "data.db", ".dockerignore"):
        os.mkfifo(folder / name)
    (folder / "device").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listening:
        old = os.getcwd()
        os.chdir(folder)
        try:
            listening.bind("socket")
        finally:
            os.chdir(old)
        contents = contents_of(folder)
        assert set(contents.files) == {"env.py"} == set(packed(folder))
        assert "README.md" in sent(folder)
    special = {each.relpath for each in contents.left_out if each.kind == "special"}
    assert special >= {"pipe", "socket", "lib.py"} and contents.links == ("device",)


@pytest.mark.parametrize(
    "name",
    [
        "two\nlines.txt",
        "red\x1b[31m.txt",
        "\x9b2J.txt",
        "\u202egnp.txt",
        b"\xff.txt".decode("utf-8", "surrogateescape"),
    ],
)
def test_a_name_that_cannot_be_shown_stays_here_and_steers_nothing(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(folder, name, b"# of use")
    put(folder, f"{name}.pem")
    files = sent(folder)
    assert not [relpath for relpath in files if "txt" in relpath]
    message = capsys.readouterr().err
    assert "rename it" in message and name not in message and "\x1b" not in message and "\x9b" not in message
    assert all(line.startswith(("orsay push: ", "  ")) for line in message.splitlines())


def test_a_file_that_becomes_another_while_it_is_packed_is_an_error(folder: Path, tmp_path: Path) -> None:
    secret = put(tmp_path, "outside.txt")
    put(folder, ".env")
    for swap in ("link", "other", "pipe"):
        path = put(folder, "data.txt", b"# of use")
        found = read_project(folder)
        contents = read(found)
        path.unlink()
        if swap == "link":
            path.symlink_to(secret)
        elif swap == "other":
            os.link(folder / ".env", path)
        else:
            os.mkfifo(path)
        with pytest.raises(LoadError, match=r"cannot pack .*data\.txt"):
            tar(found, contents, dockerfile="FROM scratch\n")
        path.unlink()


def test_a_readme_or_a_dockerfile_that_is_a_link_shows_nothing_else(folder: Path, tmp_path: Path) -> None:
    secret = put(tmp_path, "outside.txt")
    put(folder, ".env")
    for target in (secret, folder / ".env"):
        readme, dockerfile = folder / "README.md", folder / "Dockerfile"
        readme.symlink_to(target)
        assert leaks(sent(folder)) == []
        ignore(folder, "README.md")
        assert leaks(sent(folder)) == []
        readme.unlink()
        dockerfile.symlink_to(target)
        with pytest.raises(LoadError, match="Dockerfile cannot be used: it "):
            contents_of(folder)
        dockerfile.unlink()
        (folder / ".dockerignore").unlink()


def test_a_readme_that_dockerignore_names_still_is_the_page_of_the_space(folder: Path) -> None:
    put(folder, "README.md", b"# Walls of stone\n")
    put(folder, "docker/Dockerfile", b"FROM scratch\n")
    (folder / "Dockerfile").symlink_to("docker/Dockerfile")
    ignore(folder, "*", "!env.py")
    files = sent(folder)
    assert b"# Walls of stone" in files["README.md"] and files["Dockerfile"].startswith(b"FROM scratch\n")
    assert set(packed(folder)) == {"env.py"}


def test_a_dry_run_writes_through_no_link(folder: Path, tmp_path: Path) -> None:
    into, outside = tmp_path / "into", tmp_path / "outside"
    into.mkdir()
    (outside / "deep").mkdir(parents=True)
    (outside / "mine.txt").write_text("mine")
    (into / "env.py").symlink_to(outside / "mine.txt")
    os.mkfifo(into / "README.md")
    command = [
        "push",
        str(folder),
        "--space",
        "me/walls",
        "--dry-run",
        str(into),
        "--force",
        "--orsay",
        "orsay",
    ]
    assert main(command) == 0
    assert (outside / "mine.txt").read_text() == "mine" and (into / "env.py").read_text() == ENV
    assert stat.S_ISREG((into / "README.md").lstat().st_mode)
    put(folder, "maps/one.txt", b"#")
    (into / "maps").symlink_to(outside / "deep")
    assert main(command) == 1
    assert not any((outside / "deep").iterdir())


@pytest.mark.parametrize("data", [b"\xff\xfe*.md", b"*.md\nab[c\n"])
def test_a_dockerignore_that_cannot_be_read_sends_nothing(data: bytes, folder: Path, tmp_path: Path) -> None:
    put(folder, ".dockerignore", data)
    assert main(["push", str(folder), "--space", "me/w", "--dry-run", str(tmp_path / "space")]) == 2
    assert not (tmp_path / "space").exists()


def test_a_dockerignore_with_the_mark_of_its_encoding_and_returns_is_read(folder: Path) -> None:
    put(folder, "private.txt")
    put(folder, "other.txt")
    put(folder, ".dockerignore", b"\xef\xbb\xbfprivate.txt\r\nother.txt\r\n")
    assert leaks(packed(folder)) == []


@contextmanager
def as_nobody(folder: Path) -> Iterator[None]:
    """Root reads everything: with its rights put aside, a test that it runs is one."""
    if os.geteuid() != 0:
        yield
        return
    for path in (folder, *folder.rglob("*")):
        os.chown(path, 65534, 65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("name", ["data.txt", "more.py", ".dockerignore", "inner/x"])
def test_what_cannot_be_read_is_named(name: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:  # those of pytest let their owner in, and nobody else
        Path(scratch).chmod(0o755)
        folder = project(Path(scratch, "project"))
        path = put(folder, name)
        closed = path.parent if "/" in name else path
        closed.chmod(0)
        with as_nobody(folder), pytest.raises(LoadError, match=rf"cannot read .*{name.partition('/')[0]}"):
            contents_of(folder)
        closed.chmod(0o700)


# orsay itself


def test_the_wheel_of_a_checkout_holds_its_own_files_and_nothing_beside(tmp_path: Path) -> None:
    """A copy of the package that runs here, with what somebody left in it."""
    script = (
        "import io, sys, zipfile; from orsay.packaging.wheel import requirement; import orsay;"
        " assert orsay.__file__.startswith(sys.argv[1]), orsay.__file__;"
        " (data,) = requirement().files.values();"
        " print(*zipfile.ZipFile(io.BytesIO(data)).namelist(), sep='\\n')"
    )
    root = Path(wheel.__file__).parents[1]
    shutil.copytree(root, tmp_path / "orsay", ignore=shutil.ignore_patterns("__pycache__"))
    for relpath in (".orsay/journal.db", ".env", "packing/keys.txt"):
        put(tmp_path / "orsay", relpath)
    (tmp_path / "orsay" / "packing" / "link.py").symlink_to(put(tmp_path, "outside.txt"))
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    names = {name for name in done.stdout.split("\n") if name.startswith("orsay/")}
    files = (path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert names == {f"orsay/{path.relative_to(root).as_posix()}" for path in files}


@pytest.mark.parametrize(
    "asked", ["https://me:{}@host/orsay-1-py3-none-any.whl", "orsay @ git+https://{}@github.com/me/orsay"]
)
def test_an_address_of_orsay_with_a_password_is_refused_without_showing_it(asked: str) -> None:
    with pytest.raises(ConfigError, match="holds a user name or a password") as refused:
        wheel.requirement(asked.format(MARK.decode()))
    assert MARK.decode() not in str(refused.value)


def test_a_new_project_names_what_is_private_in_both_of_its_lists(tmp_path: Path) -> None:
    assert main(["init", "walls", "--into", str(tmp_path)]) == 0
    for name in (".gitignore", ".dockerignore"):
        lines = (tmp_path / "walls" / name).read_text().splitlines()
        for wanted in (".orsay", ".env", "keys.txt", "evaluations"):
            assert any(wanted in line for line in lines if not line.startswith("!")), (name, wanted)
