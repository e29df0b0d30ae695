"""Nothing that a server, an environment, a model, a journal or the name of a file holds steers a terminal."""

from __future__ import annotations

import ast
import io
import json
import logging
import os
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orsay.cli import main, terminal
from orsay.logs import configure, get_logger
from orsay.plain import one_line, safe
from orsay_protocol.evaluation import EvaluatedEpisode, EvaluationReport, EvaluationSummary
from rich.panel import Panel
from rich.table import Table

from tests.attack.hostile_env import STEERING
from tests.interop.servers import serve
from tests.journal.fill import Fill, empty_journal, fill
from tests.support.log_output import restored_logging
from tests.support.terminal import at_terminal

pytestmark = pytest.mark.process

ShownBy: TypeAlias = Callable[..., tuple[int, str]]

LIMIT_S = 60.0
HOSTILE = f"{Path(__file__).parent / 'hostile_env.py'}:Hostile"
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029\ud800-\udfff]")


def clean(shown: str) -> bool:
    """Whether no character steers, in what a program wrote to a pipe."""
    found = FORBIDDEN.search(shown)
    assert found is None, f"{found.group()!r} in {shown[max(0, found.start() - 80) : found.end() + 80]!r}"
    return True


def orsay(*arguments: str, typed: Sequence[str] = ()) -> tuple[int, str]:
    """Exit status, and all that was written, through pipes."""
    done = subprocess.run(
        [sys.executable, "-m", "orsay", *arguments],
        input="".join(f"{line}\n" for line in typed).encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LIMIT_S,
        check=False,
        env={**os.environ, "COLUMNS": "300", "PYTHONIOENCODING": "utf-8"},
    )
    return done.returncode, done.stdout.decode()


@pytest.fixture
def shown_by(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> ShownBy:
    """As ``orsay`` does, in this process, where nobody types."""
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    def run(*arguments: str) -> tuple[int, str]:
        capfd.readouterr()
        code = main(arguments)
        return code, "".join(capfd.readouterr())

    return run


def at_a_terminal(*arguments: str) -> str:
    """All that is written to a terminal that knows nothing but text."""
    command = [sys.executable, "-m", "orsay", *arguments]
    return at_terminal(command, {"TERM": "dumb", "COLUMNS": "200"})[0].decode()


# the function


@given(st.text(st.characters(), max_size=60))
def test_what_steers_is_spelled_out_and_all_else_stays(text: str) -> None:
    shown = safe(text)
    assert clean(shown) and safe(shown) == shown
    expected = (
        f"\\u{ord(each):04x}" if FORBIDDEN.match(each) else each for each in text.replace("\r\n", "\n")
    )
    assert shown == "".join(expected)
    assert "\n" not in one_line(text) and "\t" not in one_line(text) and clean(one_line(text))
    shown.encode()


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=4))
def test_a_document_stays_what_it_is(document: dict[str, str]) -> None:
    text = json.dumps(document, ensure_ascii=False, indent=2)
    assert json.loads(safe(text)) == document
    assert tomllib.loads(safe('a = "\x9b\u202e"')) == {"a": "\x9b\u202e"}


@pytest.mark.parametrize(
    "code",
    [
        *range(0x20),
        *range(0x7F, 0xA0),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
        0x2028,
        0x2029,
        0xD800,
        0xDFFF,
    ],
)
def test_each_character_that_steers_is_shown_as_its_number(code: int) -> None:
    character = chr(code)
    assert one_line(f"a{character}b") == {"\n": r"a\nb", "\t": r"a\tb"}.get(character, f"a\\u{code:04x}b")


@pytest.mark.parametrize(
    "text", ["a\r\nb", "ünï", "日本", "👩‍👩‍👧", "العربية", "\u200f", "line\n\ttab", r"\x1b", "\xa0"]
)
def test_writing_of_people_stays_as_it_is(text: str) -> None:
    assert safe(text) == text.replace("\r\n", "\n")


# the border


def test_no_module_of_the_command_line_prints_but_the_border() -> None:
    """``print``, a console of rich's own, standard output and error."""
    found = []
    for path in sorted(Path(terminal.__file__).parent.glob("*.py")):
        if path.name == "terminal.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id
            if called in ("print", "Console") or (
                isinstance(node, ast.Attribute) and node.attr in ("stdout", "stderr")
            ):
                found.append(f"{path.name}: {ast.unparse(node)}")
    allowed = {"__init__.py: print(f\"orsay {version('orsay')}\")", "journal_commands.py: sys.stdout"}
    assert set(found) <= allowed, found


def test_whatever_rich_lays_out_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    console = terminal.console()
    table = Table(title=STEERING)
    table.add_column(STEERING)
    table.add_row(STEERING)
    for each in (STEERING, table, Panel(table)):
        console.print(each)
    with console.status("working"):
        pass
    shown = capsys.readouterr().out
    assert clean(shown) and "[/red][bold]" in shown and ":smile:" in shown and r"\u009b31m" in shown


# each verb


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve(HOSTILE, options=["--workers", "1"]) as server:
        yield server.url


def test_a_game_is_shown_as_text(url: str) -> None:
    code, shown = orsay("play", url, typed=["look", "x", "fail", "no\x9bsuch", "answer", "over"])
    assert code == 0 and clean(shown)
    for word in ("Prompt", "Argument", "Result", "Fault", "Over", "key", "value"):
        assert f"{word} [/red][bold]\\u001b[2J\\u009b31m\\u009d0;title" in shown.replace("\\\\u", "\\u"), word


def test_a_game_at_a_terminal_gets_no_control_from_the_environment(url: str) -> None:
    shown = at_a_terminal("play", url, "--split", "nosuch\x9b")
    assert "\\u009b31m" in shown and not re.search("[\x80-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]", shown)
    assert "\x1b" not in shown and "\x00" not in shown


def test_an_evaluation_is_shown_as_text(url: str, tmp_path: Path) -> None:
    output = tmp_path / "one.json"
    split = f"train{STEERING}".replace("\x00", "")
    code, shown = orsay("eval", url, "--policy", "random", "--split", split, "--output", str(output))
    assert code in (1, 2) and clean(shown)


@pytest.fixture
def reports(tmp_path: Path) -> tuple[Path, Path]:
    """Two of an evaluation whose every name was made by somebody else."""
    paths = (tmp_path / "a.json", tmp_path / "b.json")
    for path, reward in zip(paths, (0.0, 1.0), strict=True):
        episodes = [
            EvaluatedEpisode(
                task=f"train:{n}{STEERING}",
                split=STEERING,
                index=n,
                attempt=0,
                reward=reward,
                success=reward > 0,
            )
            for n in range(8)
        ]
        summary = EvaluationSummary(n_tasks=8, k=1, episodes=8, planned=8, scored=8)
        report = EvaluationReport(
            name=STEERING, run=STEERING, environment=STEERING, split=STEERING, model=STEERING,
            started_at=1.0, ended_at=2.0, summary=summary, episodes=episodes,
        )  # fmt: skip
        path.write_text(report.model_dump_json())
    return paths


def test_a_comparison_is_shown_as_text(reports: tuple[Path, Path], shown_by: ShownBy) -> None:
    code, shown = shown_by("eval", "--compare", *map(str, reports))
    assert code == 0 and clean(shown) and r"\u009b31m" in shown


def test_a_journal_is_shown_as_text(tmp_path: Path, shown_by: ShownBy) -> None:
    place = tmp_path / "journal.db"
    store = empty_journal(place)
    with store.writing() as connection:
        fill(connection, Fill(sessions=20, environments=(STEERING,), runs=(STEERING,)))
    store.close()
    for options in (("stats",), ("stats", "--json"), ("prune", "--keep", "1", "--dry-run"), ("vacuum",)):
        code, shown = shown_by("journal", *options, "--journal", str(place))
        assert code == 0 and clean(shown), options
    shown = at_a_terminal("journal", "export", "-", "--journal", str(place))
    assert clean(shown.replace("\r\n", "\n"))
    lines = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
    assert lines and {line["environment"] for line in lines} == {STEERING}


def test_an_export_to_a_pipe_is_byte_for_byte(tmp_path: Path) -> None:
    place = tmp_path / "journal.db"
    store = empty_journal(place)
    with store.writing() as connection:
        fill(connection, Fill(sessions=20, environments=("\x9b",)))
    store.close()
    command = [sys.executable, "-m", "orsay", "journal", "export", "-", "--journal", str(place)]
    done = subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=True)
    assert "\x9b".encode() in done.stdout


@contextmanager
def answering(answer: Callable[[str], tuple[int, bytes]]) -> Iterator[str]:
    """A server of somebody else's."""

    class Handler(BaseHTTPRequestHandler):
        def _any(self) -> None:
            status, body = answer(self.path)
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = _any

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("raw", [False, True], ids=["in JSON", "as it is"])
@pytest.mark.parametrize("status", [200, 400, 500])
def test_a_server_of_somebody_else_is_shown_as_text(status: int, raw: bool, shown_by: ShownBy) -> None:
    def answer(path: str) -> tuple[int, bytes]:
        if path == "/list_environments":
            return 200, json.dumps(["one", STEERING, "surrogate \ud800"]).encode()
        if raw:
            return status, STEERING.encode()
        return status, json.dumps({"detail": STEERING, "error": STEERING, "name": "\udc9b"}).encode()

    with answering(answer) as url:
        for command in (
            ("play", url, "--env", "two"),
            ("play", url, "--env", "one"),
            ("play", url),
            ("check", url, "--only", "P-1"),
            ("check", url, "--only", "P-1", "--json", "-"),
            ("check", url, "--only", "P-1", "--junit", "-"),
            ("eval", url, "--policy", "random", "--env", "one"),
        ):
            _, shown = shown_by(*command)
            assert clean(shown) and "Traceback" not in shown, command


def test_what_settings_hold_is_shown_as_text(tmp_path: Path, shown_by: ShownBy) -> None:
    spelled = json.dumps(STEERING)
    for text in (f"server_name = {spelled}\n", f"[environments.a]\n{spelled} = 1\n", "a = '\x9b\u202e'\n"):
        (tmp_path / "orsay.toml").write_text(text)
        code, shown = shown_by("config", str(tmp_path / "orsay.toml"))
        assert clean(shown) and code == (0 if text.startswith("server_name") else 2)
        if code == 0:
            assert tomllib.loads(shown)["server_name"] == STEERING


def test_the_name_of_a_file_is_shown_as_text(shown_by: ShownBy) -> None:
    name = STEERING.replace("/", "").replace("\x00", "")
    for command in (
        ("push", name, "--space", "me/x"),
        ("build", name),
        ("config", name),
        ("serve", "-c", name),
    ):
        code, shown = shown_by(*command)
        assert code == 2 and clean(shown), command


# the log


@pytest.fixture
def _restored() -> Iterator[None]:
    yield from restored_logging()


class Strict(io.TextIOWrapper):
    """A file that takes UTF-8 and nothing else."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", errors="strict", write_through=True)

    def text(self) -> str:
        self.seek(0)
        return self.read()


class Thing:
    def __repr__(self) -> str:
        return STEERING


@pytest.mark.usefixtures("_restored")
@pytest.mark.parametrize("style", ["console", "json"])
def test_what_a_client_sends_forges_no_line_of_the_log(style: str) -> None:
    stream = Strict()
    writer = configure("info", style, stream)  # type: ignore[arg-type]  # one of the two
    log = get_logger("orsay.test")
    hostile = f"{STEERING}\n12:00:00 [info     ] forged"
    log.info(
        "happened",
        text=hostile,
        bare=STEERING.replace(" ", ""),
        listed=[hostile],
        thing=Thing(),
        half="\ud800",
    )
    log.info(hostile, **{hostile: 1})
    logging.getLogger("a.library").warning("said %s", hostile)
    try:
        key = "hunter2"
        raise ValueError(hostile, len(key))
    except ValueError:
        log.exception("failed")
    log.info("after")
    writer.close()
    shown = stream.text()
    assert clean(shown) and "hunter2" not in shown.replace('key = "hunter2"', "") and "after" in shown
    lines = shown.splitlines()
    assert not [line for line in lines if line.startswith("12:00:00 [info     ] forged")]
    if style == "json":
        first = json.loads(lines[0])
        assert len(lines) == 5 and first["text"] == hostile and first["half"] == "\ud800"
    else:
        assert len([line for line in lines if re.match(r"\d\d:\d\d:\d\d ", line)]) == 5
        assert "ValueError" in shown and "Traceback" in shown


def test_the_log_of_a_server_at_a_terminal_shows_no_values_of_variables(tmp_path: Path) -> None:
    """An exception of a server's own: rich's traceback shows locals, such as keys, and texts of clients."""
    with serve(
        HOSTILE, options=["--log-format", "console", "--workers", "1"], env={"ORSAY_ERROR_DETAIL": "id"}
    ) as server:
        code, _ = orsay("play", server.url, typed=["fail", "answer", "x"])
        assert code == 0
    shown = server.everything
    assert "Fault" in shown and clean(shown) and "locals" not in shown
