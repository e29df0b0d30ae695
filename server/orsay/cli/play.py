"""``orsay play``: a person plays one task of any ORS server in the terminal."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable
from typing import Any

from orsay_client import (
    Client,
    ConnectionLost,
    Environment,
    Fault,
    OrsayClientError,
    Retry,
    Session,
    SessionLost,
    ToolRefused,
    Unauthorized,
)
from orsay_protocol import ToolOutput

from ..journal.trials import trial_run
from ..plain import one_line
from .forms import NotAnswered, ask_arguments
from .render import Screen
from .terminal import console, echo_error

__all__ = ["Game", "add_parser", "run"]

_EXAMPLES = """examples:
  orsay play http://127.0.0.1:8080                         the first task of the first split
  orsay play http://127.0.0.1:8080 --split test --index 7  another task
  orsay play http://127.0.0.1:8080 --env guessenvironment  one environment of several

Pick a tool by number or name, then fill in its arguments; Enter takes a default.
A line of \"\"\" begins and ends a text of several lines; /back leaves a tool without calling it.
? shows the tools again, /prompt the task; /quit, Ctrl-D or Ctrl-C leaves and ends the session."""

_QUOTES = '"""'
_RETRY = Retry(tries=3, first_delay_s=0.3)


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "play",
        help="play a task of a server in the terminal",
        description="Play one task of an ORS server, Orsay or not: read the prompt, call tools, see rewards.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("url", metavar="URL", help="URL of the server, such as http://127.0.0.1:8080")
    parser.add_argument("--env", metavar="NAME", help="which environment (asked for when there are several)")
    parser.add_argument("--split", metavar="SPLIT", help="which split (the first)")
    parser.add_argument("--index", metavar="N", type=int, default=0, help="which task of the split (0)")
    parser.add_argument("--api-key", metavar="KEY", help="key for a server that needs one")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit status: 0 (also if the user leaves early), 1 after a failure, 2 for invalid arguments."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # line editing, where the platform has it
    screen = Screen(console())
    try:
        client = Client(args.url, api_key=args.api_key, retry=_RETRY)
    except ValueError as exc:
        return _fail(str(exc), 2)
    with client:
        try:
            return Game(screen, input).play(client, args.env, args.split, args.index)
        except (EOFError, KeyboardInterrupt) as left:
            screen.line()
            screen.line("You left; the session is closed.", "yellow")
            return 130 if isinstance(left, KeyboardInterrupt) else 0
        except Unauthorized as exc:
            return _fail(f"{exc.message}; give the key with --api-key")
        except ConnectionLost as exc:
            return _fail(f"cannot reach {args.url}: {exc.message}; is the server running?")
        except OrsayClientError as exc:
            return _fail(exc.message)


def _fail(text: str, code: int = 1) -> int:
    echo_error("play", text)
    return code


class _Quit(Exception):
    """The user ended the game."""


class Game:
    """One episode between a person and a server. ``read`` asks for a line; it raises EOFError at the end."""

    def __init__(self, screen: Screen, read: Callable[[str], str]) -> None:
        self._screen = screen
        self._read_line = read

    def play(self, client: Client, env: str | None, split: str | None, index: int) -> int:
        """Choose the task, open its session, and play until the end. Raises OrsayClientError."""
        name = self._environment(client.environments(), env)
        if name is None:
            return 2
        environment = client.environment(name)
        split = self._split(environment, split)
        if split is None:
            return 2
        self._screen.line(
            f"{name}: task {index} of {environment.tasks(split).count():,} in split {split}", "bold"
        )
        with environment.session(split=split, index=index, run_labels=trial_run("play")) as session:
            try:
                return self._episode(session)
            except _Quit:
                self._screen.line("You left; the session is closed.", "yellow")
                return 0

    def _environment(self, names: list[str], wanted: str | None) -> str | None:
        if wanted is not None:
            if wanted.lower() in (name.lower() for name in names):
                return wanted
            _fail(f"no environment {wanted!r} there; it has: {', '.join(names)}")
            return None
        if len(names) == 1:
            return names[0]
        for number, name in enumerate(names, 1):
            self._screen.line(f"{number:3} {one_line(name)}")
        while True:
            text = self._read_line("environment [1]> ").strip() or "1"
            if text.isdigit() and 1 <= int(text) <= len(names):
                return names[int(text) - 1]
            if text.lower() in names:
                return text.lower()
            self._screen.line(f"type a number from 1 to {len(names)}, or a name", "yellow")

    def _split(self, environment: Environment, wanted: str | None) -> str | None:
        names = [split.name for split in environment.splits()]
        if wanted is None and names:
            return names[0]
        if wanted in names:
            return wanted
        _fail(f"no split {wanted!r} there; it has: {', '.join(names)}")
        return None

    def _episode(self, session: Session) -> int:
        self._screen.messages(session.messages())
        self._tools(session)
        while True:
            try:
                output = self._turn(session)
            except ToolRefused as refused:
                self._screen.line(f"refused ({refused.reason}): {refused.message}", "yellow")
                continue
            except SessionLost:
                raise
            except Fault as fault:
                self._screen.line(f"fault ({fault.fault_class}): {fault.message}", "red")
                continue
            if output is None:
                continue
            total = sum(session.rewards)
            self._screen.result(output, total)
            if output.finished:
                self._screen.line(f"The episode is over. Reward in all: {total:.4g}", "bold")
                return 0

    def _turn(self, session: Session) -> ToolOutput | None:
        """Ask for a tool and its arguments, and call it; None if the user entered no call."""
        listing = session.listing()
        tools, terminal = listing.tools, listing.terminal_tool
        text = self._read_line("tool> ").strip()
        if text in ("/quit", "/q"):
            raise _Quit
        if text == "/prompt":
            self._screen.messages(session.messages())
            return None
        names = [tool.name for tool in tools]
        if text.isdigit() and 1 <= int(text) <= len(names):
            text = names[int(text) - 1]
        if text in names:
            schema = tools[names.index(text)].input_schema
            try:
                arguments = ask_arguments(schema, self._read, self._screen.question)
            except NotAnswered:
                return None
            return session.call(text, arguments)
        if terminal is not None and text in (str(len(names) + 1), terminal.name, "answer"):
            if terminal.arg is None:
                return session.call_terminal()
            self._screen.question("question", "your answer")
            answer = self._read()
            return None if answer.strip() == "/back" else session.call_terminal(answer)
        if text not in ("", "?"):
            self._screen.line(f"no tool {text!r} here; type a number or a name of these:", "yellow")
        self._tools(session)
        return None

    def _tools(self, session: Session) -> None:
        listing = session.listing()
        self._screen.tools(listing.tools, listing.terminal_tool)

    def _read(self) -> str:
        """A line, or several between two lines of three quotes."""
        line = self._read_line("> ")
        if line.strip() != _QUOTES:
            return line
        lines: list[str] = []
        while (line := self._read_line("… ")).strip() != _QUOTES:
            lines.append(line)
        return "\n".join(lines)
