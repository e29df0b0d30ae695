"""Where the journal is: what settings, variables and the file say; a password never shows."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from orsay.errors import ConfigError
from orsay.journal.options import JournalOptions, journal_url, options_from, shown
from orsay.settings import Settings

from tests.support.servers import orsay

from .rows import opened, options, put, query, writing

pytestmark = pytest.mark.process

URL = "postgresql://me:hunter2@db.example:5433/journal"


def _options(**given: object) -> JournalOptions:
    found = options_from(Settings(**given))  # type: ignore[arg-type]  # as variables give them
    assert found is not None
    return found


def test_the_journal_is_a_file_below_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ORSAY_JOURNAL", raising=False)
    found = _options()
    assert found.path == tmp_path / ".orsay" / "journal.db"
    assert (found.durability, found.required, found.max_bytes) == ("process", False, 10 * 1024**3)
    assert (found.max_age_days, found.max_sessions) == (None, None)


def test_it_can_be_off() -> None:
    assert options_from(Settings(journal="off")) is None


@pytest.mark.parametrize("text", ["sub/j.db", "sqlite:///sub/j.db", "./sub/j.db"])
def test_paths_start_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _options(journal=text).path == tmp_path / "sub" / "j.db"


def test_absolute_paths_and_urls_of_files_are_the_same() -> None:
    assert _options(journal="/data/j.db") == _options(journal="sqlite:////data/j.db")


def test_zero_means_no_bound() -> None:
    assert _options(journal="x.db", journal_max_bytes=0).max_bytes is None


@pytest.mark.parametrize(
    "text", [URL, URL.replace("postgresql", "postgres"), URL.replace("://", "+psycopg://")]
)
def test_postgres_urls_are_taken_as_people_write_them(text: str) -> None:
    pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")
    url = journal_url(text)
    assert (url.drivername, url.password, url.port) == ("postgresql+psycopg", "hunter2", 5433)
    assert shown(url) == "postgresql://me:***@db.example:5433/journal"


def test_a_password_among_the_parameters_is_hidden_too() -> None:
    pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")
    url = journal_url("postgresql://me@db.example/journal?password=hunter2&sslmode=require")
    assert (url.password, url.query["sslmode"]) == ("hunter2", "require")
    assert "hunter2" not in shown(url) + repr(url) + repr(JournalOptions(url))


@pytest.mark.parametrize(
    ("place", "what"),
    [
        ("mysql://me@host/db", "no kind of journal"),
        ("sqlite://", "name a file"),
        ("sqlite:///:memory:", "name a file"),
        ("postgresql://me:hunter2@host", "names no database"),
        ("postgresql://me:hunter2@host:port/db", "cannot be read"),
        ("postgresql://me:hunter2:@/@host:x/db", "cannot be read"),
        ("postgresql://me:hunter2@more@host/db", "cannot be read"),
    ],
)
def test_a_place_that_can_be_none_is_refused_without_the_password(place: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as refused:
        options(place)
    assert "hunter2" not in str(refused.value)


def test_settings_do_not_show_the_url() -> None:
    assert "hunter2" not in repr(Settings(journal=URL))


async def test_the_folder_of_the_default_is_kept_out_of_git(tmp_path: Path) -> None:
    async with writing(tmp_path / ".orsay" / "journal.db") as writer:
        await put(writer, opened(1))
    assert (tmp_path / ".orsay" / ".gitignore").read_text() == "*\n"


async def test_another_folder_is_left_as_it_is(tmp_path: Path) -> None:
    async with writing(tmp_path / "data" / "journal.db") as writer:
        await put(writer, opened(1))
    assert not (tmp_path / "data" / ".gitignore").exists()


async def test_only_the_owner_reads_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with writing(path) as writer:
        await put(writer, opened(1))
        for each in tmp_path.iterdir():
            assert stat.S_IMODE(each.stat().st_mode) == 0o600, each


async def test_the_tables_are_those_that_the_code_describes(tmp_path: Path) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext
    from orsay.journal.migrations import VERSION_TABLE
    from orsay.journal.schema import metadata

    async with writing(tmp_path / "journal.db") as writer:
        await put(writer, opened(1))
        given = {"version_table": VERSION_TABLE, "compare_type": True}
        found = await writer.read(
            lambda c: compare_metadata(MigrationContext.configure(c, opts=given), metadata)
        )
    assert found == []


def test_the_newest_version_is_the_last_step() -> None:
    from alembic.config import Config
    from alembic.script import ScriptDirectory
    from orsay.journal import migrations

    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    assert ScriptDirectory.from_config(config).get_heads() == [migrations.HEAD]


def test_a_journal_that_exists_is_opened_without_loading_alembic(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    asyncio.run(_begin(path))
    code = (
        "import sys; from orsay.journal.options import *; from orsay.journal.database import Store\n"
        "store = Store(JournalOptions(journal_url(sys.argv[1]))); store.open(); store.close()\n"
        "assert 'alembic' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, str(path)], capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr.decode()
    assert query(path, "SELECT id FROM sessions") == [(1,)]


async def _begin(path: Path) -> None:
    async with writing(path) as writer:
        await put(writer, opened(1))


# the file


def _config(folder: Path, text: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "orsay.toml").write_text(text)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ORSAY_")}
    return orsay("config", *(arguments or ("--check",)), cwd=folder, env={**kept, **variables})


TABLE = f"""
[journal]
url = "{URL}"
durability = "fsync"
required = true
max_age_days = 30
max_sessions = 1000
max_bytes = 1000000
"""


def test_the_file_has_a_table_for_the_journal(tmp_path: Path) -> None:
    done = _config(tmp_path, TABLE)
    assert done.returncode == 0, done.stderr
    lines = [line.split("#")[0].strip() for line in done.stdout.splitlines()]
    for line in (
        'journal_durability = "fsync"',
        "journal_required = true",
        "journal_max_age_days = 30",
        "journal_max_sessions = 1000",
        "journal_max_bytes = 1000000",
    ):
        assert line in lines
    assert "hunter2" not in done.stdout + done.stderr
    assert 'journal = "postgresql://' in done.stdout
    assert "orsay.toml:3" in next(line for line in done.stdout.splitlines() if line.startswith("journal ="))
    assert "orsay.toml:8" in next(line for line in done.stdout.splitlines() if "max_bytes = 1000000" in line)


def test_the_file_may_name_the_place_alone(tmp_path: Path) -> None:
    done = _config(tmp_path, 'journal = "off"\n')
    assert 'journal = "off"' in done.stdout


def test_variables_win_over_the_table(tmp_path: Path) -> None:
    done = _config(tmp_path, TABLE, ORSAY_JOURNAL="off", ORSAY_JOURNAL_MAX_SESSIONS="7")
    assert 'journal = "off"' in done.stdout
    assert "journal_max_sessions = 7" in done.stdout
    assert "journal_max_bytes = 1000000" in done.stdout


def test_paths_in_the_table_start_from_the_file(tmp_path: Path) -> None:
    done = _config(tmp_path, '[journal]\nurl = "data/journal.db"\n')
    assert f'journal = "{tmp_path}/data/journal.db"' in done.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[journal]\nurll = 'x'\n", "orsay.toml:2: unknown key 'urll' in journal; did you mean 'url'?"),
        ("[journal]\nrequired = 'yes'\n", 'orsay.toml:2: required = "yes": must be true or false'),
        (
            "[journal]\nmax_sessions = 0\n",
            "orsay.toml:2: max_sessions = 0: must be greater than or equal to 1",
        ),
        ("[journal]\ndurability = 'fsinc'\n", "did you mean 'fsync'?"),
        ("[journal]\nurl = 'mysql://me:hunter2@x/y'\n", "orsay.toml:2: url: "),
        ("[journal]\nurl = 'postgresql://me:hunter2@x:y/z'\n", "orsay.toml:2: url: "),
        ("journal = 'oracle://me:hunter2@x/y'\n", "orsay.toml:1: journal: "),
        ("journal = 3\n", "orsay.toml:1: journal: must be a text"),
        ("journal_required = true\n[journal]\nrequired = true\n", "orsay.toml:3: "),
    ],
)
def test_what_is_wrong_is_reported_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    done = _config(tmp_path, text)
    assert done.returncode == 2
    assert message in done.stderr
    assert "hunter2" not in done.stderr + done.stdout


def test_a_variable_that_names_no_journal_is_reported_without_the_password(tmp_path: Path) -> None:
    done = _config(tmp_path, "", ORSAY_JOURNAL="mysql://me:hunter2@x/y")
    assert done.returncode == 2
    assert "variable ORSAY_JOURNAL" in done.stderr
    assert "hunter2" not in done.stderr + done.stdout


def test_the_schema_knows_the_table(tmp_path: Path) -> None:
    import tomllib

    import jsonschema

    schema = json.loads(_config(tmp_path, "", "--schema").stdout)
    check = jsonschema.Draft7Validator(schema)
    check.validate(tomllib.loads(TABLE))
    check.validate({"journal": "off"})
    for wrong in ({"journal": {"urll": "x"}}, {"journal": 3}, {"journal": {"max_sessions": 0}}):
        assert not check.is_valid(wrong)
