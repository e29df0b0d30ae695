"""``orsay play``: through a terminal and through pipes, against real servers."""

from __future__ import annotations

import base64
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from guess_env.tasks import hidden_number, make_task

from tests.cli.play_env import PIXEL
from tests.interop.servers import serve
from tests.support.servers import orsay

pytestmark = pytest.mark.process

PLAY = [sys.executable, "-m", "orsay", "play"]
GUESS = "guess_env.env:GuessEnvironment"
PLAYGROUND = f"{Path(__file__).parent / 'play_env.py'}:Playground"
ENVS = os.pathsep.join(
    str(Path(__file__).parents[2] / "envs" / name) for name in ("echo", "guess", "arithmetic")
)
LIMIT_S = 30.0


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server that takes one session at a time: a player who leaves one behind locks the next one out."""
    one = {"PYTHONPATH": ENVS, "ORSAY_MAX_SESSIONS": "1"}
    with serve(GUESS, PLAYGROUND, options=["--workers", "1"], env=one) as server:
        yield server.url


def play(url: str, *typed: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    lines = "".join(f"{line}\n" for line in typed)
    return orsay("play", url, *options, input=lines, timeout=LIMIT_S, env={**os.environ, "COLUMNS": "200"})


def playground(url: str, *typed: str) -> subprocess.CompletedProcess[str]:
    return play(url, *typed, options=("--env", "playground"))


class Terminal:
    """A player at a terminal: reads what is shown, types."""

    def __init__(self, *command: str) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.execve(command[0], command, {**os.environ, "TERM": "dumb", "COLUMNS": "200"})
        self.shown = ""

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def until(self, pattern: str) -> str:
        """What is shown up to a match, from the last one on."""
        end = time.monotonic() + LIMIT_S
        while (found := re.search(pattern, self.shown)) is None:
            ready, _, _ = select.select([self._fd], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"no {pattern!r} within {LIMIT_S:g} s; shown: {self.shown!r}"
            try:
                more = os.read(self._fd, 65536)
            except OSError:  # how a terminal ends on Linux
                more = b""
            assert more, f"ended without {pattern!r}; shown: {self.shown!r}"
            self.shown += more.decode(errors="replace")
        before, self.shown = self.shown[: found.end()], self.shown[found.end() :]
        return before

    def exit_code(self) -> int:
        """Wait for the end."""
        while True:
            try:
                if not os.read(self._fd, 65536):
                    break
            except OSError:
                break
        _, status = os.waitpid(self.pid, 0)
        os.close(self._fd)
        return os.waitstatus_to_exitcode(status)


def test_a_person_at_a_terminal_finds_the_number_by_halving(url: str) -> None:
    terminal = Terminal(*PLAY, url, "--env", "guessenvironment", "--index", "3")
    low, high = map(int, re.findall(r"from (\d+) to (\d+)", terminal.until(r"guesses\."))[0])
    for _ in range(20):
        terminal.until("tool> ")
        terminal.type("guess\n")
        terminal.until(r"\n> ")
        number = (low + high) // 2
        terminal.type(f"{number}\n")
        output = terminal.until("higher|lower|Correct")
        if output.endswith("Correct"):
            break
        low, high = (number + 1, high) if output.endswith("higher") else (low, number - 1)
    terminal.until(r"The episode is over\. Reward in all: 1")
    assert terminal.exit_code() == 0


def test_the_environment_is_asked_for_when_there_are_several(url: str) -> None:
    number = hidden_number(make_task("train", 0))
    done = play(url, "seven", "1", "1", str(number))
    assert done.returncode == 0, done.stderr
    assert "1 guessenvironment" in done.stdout
    assert "type a number from 1 to 2" in done.stdout
    assert "guessenvironment: task 0 of 100,000 in split train" in done.stdout
    assert "reward 1, 1 in all" in done.stdout


def test_messages_show_their_roles_and_images_are_saved(url: str) -> None:
    done = playground(url, "/quit")
    assert done.returncode == 0, done.stderr
    assert "─ system ─" in done.stdout and "─ user ─" in done.stdout
    note = re.search(r"\[image, image/png, (\d+) bytes, saved as (\S+\.png)\]", done.stdout)
    assert note is not None, done.stdout
    assert int(note.group(1)) == len(PIXEL)
    assert Path(note.group(2)).read_bytes() == PIXEL
    assert "You left; the session is closed." in done.stdout


def test_what_an_environment_sends_does_not_steer_the_terminal(url: str) -> None:
    assert "\x1b" not in playground(url).stdout


def test_arguments_are_asked_for_field_by_field_and_checked(url: str) -> None:
    done = playground(
        url,
        "everything",
        *("", '"two\\nlines"'),
        *("", "ten", "12", "7"),
        "2.25",
        *("perhaps", "yes"),
        *("green", "blue"),
        "slow",
        "one, two",
        *("nonsense", '{"x": 4}'),
        "/quit",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for complaint in (
        'text needs a text; type "" for an empty one',
        "count needs a value: whole number, at least 1 and at most 9",
        "count: 'ten' is no whole number, such as 42",
        "count: must be at least 1 and at most 9",
        "sure: type yes or no",
        "colour: choose one of red, blue",
        "point: this is no JSON",
    ):
        assert complaint in done.stdout
    assert "text, text: Any text." in done.stdout
    assert "size, number (default 1.5)" in done.stdout
    assert "mode, one of fast, slow (optional)" in done.stdout
    seen = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("metadata "))[9:])
    assert seen == {
        "text": "two\nlines",
        "count": 7,
        "size": 2.25,
        "sure": True,
        "colour": "blue",
        "mode": "slow",
        "words": ["one", "two"],
        "point": {"x": 4, "y": 0},
    }
    assert "reward 0.5, 0.5 in all" in done.stdout


def test_optional_arguments_left_empty_take_their_defaults(url: str) -> None:
    done = playground(url, "2", "hello", "1", *[""] * 6, "/quit")
    assert (
        '"size": 1.5, "sure": false, "colour": "red", "mode": null, "words": [], "point": null' in done.stdout
    )


def test_a_tool_can_be_left_without_calling_it(url: str) -> None:
    done = playground(url, "everything", "hello", "/back", "/quit")
    assert done.returncode == 0
    assert "taken" not in done.stdout


def test_what_the_server_refuses_is_shown_and_the_episode_goes_on(url: str) -> None:
    done = playground(url, "everything", "t", "1", *[""] * 4, "a,b,c,d", "", "answer", "done")
    assert "refused (input_validation)" in done.stdout
    assert "You said: done" in done.stdout


def test_a_plain_answer_of_several_lines_ends_the_episode(url: str) -> None:
    done = playground(url, "4", '"""', "first", "second", '"""')
    assert done.returncode == 0, done.stderr
    assert re.search(r"You said: first +│\n│ second", done.stdout)
    assert "The episode is over. Reward in all: 1" in done.stdout


def test_a_fault_of_a_tool_is_shown_and_the_episode_goes_on(url: str) -> None:
    done = playground(url, "fail", "answer", "well")
    assert "fault (tool_error): RuntimeError: out of luck" in done.stdout
    assert "You said: well" in done.stdout


def test_a_lost_session_ends_the_game_with_the_reason(url: str) -> None:
    done = playground(url, "crash")
    assert done.returncode == 1
    assert "orsay play: " in done.stderr and "worker" in done.stderr


def test_an_unknown_tool_is_answered_with_the_list(url: str) -> None:
    done = playground(url, "jump", "/prompt", "/quit")
    assert "no tool 'jump' here" in done.stdout
    assert done.stdout.count("Task 0") == 2


def test_the_end_of_input_closes_the_session(url: str) -> None:
    for _ in range(2):
        done = playground(url, "everything", "half")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.endswith("You left; the session is closed.\n")


def wait_until_it_reads(pid: int) -> None:
    """A signal between the prompt and the read that follows would only count after the next line."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        try:
            number = Path(f"/proc/{pid}/syscall").read_text().split()[0]
        except OSError:  # the kernel does not report it
            time.sleep(1)
            return
        if number in ("0", "7", "23", "63", "72", "73", "270"):  # read, poll and select, on x86-64 and Arm
            return
        time.sleep(0.01)
    raise AssertionError("the player never asked for a line")


def test_ctrl_c_closes_the_session(url: str) -> None:
    terminal = Terminal(*PLAY, url, "--env", "playground")
    terminal.until("tool> ")
    wait_until_it_reads(terminal.pid)
    os.kill(terminal.pid, signal.SIGINT)
    terminal.until("the session is closed")
    assert terminal.exit_code() == 130
    assert playground(url, "/quit").returncode == 0


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (("--env", "nobody"), 2, "no environment 'nobody' there; it has: guessenvironment, playground"),
        (("--env", "playground", "--split", "dev"), 2, "no split 'dev' there; it has: train, test"),
        (("--env", "playground", "--index", "9"), 1, "Invalid index"),
    ],
)
def test_what_does_not_exist_is_named(url: str, options: tuple[str, ...], code: int, text: str) -> None:
    done = play(url, options=options)
    assert done.returncode == code
    assert text in done.stderr


def test_another_split_and_index_choose_the_task(url: str) -> None:
    assert "Task 2" in play(url, options=("--env", "playground", "--split", "test")).stdout
    assert "Task 1" in play(url, options=("--env", "playground", "--index", "1")).stdout


def test_a_server_that_is_not_there_is_named() -> None:
    done = play("http://127.0.0.1:1")
    assert done.returncode == 1
    assert "cannot reach http://127.0.0.1:1" in done.stderr


def test_a_url_without_a_scheme_is_a_wrong_command_line() -> None:
    done = play("localhost:8080")
    assert done.returncode == 2
    assert "http://" in done.stderr


def test_a_key_is_asked_for_and_given() -> None:
    options = ["--api-key", "open sesame", "--workers", "1"]
    with serve(PLAYGROUND, options=options) as server:
        refused = play(server.url)
        assert refused.returncode == 1
        assert "--api-key" in refused.stderr
        let_in = play(server.url, "answer", "in", options=("--api-key", "open sesame"))
        assert let_in.returncode == 0, let_in.stderr
        assert base64.b64encode(PIXEL).decode() not in let_in.stdout
