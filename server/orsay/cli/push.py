"""``orsay push``: publish an environment project as a Hugging Face Space, or write its folder."""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.status import Status
from rich.text import Text

from ..errors import ConfigError, LoadError, SpaceError
from ..packaging import project
from ..settings import named_variable
from ..spaces import folder
from ..spaces.hub import Hub
from ..spaces.name import SpaceName
from ..spaces.push import Wishes, prepare, upload
from ..spaces.waiting import Pace, wait
from .packed import left_out_lines, sent_lines
from .terminal import console, echo, echo_error

__all__ = ["add_parser"]

_EXAMPLES = """examples:
  orsay push my_env --space me/my-env                      make the Space, or push a new state of it
  orsay push my_env --space me/my-env --dry-run space      write the same files to ./space, without network
  orsay push my_env --space me/my-env --secret JUDGE_KEY   with the variable JUDGE_KEY as a secret
  ORSAY_API_KEYS='["a-long-key"]' orsay push my_env --space me/my-env --secret ORSAY_API_KEYS

Log in first: `hf auth login`, or a token in the variable HF_TOKEN. Needs: pip install 'orsay[hub]'

exit status: 0 the Space runs (or has its files, with --no-wait), 1 the hub refused or the Space failed,
2 the folder or the command line is wrong"""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEYS = "ORSAY_API_KEYS"


class _Wrong(Exception):
    """Contradictory or invalid arguments; exit code 2."""


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser(
        "push",
        help="put an environment into a Hugging Face Space",
        description="Put an environment project into a Docker Space of Hugging Face, and wait until it runs.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="ENV_DIR", help="folder of the project")
    parser.add_argument(
        "--space", required=True, metavar="OWNER/NAME", help="name of the Space; created if missing"
    )
    parser.add_argument("--private", action="store_true", help="make a new Space private")
    parser.add_argument(
        "--secret",
        action="append",
        default=[],
        dest="secrets",
        metavar="NAME",
        help="give the Space the variable NAME as a secret; NAME=VALUE shows it on the process list",
    )
    parser.add_argument(
        "--variable",
        action="append",
        default=[],
        dest="variables",
        metavar="NAME=VALUE",
        help="set a variable of the Space; may be repeated",
    )
    parser.add_argument("--hardware", metavar="NAME", help="such as cpu-upgrade (the hub's free cpu-basic)")
    parser.add_argument(
        "--token", metavar="TOKEN", help="token of the hub (HF_TOKEN, or the login of this machine)"
    )
    parser.add_argument("--base", metavar="IMAGE", help="build on this image (that of the Dockerfile)")
    parser.add_argument(
        "--orsay",
        metavar="WHAT",
        help="install this orsay: a requirement, or a wheel (the one that runs here)",
    )
    parser.add_argument(
        "--message", default="Push the environment", metavar="TEXT", help="message of the commit"
    )
    parser.add_argument("--no-wait", action="store_true", help="do not wait for the Space to run")
    parser.add_argument(
        "--time-limit",
        type=float,
        default=1800.0,
        metavar="S",
        help="longest wait for the Space, in seconds (1800)",
    )
    parser.add_argument("--list", action="store_true", help="name every file that is sent, or left out")
    parser.add_argument("--dry-run", type=Path, metavar="DIR", help="write the files there, send nothing")
    parser.add_argument(
        "--force", action="store_true", help="overwrite a folder or a Space that orsay push did not write"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        space = SpaceName.parse(args.space)
        secrets = dict(_secret(each) for each in args.secrets)
        variables = dict(_variable(each) for each in args.variables)
        for name in secrets.keys() & variables.keys():
            raise _Wrong(f"{name} is given as a secret and as a variable; it can be only one of them")
        wishes = Wishes(
            private=args.private,
            secrets=secrets,
            variables=variables,
            hardware=args.hardware,
            message=args.message.strip() or "Push the environment",
            replace=args.force,
        )
    except (SpaceError, _Wrong) as exc:
        return _failed(exc, 2)
    try:
        source = folder.read(project.read(args.folder), orsay=args.orsay)
        for line in left_out_lines(source.contents, everything=args.list):
            echo_error("push", line)
        if args.dry_run is not None:
            return _write(source, args.dry_run, space, args)
        return _push(source, space, wishes, args)
    except (LoadError, ConfigError) as exc:
        return _failed(exc, 2)
    except SpaceError as exc:
        return _failed(exc, 1)


def _write(source: folder.Source, into: Path, space: SpaceName, args: argparse.Namespace) -> int:
    files = folder.write(source, into, url=space.url, base=args.base, force=args.force)
    _show_sent(files, everything=args.list)
    echo(f"Wrote {len(files)} files to {into}: what `orsay push` sends to {space}. Nothing was sent.")
    return 0


def _push(source: folder.Source, space: SpaceName, wishes: Wishes, args: argparse.Namespace) -> int:
    hub = Hub(args.token, tuple(wishes.secrets.values()))
    with _Progress() as progress:
        progress.show(f"looking at {space}")
        remote = prepare(hub, space, wishes)
        url = remote.url or space.url
        with tempfile.TemporaryDirectory(prefix="orsay-push-") as scratch:
            files = folder.write(source, Path(scratch), url=url, base=args.base)
            _show_sent(files, everything=args.list)
            pushed = upload(hub, space, remote, files, wishes, progress.show)
        if not args.no_wait:
            pace = Pace(limit_s=args.time_limit)
            wait(hub, str(space), pushed.commit, pace=pace, report=progress.stage, changed=pushed.changed)
    echo(_summary(hub.page(str(space)), url, built=not args.no_wait, keys=_KEYS in wishes.secrets))
    return 0


def _show_sent(files: Mapping[str, Path], *, everything: bool) -> None:
    sizes = {relpath: file.stat().st_size for relpath, file in files.items()}
    echo_error("push", "\n".join(sent_lines(sizes, everything=everything)))


def _summary(page: str, url: str, *, built: bool, keys: bool) -> str:
    state = f"{url} is up." if built else f"The files are there; {url} answers when the hub has built them."
    key = ', api_key="…"' if keys else ""
    return f"""\
{state} Its page: {page}

Train on it:

    from orsay_trl import EnvironmentSpec, GRPOTrainer
    spec = EnvironmentSpec("{url}"{key})
    GRPOTrainer(model=..., args=..., train_dataset=spec.train_dataset,
                environment_factory=spec.environment_factory, reward_funcs=spec.reward_funcs).train()

or play it: orsay play {url}{" --api-key …" if keys else ""}"""


class _Progress:
    """One line that changes on a terminal, one line for each change elsewhere. On standard error."""

    def __init__(self) -> None:
        self._console = console(stderr=True)
        self._status: Status | None = None
        self._last = ""

    def __enter__(self) -> _Progress:
        if self._console.is_terminal:
            self._status = self._console.status("")
            self._status.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, text: str) -> None:
        self._show(text, text)

    def stage(self, stage: str, elapsed_s: float) -> None:
        words = stage.lower().replace("_", " ")
        self._show(words, f"{words}, {elapsed_s:.0f} s")

    def _show(self, what: str, text: str) -> None:
        if self._status is not None:
            self._status.update(Text(text))
        elif what != self._last:
            self._console.print(text)
        self._last = what


def _secret(text: str) -> tuple[str, str]:
    name, given, value = text.partition("=")
    _check_name(name, "--secret")
    if not given:
        found = named_variable(name)
        if found is None:
            raise _Wrong(
                f"--secret {name}: there is no variable {name} here; set it, or use --secret {name}=VALUE"
            )
        value = found
    if not value:
        raise _Wrong(f"--secret {name}: the value is empty")
    if name == _KEYS and not _is_list_of_keys(value):
        raise _Wrong(
            f'--secret {name}: the value is no JSON list of keys, such as \'["first-key", "second-key"]\''
        )
    return name, value


def _variable(text: str) -> tuple[str, str]:
    name, given, value = text.partition("=")
    _check_name(name, "--variable")
    if not given:
        raise _Wrong(f"--variable {name}: give its value, as {name}=VALUE")
    if name == _KEYS:
        raise _Wrong(f"--variable {name}: everybody can read variables of a Space; use --secret {name}")
    return name, value


def _check_name(name: str, option: str) -> None:
    if not _NAME.fullmatch(name):
        raise _Wrong(f"{option}: {name!r} is no name of a variable: letters, digits and '_', no digit first")


def _is_list_of_keys(value: str) -> bool:
    try:
        keys = json.loads(value)
    except ValueError:
        return False
    return isinstance(keys, list) and bool(keys) and all(isinstance(key, str) and key for key in keys)


def _failed(error: Exception, code: int) -> int:
    echo_error("push", str(error))
    return code
