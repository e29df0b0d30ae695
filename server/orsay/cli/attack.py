"""``orsay check URL --attack``: attacks through the tools of an environment, and their report."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orsay.conformance import Target, Unreachable
from orsay.conformance.attacks import (
    ATTACKS,
    Attack,
    Bench,
    Options,
    Result,
    attacks_named,
    run_attacks,
    to_json,
    to_junit,
)
from orsay.conformance.attacks.attack import GROUPS, Status

from ..plain import one_line, safe
from . import terminal

__all__ = ["add_options", "run"]

_STYLES: dict[Status, str] = {
    "passed": "green",
    "warning": "yellow",
    "failed": "bold red",
    "not tried": "dim",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of attacks to those of the verb."""
    options = parser.add_argument_group(
        "attacks on an environment with sandboxes",
        "Tools are found by name and by trying unless named. With --strict, warnings count as failures.",
    )
    options.add_argument(
        "--attack",
        action="store_true",
        help="in place of the suite, do what a cheating model does, and report what succeeds",
    )
    options.add_argument("--tool", metavar="NAME[:PARAMETER]", help="the tool that runs commands")
    options.add_argument("--submit", metavar="NAME", help="the tool that ends the episode")
    options.add_argument("--task", metavar="SPLIT:INDEX", help="the task to play (default: the first)")
    options.add_argument(
        "--attack-resources",
        action="store_true",
        help="use up memory and disk, within bounds, also where no limit is seen inside",
    )


def run(args: argparse.Namespace) -> int:
    """Exit status of the verb."""
    console = terminal.console(stderr="-" in (args.json, args.junit))
    try:
        attacks = attacks_named(args.only)
    except KeyError as exc:
        return _refuse(f"no attack or group is called {exc.args[0]!r}; see orsay check --attack --list")
    if args.list:
        console.print(_listing(attacks))
        return 0
    if args.url is None:
        return _refuse("name the server: orsay check http://127.0.0.1:8080 --attack")
    if args.json == args.junit == "-":
        return _refuse("standard output takes one document: give --json or --junit a file")
    try:
        results, environment, tools = asyncio.run(_results(args, attacks, console))
    except Unreachable as exc:
        return _refuse(str(exc))
    except KeyboardInterrupt:
        return _refuse("interrupted")
    _show(console, args.url, environment, tools, results)
    try:
        for where, document in ((args.json, to_json), (args.junit, to_junit)):
            if where == "-":
                terminal.echo(document(args.url, environment, results), end="")
            elif where:
                Path(where).write_text(document(args.url, environment, results), encoding="utf-8")
    except OSError as exc:
        return _refuse(f"cannot write {exc.filename}: {exc.strerror}")
    bad = {"failed", "warning"} if args.strict else {"failed"}
    return int(any(result.status in bad for result in results))


def _refuse(text: str) -> int:
    terminal.echo_error("check", text)
    return 2


async def _results(
    args: argparse.Namespace, attacks: Sequence[Attack], console: Console
) -> tuple[list[Result], str, str]:
    """Results, name of the environment, and the tools that were used."""
    results: list[Result] = []
    options = Options(args.tool, args.submit, args.task, args.attack_resources)
    async with Target.open(args.url, env=args.env, api_key=args.api_key) as target:
        with console.status("looking for the tools") as status:
            async with Bench.open(target, options) as bench:
                if attacks:
                    status.update(f"attacking 0/{len(attacks)}: {attacks[0].id}")
                async for result in run_attacks(bench, attacks):
                    results.append(result)
                    following = attacks[len(results)].id if len(results) < len(attacks) else ""
                    status.update(f"attacking {len(results)}/{len(attacks)}: {following}")
                return results, target.env, bench.tools


def _show(console: Console, url: str, environment: str, tools: str, results: Sequence[Result]) -> None:
    for group, title in GROUPS.items():
        mine = [result for result in results if result.attack.group == group]
        if mine:
            console.print(_table(title, mine))
    line = Text(one_line(f"{url} {environment} ({tools}): "))
    for position, status in enumerate(get_args(Status)):
        count = sum(result.status == status for result in results)
        line.append(", " if position else "").append(f"{count} {status}", _STYLES[status])
    console.print(line)


def _table(title: str, results: Sequence[Result]) -> Table:
    table = Table(title=title, title_justify="left", expand=False)
    table.add_column("id", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    table.add_column("attack")
    for result in results:
        style = _STYLES[result.status]
        words = Text(result.attack.tried)
        words.append(f"\n{safe(result.happened)}", style)
        if result.status in ("failed", "warning"):
            words.append(f"\nWhy it matters: {result.attack.matters}")
            words.append(f"\nWhat to change: {result.attack.change}")
        table.add_row(result.attack.id, Text(result.status, style), words)
    return table


def _listing(attacks: Sequence[Attack]) -> Table:
    table = Table(title=f"{len(attacks)} of {len(ATTACKS)} attacks", title_justify="left")
    for column in ("id", "group", "attack"):
        table.add_column(column, no_wrap=column == "id")
    for attack in attacks:
        table.add_row(attack.id, attack.group, attack.tried)
    return table
