"""``orsay journal``: statistics, export and clean-up of recorded sessions."""

from __future__ import annotations

import argparse
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..config import find_file, read
from ..errors import ConfigError, JournalDown
from ..journal.options import JournalOptions, journal_url, options_from
from ..settings import Settings
from .terminal import console, echo, echo_error

__all__ = ["add_parser"]

_EXAMPLES = """examples:
  orsay journal stats                                     the contents and size of .orsay/journal.db
  orsay journal stats --journal postgresql://orsay@db/journal --json
  orsay journal export wins.jsonl --env guess --reward-min 1 --since 7d
  orsay journal export wins.parquet --run grpo-3 --finished
  orsay journal export wins/ --run grpo-3                 a folder for datasets.load_from_disk
  orsay journal export logged.jsonl --kind rollouts       rollouts that clients of openreward logged
  orsay journal export - --full --text "stack trace" | jq .
  orsay journal prune --older-than 30d --dry-run          what would be removed
  orsay journal prune --max-size 5GiB
  orsay journal vacuum                                    return free space to the disk

The journal is that of ORSAY_JOURNAL, of orsay.toml, else .orsay/journal.db here; --journal names another.
A running server is not disturbed.

exit status: 0 done, 1 the journal cannot be read or written now, 2 the command line or a setting is wrong"""

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_UNITS_BYTES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_OPTIONS = {
    "stats": "json",
    "export": "env run split task step owner reward-min reward-max since until text finished faults living"
    " trials kind format full no-images arguments force",
    "prune": "older-than keep max-size dry-run",
    "vacuum": "rewrite",
}


class _Wrong(Exception):
    """Contradictory or invalid arguments; exit code 2."""


def add_parser(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "journal",
        help="count, export and prune recorded sessions",
        description="Inspect the journal of a server, export episodes, remove old sessions.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "what", choices=["stats", "export", "prune", "vacuum"], help="the action; see the examples"
    )
    parser.add_argument(
        "output",
        nargs="?",
        metavar="FILE",
        help="export: FILE.jsonl, FILE.parquet, FOLDER/, or - for standard output",
    )
    parser.add_argument(
        "--journal", metavar="LOCATION", help="a path, or postgresql://… (the server's setting)"
    )
    parser.add_argument("--json", action="store_true", help="stats: print JSON")
    _add_filters(parser.add_argument_group("export: filters"))
    _add_form(parser.add_argument_group("export: format"))
    _add_bounds(parser.add_argument_group("prune, vacuum"))
    parser.set_defaults(run=run)


def _add_filters(group: Any) -> None:
    group.add_argument("--env", metavar="NAME", help="only this environment")
    group.add_argument("--run", metavar="NAME", dest="run_name", help="only this run")
    group.add_argument("--split", metavar="SPLIT", help="only this split")
    group.add_argument("--task", metavar="TASK", help="only this task, such as train:17")
    group.add_argument("--step", type=int, metavar="N", help="only this training step")
    group.add_argument(
        "--owner", metavar="OWNER", help="only sessions of this API key, by its name in the journal"
    )
    group.add_argument("--reward-min", type=float, metavar="R", help="only a last reward of at least R")
    group.add_argument("--reward-max", type=float, metavar="R", help="only a last reward of at most R")
    group.add_argument(
        "--since", metavar="WHEN", help="only sessions started since: 7d, 12h, 2026-05-01, 2026-05-01T18:00"
    )
    group.add_argument("--until", metavar="WHEN", help="only sessions started before")
    group.add_argument("--text", metavar="WORDS", help="only sessions that contain these words")
    group.add_argument(
        "--finished", action="store_true", help="only sessions that their environment finished"
    )
    group.add_argument("--faults", action="store_true", help="also episodes lost to a fault")
    group.add_argument("--living", action="store_true", help="also open sessions")
    group.add_argument(
        "--trials", action="store_true", help="also sessions of orsay check, orsay play and the playground"
    )


def _add_form(group: Any) -> None:
    group.add_argument(
        "--kind",
        choices=["sessions", "rollouts"],
        default="sessions",
        help="sessions of this server (default), or rollouts that clients logged",
    )
    group.add_argument("--format", choices=["jsonl", "parquet", "dataset"], help="(by the name of FILE)")
    group.add_argument("--full", action="store_true", help="whole trajectories instead of conversations")
    group.add_argument("--no-images", action="store_true", help="name images in the text instead")
    group.add_argument(
        "--arguments",
        choices=["object", "string"],
        default="object",
        help="arguments of a call: an object for chat templates (default), a string as in OpenAI's API",
    )
    group.add_argument("--force", action="store_true", help="overwrite FILE")


def _add_bounds(group: Any) -> None:
    group.add_argument("--older-than", metavar="AGE", help="remove sessions that ended longer ago: 30d, 12h")
    group.add_argument("--keep", type=int, metavar="N", help="remove the oldest until N sessions are left")
    group.add_argument("--max-size", metavar="SIZE", help="remove the oldest down to this size: 500MB, 5GiB")
    group.add_argument("--dry-run", action="store_true", help="only print what would be removed")
    group.add_argument(
        "--rewrite", action="store_true", help="vacuum: rewrite the whole file, while no server uses it"
    )


def run(args: argparse.Namespace) -> int:
    """Exit status of the verb."""
    try:
        _check_options(args)
        return {"stats": _stats, "export": _export, "prune": _prune, "vacuum": _vacuum}[args.what](args)
    except (_Wrong, ConfigError) as exc:
        return _failed(str(exc), 2)
    except (JournalDown, ImportError, OSError) as exc:
        return _failed(str(exc), 1)


def _check_options(args: argparse.Namespace) -> None:
    """Refuse options that do not apply: an ignored filter could remove more than intended."""
    if args.what != "export" and args.output is not None:
        raise _Wrong(f"{args.what} takes no FILE; name a journal with --journal {args.output}")
    for what, names in _OPTIONS.items():
        for option in names.split():
            name = {"run": "run_name"}.get(option, option).replace("-", "_")
            if what != args.what and getattr(args, name) not in (None, False, "object", "sessions"):
                raise _Wrong(f"--{option} is for {what}, not for {args.what}")


def _options(args: argparse.Namespace) -> JournalOptions:
    """Options of the selected journal. Raises ConfigError."""
    if args.journal is not None:
        return JournalOptions(journal_url(args.journal))
    found = options_from(_settings())
    if found is None:
        raise ConfigError("the setting journal is off: name a journal with --journal")
    return found


def _settings() -> Settings:
    # Nothing is served here, so a container's missing API key does not matter.
    return read(find_file(None), {"allow_anonymous": True}).settings


# the four


def _stats(args: argparse.Namespace) -> int:
    from ..journal.export import existing
    from ..journal.read.counts import tally
    from .journal_commands import show_tally

    with existing(_options(args)) as store:
        found = tally(store)
    if args.json:
        echo(found.model_dump_json(indent=2))
    else:
        show_tally(console(), found)
    return 0


def _export(args: argparse.Namespace) -> int:
    from ..journal.export import Export, Recipe
    from ..journal.read.filters import Filter
    from .journal_commands import export_to

    if args.output is None:
        raise _Wrong("name a FILE to export to: FILE.jsonl, FILE.parquet, FOLDER/, or - for standard output")
    if args.kind == "rollouts":
        return _export_rollouts(args)
    now = time.time()
    wanted = Filter(
        environment=args.env,
        run=args.run_name,
        split=args.split,
        task=args.task,
        step=args.step,
        owner=args.owner,
        reward_min=args.reward_min,
        reward_max=args.reward_max,
        since=_moment(args.since, now, "--since"),
        until=_moment(args.until, now, "--until"),
        text=args.text,
        finished=True if args.finished else None,
        trials=args.trials,
    )
    kind = _format(args)
    if kind != "jsonl" and args.full:
        raise _Wrong(f"--full is for JSON lines, not for {kind}: name FILE.jsonl")
    recipe = Recipe(
        wanted=wanted,
        lost=args.faults,
        living=args.living,
        full=args.full,
        images=not args.no_images,
        arguments=args.arguments,
    )
    _check_output(args)
    export_to(_options(args), Export(recipe), args.output, kind, console(stderr=True))
    return 0


def _export_rollouts(args: argparse.Namespace) -> int:
    from ..journal.read.rollouts import RolloutFilter
    from ..journal.rollout_export import RolloutExport, RolloutRecipe
    from .journal_commands import export_rollouts_to

    for name in ("task", "text", "faults", "living", "trials", "no_images"):
        if getattr(args, name) not in (None, False):
            raise _Wrong(f"--{name.replace('_', '-')} is for sessions, not for rollouts")
    if _format(args) != "jsonl":
        raise _Wrong("rollouts are exported as JSON lines: name FILE.jsonl")
    now = time.time()
    wanted = RolloutFilter(
        environment=args.env,
        run=args.run_name,
        split=args.split,
        step=args.step,
        owner=args.owner,
        since=_moment(args.since, now, "--since"),
        until=_moment(args.until, now, "--until"),
    )
    recipe = RolloutRecipe(
        wanted=wanted,
        reward_min=args.reward_min,
        reward_max=args.reward_max,
        finished=args.finished,
        full=args.full,
        arguments=args.arguments,
    )
    _check_output(args)
    export_rollouts_to(_options(args), RolloutExport(recipe), args.output, console(stderr=True))
    return 0


def _check_output(args: argparse.Namespace) -> None:
    if args.output != "-" and Path(args.output).exists() and not args.force:
        raise _Wrong(f"{args.output} exists already: name another file, or overwrite it with --force")


def _format(args: argparse.Namespace) -> str:
    if args.format is not None:
        if args.output == "-" and args.format != "jsonl":
            raise _Wrong(f"{args.format} cannot go to standard output: name a file")
        return str(args.format)
    suffix = Path(args.output).suffix
    if args.output == "-" or suffix in (".jsonl", ".json", ".ndjson"):
        return "jsonl"
    if suffix == ".parquet":
        return "parquet"
    if not suffix or args.output.endswith("/"):
        return "dataset"
    raise _Wrong(f"what to write into {args.output}? Say --format jsonl, parquet or dataset")


def _prune(args: argparse.Namespace) -> int:
    from .journal_commands import prune

    options = _options(args)
    days = None if args.older_than is None else _seconds(args.older_than, "--older-than") / 86_400
    size = None if args.max_size is None else _bytes(args.max_size)
    if args.keep is not None and args.keep < 0:
        raise _Wrong(f"--keep {args.keep}: there cannot be fewer than 0 sessions")
    if (days, args.keep, size) != (None, None, None):
        options = JournalOptions(options.url, max_age_days=days, max_sessions=args.keep, max_bytes=size)
    elif (options.max_age_days, options.max_sessions, options.max_bytes) == (None, None, None):
        raise _Wrong("give a bound: --older-than 30d, --keep 10000 or --max-size 5GiB")
    return prune(options, console(), dry_run=args.dry_run)


def _vacuum(args: argparse.Namespace) -> int:
    from .journal_commands import vacuum

    return vacuum(_options(args), console(), rewrite=args.rewrite)


# input of a person


def _moment(text: str | None, now: float, option: str) -> float | None:
    if text is None:
        return None
    if re.fullmatch(r"\d+(\.\d+)?[smhdw]", text):
        return now - _seconds(text, option)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        hint = "write 7d or 12h for a time before now, or a date such as 2026-05-01"
        raise _Wrong(f"{option} {text}: {hint}") from None
    return (found if found.tzinfo else found.astimezone()).astimezone(UTC).timestamp()


def _seconds(text: str, option: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text)
    if match is None:
        raise _Wrong(f"{option} {text}: write a number with s, m, h, d or w, such as 30d")
    return float(match[1]) * _UNITS_S[match[2]]


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]i?|)b?", text.lower())
    if match is None:
        raise _Wrong(f"--max-size {text}: write bytes with a unit, such as 500MB or 5GiB")
    return round(float(match[1]) * _UNITS_BYTES[match[2]])


def _failed(text: str, status: int) -> int:
    echo_error("journal", text)
    return status
