"""``orsay check URL``: the conformance suite against any ORS server, as a table, JSON or JUnit XML."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orsay.conformance import (
    CHECKS,
    Check,
    Outcome,
    Roles,
    Target,
    Unreachable,
    checks_named,
    run_suite,
    to_json,
    to_junit,
)

from ..plain import one_line, safe
from . import attack, terminal

__all__ = ["add_parser", "asked", "run"]

_EXAMPLES = """\
examples:
  orsay check http://127.0.0.1:8080
  orsay check http://127.0.0.1:8080 --env guess --junit report.xml
  orsay check https://environments.example.org --api-key "$KEY" --json - | jq .counts
  orsay check http://127.0.0.1:8080 --only P-3.1 --only D2
  orsay check http://127.0.0.1:8080 --strict --counting-tool press --echo-tool say
  orsay check http://127.0.0.1:8080 --attack --only grading

Checks open sessions and call tools with inputs made from their schemas: use it on a server
where that does no harm. Orsay must pass both groups of checks, "standard" and "orsay"; for other
servers, failures of the group "orsay" count only with --strict. With --attack, the suite is one
of attacks on an environment with sandboxes, as a cheating model would try them.

exit status: 0 nothing failed, 1 a check failed, 2 no server answered or the command line is wrong
"""

_STYLES = {"passed": "green", "failed": "bold red", "not supported": "yellow"}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the verb; its ``run`` is the default ``run`` of the parsed arguments."""
    parser = subparsers.add_parser(
        "check",
        help="run the conformance suite against an ORS server",
        description="Run the conformance suite against any ORS server, Orsay or not.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("url", nargs="?", metavar="URL", help="the server, such as http://127.0.0.1:8080")
    parser.add_argument("--env", metavar="NAME", help="environment to drive (default: the server's first)")
    parser.add_argument("--api-key", metavar="KEY", help="sent as X-API-Key with every request")
    parser.add_argument(
        "--only", metavar="ID", action="append", default=[], help="run checks whose id starts with this"
    )
    parser.add_argument(
        "--strict", action="store_true", help='on any server, fail also on checks of the group "orsay"'
    )
    roles = parser.add_argument_group(
        "tools for some checks",
        "Found by trying unless named; for a named tool, any loss is a failure.",
    )
    roles.add_argument(
        "--counting-tool",
        metavar="NAME[:STEP]",
        help="a tool whose answer has a number that changes by one, or by STEP, with every call",
    )
    roles.add_argument(
        "--echo-tool", metavar="NAME", help="a tool that returns its only argument, a text, unchanged"
    )
    roles.add_argument(
        "--waiting-tool", metavar="NAME", help="a tool whose argument is the number of seconds it takes"
    )
    attack.add_options(parser)
    parser.add_argument("--json", metavar="FILE", help="write the outcomes as JSON; - for standard output")
    parser.add_argument(
        "--junit", metavar="FILE", help="write the outcomes as JUnit XML; - for standard output"
    )
    parser.add_argument("--list", action="store_true", help="list the checks and exit")
    parser.set_defaults(run=run)
    return parser


def asked(url: str) -> argparse.Namespace:
    """Parsed arguments of ``orsay check URL``, for other verbs that run the suite."""
    return add_parser(argparse.ArgumentParser().add_subparsers()).parse_args([url])


def run(args: argparse.Namespace) -> int:
    """Exit status of the verb."""
    if args.attack:
        return attack.run(args)
    documents = [args.json, args.junit]
    # A document on standard output is for a program: the table goes to standard error.
    console = terminal.console(stderr="-" in documents)
    try:
        checks = checks_named(args.only)
    except KeyError as exc:
        return _refuse(f"no check has an id that starts with {exc.args[0]!r}; see orsay check --list")
    if args.list:
        console.print(_listing(checks))
        return 0
    if args.url is None:
        return _refuse("name the server: orsay check http://127.0.0.1:8080")
    if documents.count("-") > 1:
        return _refuse("standard output takes one document: give --json or --junit a file")
    try:
        outcomes, environment, ours = asyncio.run(_outcomes(args, checks, console))
    except Unreachable as exc:
        return _refuse(str(exc))
    except KeyboardInterrupt:
        return _refuse("interrupted")
    _show(console, args.url, environment, outcomes)
    try:
        _write(args, environment, outcomes)
    except OSError as exc:
        return _refuse(f"cannot write {exc.filename}: {exc.strerror}")
    binding = {"standard", "orsay"} if args.strict or ours else {"standard"}
    return int(any(outcome.status == "failed" and outcome.check.group in binding for outcome in outcomes))


def _refuse(text: str) -> int:
    terminal.echo_error("check", text)
    return 2


async def _outcomes(
    args: argparse.Namespace, checks: Sequence[Check], console: Console
) -> tuple[list[Outcome], str, bool]:
    """Outcomes, name of the environment, and True for an Orsay server."""
    outcomes: list[Outcome] = []
    roles = Roles(counting=args.counting_tool, echo=args.echo_tool, waiting=args.waiting_tool)
    async with Target.open(args.url, env=args.env, api_key=args.api_key, roles=roles) as target:
        with console.status("checking") as status:
            async for outcome in run_suite(target, checks):
                outcomes.append(outcome)
                status.update(f"checking {len(outcomes)}/{len(checks)}: {outcome.check.id}")
        return outcomes, target.env, await target.is_ours()


def _write(args: argparse.Namespace, environment: str, outcomes: Sequence[Outcome]) -> None:
    for where, document in ((args.json, to_json), (args.junit, to_junit)):
        if where == "-":
            terminal.echo(document(args.url, environment, outcomes), end="")
        elif where:
            Path(where).write_text(document(args.url, environment, outcomes), encoding="utf-8")


def _show(console: Console, url: str, environment: str, outcomes: Sequence[Outcome]) -> None:
    for group, title in (("standard", "The standard"), ("orsay", "Promises of Orsay")):
        mine = [outcome for outcome in outcomes if outcome.check.group == group]
        if mine:
            console.print(_table(title, mine))
    line = Text(one_line(f"{url} {environment}: "))
    for position, status in enumerate(("passed", "failed", "not supported")):
        count = sum(outcome.status == status for outcome in outcomes)
        line.append(", " if position else "").append(f"{count} {status}", _STYLES[status])
    console.print(line)


def _table(title: str, outcomes: Sequence[Outcome]) -> Table:
    table = Table(title=title, title_justify="left", expand=False)
    table.add_column("id", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    table.add_column("behaviour")
    for outcome in outcomes:
        words = Text(outcome.check.sentence)
        if outcome.reason:
            words.append(f"\n{safe(outcome.reason)}", _STYLES[outcome.status])
        table.add_row(outcome.check.id, Text(outcome.status, _STYLES[outcome.status]), words)
    return table


def _listing(checks: Sequence[Check]) -> Table:
    table = Table(title=f"{len(checks)} of {len(CHECKS)} checks", title_justify="left")
    for column in ("id", "source", "behaviour"):
        table.add_column(column, no_wrap=column == "id")
    for check in checks:
        table.add_row(check.id, check.source, check.sentence)
    return table
