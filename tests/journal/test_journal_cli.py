"""``orsay journal`` as a person runs it, on files, on PostgreSQL, and beside a server that plays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from orsay.cli import main
from orsay.journal.database import Store
from orsay.journal.read.query import Filter, count, trajectories
from orsay.journal.search.index import search_file
from orsay_client import Client

from tests.interop.servers import serve
from tests.journal.fill import Fill, Filled
from tests.journal.journals import filled_journal
from tests.journal.postgres import PASSWORD

pytestmark = pytest.mark.process

FILL = Fill(sessions=300, faults=0.1, given_up=0.1, open=4, start=time.time() - 86_400)
Journal = tuple[Store, Filled]


@pytest.fixture
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    with filled_journal(request, "sqlite", tmp_path, FILL) as found:
        yield found


@dataclass(frozen=True)
class Done:
    """What a command came to."""

    returncode: int
    stdout: str
    stderr: str


def in_process(folder: Path, *arguments: str, **variables: str) -> Done:
    """The command in a process of its own."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("ORSAY_")}
    found = subprocess.run(
        [sys.executable, "-m", "orsay", "journal", *arguments],
        cwd=folder,
        env={**env, "COLUMNS": "120", **variables},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return Done(found.returncode, found.stdout, found.stderr)


class Cli:
    """The command in this process, which is quicker."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def run(self, folder: Path, *arguments: str, **variables: str) -> Done:
        self._capsys.readouterr()
        with self._monkeypatch.context() as patch:
            patch.chdir(folder)
            for name in [name for name in os.environ if name.startswith("ORSAY_")]:
                patch.delenv(name)
            for name, value in {"COLUMNS": "120", **variables}.items():
                patch.setenv(name, value)
            code = main(["journal", *arguments])
        return Done(code, *self._capsys.readouterr())

    def __call__(self, folder: Path, *arguments: str, **variables: str) -> Done:
        found = self.run(folder, *arguments, **variables)
        assert found.returncode == 0, found.stderr
        return found


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(monkeypatch, capsys)


def sessions_in(store: Store) -> int:
    with store.reading() as connection:
        return count(connection)


def test_stats_show_what_there_is(journal: Journal, tmp_path: Path, done: Cli) -> None:
    shown = done(tmp_path, "stats", "--journal", "journal.db").stdout
    assert "300 sessions, 4 of them without an end" in shown
    for word in ("guess", "doors", "arithmetic", "alpha", "beta/2 ü", "faults: "):
        assert word in shown
    stats = json.loads(done(tmp_path, "stats", "--journal", "journal.db", "--json").stdout)
    rows = journal[1].rows
    assert (stats["sessions"], stats["unended"]) == (300, 4)
    assert {each["environment"]: each["sessions"] for each in stats["environments"]} == {
        name: sum(row["environment"] == name for row in rows) for name in ("guess", "doors", "arithmetic")
    }
    assert sum(stats["faults"].values()) == sum(row["fault"] is not None for row in rows)
    assert stats["size_bytes"] > 100_000


def test_the_journal_is_the_servers(journal: Journal, tmp_path: Path, done: Cli) -> None:
    place = str(journal[0].options.path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert "300 sessions" in done(elsewhere, "stats", ORSAY_JOURNAL=place).stdout
    (elsewhere / "orsay.toml").write_text(f"[journal]\nurl = '{place}'\n")
    assert "300 sessions" in done(elsewhere, "stats").stdout
    assert [each.name for each in elsewhere.iterdir()] == ["orsay.toml"]


def test_lines_hold_the_episodes_that_were_asked_for(journal: Journal, tmp_path: Path, done: Cli) -> None:
    output = done(
        tmp_path, "export", "wins.jsonl", "--journal", "journal.db", "--env", "doors", "--reward-min", "1"
    )
    lines = (tmp_path / "wins.jsonl").read_text().splitlines()
    with journal[0].reading() as connection:
        expected = count(connection, Filter(environment="doors", reward_min=1.0))
    assert len(lines) == expected > 10
    assert f"Exported {expected} episodes" in output.stderr
    assert output.stdout == ""
    for line in lines:
        record = json.loads(line)
        assert (record["environment"], record["reward"]) == ("doors", 1.0)
        assert record["messages"] and record["tools"]
    assert not (tmp_path / "wins.jsonl.part").exists()


def test_a_dash_writes_lines_and_nothing_else_to_standard_output(
    journal: Journal, tmp_path: Path, done: Cli
) -> None:
    shown = in_process(
        tmp_path, "export", "-", "--journal", "journal.db", "--full", "--faults", "--living"
    ).stdout
    records = [json.loads(line) for line in shown.splitlines()]
    assert [record["id"] for record in records] == [str(id) for id in reversed(journal[1].ids)]
    assert all("steps" in record for record in records)


def test_parquet_and_folders_are_read_as_they_were_written(
    journal: Journal, tmp_path: Path, done: Cli
) -> None:
    import datasets
    from pyarrow import parquet

    options = "--journal", "journal.db", "--run", "alpha", "--no-images"
    done(tmp_path, "export", "alpha.jsonl", *options)
    done(tmp_path, "export", "alpha.parquet", *options)
    done(tmp_path, "export", "alpha", *options)
    expected = [json.loads(line) for line in (tmp_path / "alpha.jsonl").read_text().splitlines()]
    cache = str(tmp_path / "cache")
    assert list(datasets.Dataset.from_parquet(str(tmp_path / "alpha.parquet"), cache_dir=cache)) == expected
    assert list(datasets.load_from_disk(str(tmp_path / "alpha"))) == expected
    table = parquet.read_table(tmp_path / "alpha.parquet", columns=["id", "reward"])
    assert table.to_pylist() == [{"id": each["id"], "reward": each["reward"]} for each in expected]


def test_a_file_that_is_there_is_kept_unless_one_insists(journal: Journal, tmp_path: Path, done: Cli) -> None:
    (tmp_path / "wins.jsonl").write_text("mine")
    refused = done.run(tmp_path, "export", "wins.jsonl", "--journal", "journal.db")
    assert refused.returncode == 2
    assert "overwrite it with --force" in refused.stderr
    assert (tmp_path / "wins.jsonl").read_text() == "mine"
    done(tmp_path, "export", "wins.jsonl", "--journal", "journal.db", "--force")
    assert len((tmp_path / "wins.jsonl").read_text().splitlines()) > 100


def test_prune_removes_the_oldest_and_says_so_first(journal: Journal, tmp_path: Path, done: Cli) -> None:
    store, made = journal
    output = done(tmp_path, "prune", "--journal", "journal.db", "--keep", "50", "--dry-run").stdout
    assert "Would remove 250 sessions" in output
    assert sessions_in(store) == 300
    output = done(tmp_path, "prune", "--journal", "journal.db", "--keep", "50").stdout
    assert "Removed 250 sessions" in output
    with store.reading() as connection:
        left = [int(each.id) for each in trajectories(connection, limit=300).items]
    assert left == made.ids[:-51:-1]


def test_prune_by_age_and_by_the_settings(journal: Journal, tmp_path: Path, done: Cli) -> None:
    store, _ = journal
    # all that ended did so more than a second ago; what has not may still be played
    done(tmp_path, "prune", ORSAY_JOURNAL="journal.db", ORSAY_JOURNAL_MAX_SESSIONS="200")
    assert sessions_in(store) == 200
    done(tmp_path, "prune", "--journal", "journal.db", "--older-than", "1s")
    assert sessions_in(store) == 4


def test_vacuum_gives_room_back_and_forgets_the_index(journal: Journal, tmp_path: Path, done: Cli) -> None:
    store, _ = journal
    path = store.options.path
    assert path is not None
    done(tmp_path, "export", "-", "--journal", "journal.db", "--text", "karma")  # makes the index
    assert search_file(path).exists()
    done(tmp_path, "prune", "--journal", "journal.db", "--keep", "4")
    for more in ((), ("--rewrite",)):
        before = path.stat().st_size
        output = done(tmp_path, "vacuum", "--journal", "journal.db", *more).stdout
        assert "before" in output
        assert path.stat().st_size < before
    assert not search_file(path).exists()
    assert sessions_in(store) == 4


@pytest.mark.database
def test_a_journal_in_postgresql(request: pytest.FixtureRequest, tmp_path: Path, done: Cli) -> None:
    with filled_journal(request, "postgresql", tmp_path, FILL) as (store, _):
        url = store.options.url.render_as_string(hide_password=False)
        shown = done(tmp_path, "stats", ORSAY_JOURNAL=url)
        assert "300 sessions" in shown.stdout
        assert PASSWORD not in shown.stdout + shown.stderr
        text = done(tmp_path, "export", "-", "--text", '"karma ocean"', ORSAY_JOURNAL=url).stdout
        assert text and all("karma ocean" in line for line in text.splitlines())
        assert "Removed 100" in done(tmp_path, "prune", "--keep", "200", ORSAY_JOURNAL=url).stdout
        done(tmp_path, "vacuum", ORSAY_JOURNAL=url)
        done(tmp_path, "vacuum", "--rewrite", ORSAY_JOURNAL=url)
        assert sessions_in(store) == 200


WRONG = [
    (["export"], "name a FILE"),
    (["export", "wins.doc"], "--format jsonl, parquet or dataset"),
    (["export", "wins.parquet", "--full"], "--full is for JSON lines"),
    (["export", "-", "--format", "parquet"], "cannot go to standard output"),
    (["export", "-", "--since", "yesterday"], "--since yesterday: write 7d"),
    (["stats", "wins.jsonl"], "stats takes no FILE"),
    (["prune", "--env", "doors", "--keep", "3"], "--env is for export, not for prune"),
    (["prune", "--run", "alpha", "--keep", "3"], "--run is for export, not for prune"),
    (["prune", "--keep", "-1"], "--keep -1"),
    (["prune", "--older-than", "soon"], "--older-than soon"),
    (["prune", "--max-size", "large"], "--max-size large"),
    (["prune"], "give a bound"),
    (["stats", "--keep", "3"], "--keep is for prune, not for stats"),
    (["stats", "--journal", "mysql://db/journal"], "no kind of journal"),
    (["stats", "--journal", "nowhere.db"], "there is no journal at"),
]


@pytest.mark.parametrize(("arguments", "output"), WRONG, ids=[" ".join(arguments) for arguments, _ in WRONG])
def test_what_cannot_be_meant_is_refused_with_what_to_do(
    journal: Journal, tmp_path: Path, done: Cli, arguments: list[str], output: str
) -> None:
    named = [] if "--journal" in arguments else ["--journal", "journal.db"]
    found = done.run(tmp_path, *arguments, *named)
    assert found.returncode == 2
    assert output in found.stderr
    assert sessions_in(journal[0]) == 300


def test_a_container_whose_server_is_open_to_anyone_shows_its_journal(
    journal: Journal, tmp_path: Path, done: Cli
) -> None:
    shown = done(tmp_path, "stats", ORSAY_JOURNAL="journal.db", ORSAY_HOST="0.0.0.0").stdout
    assert "300 sessions" in shown


def test_a_journal_that_is_off_has_nothing_to_show(tmp_path: Path, done: Cli) -> None:
    found = done.run(tmp_path, "stats", ORSAY_JOURNAL="off")
    assert found.returncode == 2
    assert "the setting journal is off" in found.stderr


def test_a_file_that_is_no_journal_is_left_alone(tmp_path: Path, done: Cli) -> None:
    (tmp_path / "notes.db").write_text("my notes " * 1000)
    found = done.run(tmp_path, "stats", "--journal", "notes.db")
    assert found.returncode == 1
    assert "damaged" in found.stderr
    assert (tmp_path / "notes.db").read_text() == "my notes " * 1000


def test_what_a_server_plays_can_be_exported_while_it_plays(tmp_path: Path, done: Cli) -> None:
    place = str(tmp_path / "journal.db")
    labels: dict[str, str | int | float | bool | None] = {"run": "by hand", "step": 3}
    options = ["--workers", "1"]
    with (
        serve("guess_env.env:GuessEnvironment", options=options, env={"ORSAY_JOURNAL": place}) as server,
        Client(server.url) as client,
    ):
        environment = client.environment("guessenvironment")
        with environment.session(split="train", index=0, run_labels=labels) as session:
            prompt = session.prompt()
            tool = session.tools()[0].name
            session.call(tool, {"number": 50})
        lines = done(tmp_path, "export", "-", "--run", "by hand", "--living", ORSAY_JOURNAL=place).stdout
        shown = done(tmp_path, "stats", ORSAY_JOURNAL=place).stdout
    (record,) = [json.loads(line) for line in lines.splitlines()]
    assert (record["step"], record["task"], record["calls"]) == (3, "train:0", 1)
    assert record["messages"][0]["content"] == getattr(prompt[0], "text", None)
    assert record["messages"][1]["tool_calls"][0]["function"] == {"name": tool, "arguments": {"number": 50}}
    assert record["messages"][2]["role"] == "tool"
    assert record["tools"][0]["function"]["name"] == tool
    assert "by hand" in shown
