"""``orsay data doctor``: what an environment needs, and what of it the configuration lacks."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from ..config import find_file, read
from ..config.entries import DirectoryTable, Entry, UpstreamOptions
from ..config.targets import is_url, read_targets
from ..errors import ConfigError, LoadError
from ..packaging.needs.needs import needs_of
from ..packaging.needs.project import sources_of
from ..plain import one_line
from ..serving.doctor import Finding, additions, examine
from ..serving.resolve import resolve
from ..settings import named_variable
from .terminal import console, echo, echo_error

__all__ = ["add_parser"]

_EXAMPLES = """examples:
  orsay data doctor envs/finqa                      a project folder
  orsay data doctor server.py -c orsay.toml         a file, against the settings of orsay.toml
  orsay data doctor finqa                           the entry [environments.finqa] of ./orsay.toml
  orsay data doctor my_env.env:MyEnv --secret openai_api_key     the trainer sends that secret
  orsay data doctor envs/finqa --json | jq .toml

Sources are read and never imported; no engine and no server is asked. A name that code computes is shown
with * for what only a run knows.

exit status: 0 everything is there, 1 something lacks, 2 the target or the configuration is wrong"""

_STYLES = {"there": "green", "lacks": "bold red", "note": "yellow"}


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser(
        "data",
        help="tell what an environment needs and lacks",
        description="Read an environment's sources, and tell what it needs from its host.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=["doctor"], help="compare needs and configuration")
    parser.add_argument(
        "target", metavar="TARGET", help="a folder, FILE.py, MODULE:CLASS, or a label of the file"
    )
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="the file (that of ORSAY_CONFIG, else ./orsay.toml)"
    )
    parser.add_argument(
        "--secret", action="append", default=[], metavar="NAME", help="trainers send it; may be repeated"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        configuration = read(find_file(args.config), {})
        entries = resolve(configuration.entries, configuration.settings)
        entry, named = _entry(args.target, entries)
        modules = [module for each in named for module in sources_of(each, entry.folders)]
        needs = needs_of(modules, data_path=configuration.settings.sandboxes_data_path)
        found = examine(needs, entry, configuration.settings, secrets=args.secret, variable=named_variable)
    except (ConfigError, LoadError) as exc:
        text = str(exc)
        echo_error("data", text if "\n" not in text else f"\n{text}")
        return 2
    if args.json:
        _print_json(found)
    else:
        _print(found, str(configuration.file or "orsay.toml"))
    return int(any(each.state == "lacks" for each in found))


def _entry(target: str, entries: list[Entry]) -> tuple[Entry, list[str]]:
    """The entry for a target, and what to read. Raises LoadError for what has no sources here."""
    for entry in entries:
        if entry.label == target and not os.path.exists(target):
            if isinstance(entry.table, UpstreamOptions):
                raise LoadError(f"{target} is an image or another server: name the folder of its sources")
            folder = entry.table.directory if isinstance(entry.table, DirectoryTable) else None
            return entry, [folder] if folder else list(entry.targets)
    if is_url(target) or target.startswith("docker:"):
        raise LoadError(f"{target} has no sources here: name the folder of its environment")
    if not os.path.isdir(target):
        for entry in entries:
            if os.path.abspath(target) in map(os.path.abspath, entry.targets):
                return entry, [target]
        return read_targets([target], "process")[0], [target]
    for entry in entries:
        if isinstance(entry.table, DirectoryTable) and os.path.samefile(entry.table.directory, target):
            return entry, [target]
    name = os.path.basename(os.path.abspath(target))
    return Entry(name, DirectoryTable(directory=target)), [target]


def _print_json(found: list[Finding]) -> None:
    needs = [
        {
            "kind": each.need.kind,
            "what": each.need.what,
            "owner": each.need.owner,
            "folder": each.need.folder,
            "places": list(each.need.places),
            "state": each.state,
            "says": each.says,
        }
        for each in found
    ]
    echo(json.dumps({"needs": needs, "toml": additions(found)}, indent=2, ensure_ascii=False))


def _print(found: list[Finding], file: str) -> None:
    if not found:
        echo("It needs nothing but itself.")
        return
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in ("need", "what", "state", "", "where"):
        table.add_column(name, overflow="fold")
    for each in found:
        need = each.need
        what = f"{need.what} ({need.folder})" if need.folder else need.what
        more = f", {len(need.places) - 1} more" if len(need.places) > 1 else ""
        table.add_row(
            need.kind,
            Text(one_line(what)),
            Text(each.state, style=_STYLES[each.state]),
            Text(one_line(each.says)),
            Text(one_line(f"{need.places[0]}{more}"), style="dim"),
        )
    console().print(table)
    if toml := additions(found):
        echo(f"\n# for {file}\n{toml}")
