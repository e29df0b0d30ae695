"""``orsay config``: the effective configuration, the schema of the file, an example."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..config import Configuration, find_file, read, unread_variables
from ..config.report import report
from ..config.schema import schema
from ..errors import ConfigError
from ..serving.plan import CodeSpec, plan
from ..serving.resolve import resolve
from .terminal import echo, echo_error

__all__ = ["add_parser"]

_EXAMPLES = """examples:
  orsay config --check                       the effective settings of ./orsay.toml, variables and defaults
  orsay config --check servers/big.toml      the same for that file; exit code 2 when something is wrong
  orsay config --example > orsay.toml        a file to start from
  orsay config --schema > orsay.schema.json  for completion and checks in an editor

--check starts nothing: it imports no class, and contacts no server and no registry."""


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser(
        "config",
        help="check orsay.toml, or write one",
        description="Check a configuration: the file, variables and defaults.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "file",
        nargs="?",
        type=Path,
        metavar="FILE",
        help="the file (that of ORSAY_CONFIG, else ./orsay.toml)",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--check", action="store_true", help="print the effective settings and environments (the default)"
    )
    what.add_argument("--schema", action="store_true", help="print the JSON schema of the file")
    what.add_argument("--example", action="store_true", help="print an example of the file")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.schema:
        echo(json.dumps(schema(), indent=2))
    elif args.example:
        echo((files("orsay") / "templates" / "orsay.toml").read_text(encoding="utf-8"), end="")
    else:
        return _check(args.file)
    return 0


def _check(named: Path | None) -> int:
    try:
        found = read(find_file(named), {})
        entries = resolve(found.entries, found.settings, look_for_code=True)
        configuration = replace(found, entries=tuple(entries))
        echo(report(configuration, _notes(configuration)), end="")
        for name, hint in unread_variables().items():
            echo(f"# {name} is set, but no setting reads it{hint}")
    except ConfigError as exc:
        echo_error("config", f"\n{exc}")
        return 2
    return 0


def _notes(configuration: Configuration) -> dict[str, str]:
    """Notes on entries that share worker processes, or see a folder of data."""
    entries = configuration.entries
    notes = {}
    for spec in plan(entries, configuration.settings, ""):
        if isinstance(spec, CodeSpec) and spec.data.folder:
            notes[spec.labels[0]] = f"{spec.data.folder} at {spec.data_path}"
        elif isinstance(spec, CodeSpec) and len(spec.labels) > 1:
            for label in spec.labels:
                others = ", ".join(each for each in spec.labels if each != label)
                notes[label] = f"shares workers with {others}"
    return notes
