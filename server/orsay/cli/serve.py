"""``orsay serve``: host environments until a signal to stop."""

from __future__ import annotations

import argparse
from typing import Any

from ..config import find_file
from ..errors import ConfigError, LoadError
from ..serving.server import Server
from ..settings import Settings
from .listening import add_listening, add_logging
from .terminal import echo, echo_error

__all__ = ["add_parser"]

_EXAMPLES = """examples:
  orsay serve my_env.env:MyEnv                        one class, worker processes, http://127.0.0.1:8080
  orsay serve                                         the environments of orsay.toml in this folder
  orsay serve -c servers/big.toml --port 9000         those of that file, on another port
  orsay serve my_env.env:MyEnv --port 0               any free port, printed when ready
  orsay serve envs/one.py:One envs/two.py:Two         classes from files; the first is the default
  orsay serve my_env.env:MyEnv --also openenv,mcp     for OpenEnv and MCP clients too, from the same sessions
  orsay serve gymnasium:FrozenLake-v1                 other libraries: also reasoning-gym:, openenv:, text:
  orsay serve http://one:8080 http://two:8080         other servers, as one
  orsay serve docker:my-env:1                         an image, in a container
  orsay serve my_env.env:MyEnv --sandboxes docker     environments that run code in sandboxes of openreward
  orsay serve my_env.env:MyEnv --reload               new sessions use the changed code
  orsay serve my_env.env:MyEnv --host 0.0.0.0 --api-key "$KEY"

Every setting is also a variable, for example ORSAY_IDLE_LIMIT_S=3600; 'orsay serve --settings' lists them.
Options win over variables, variables over the file. Environments come from targets or from the file: with
targets, ./orsay.toml is not read, and a file that is named may hold settings only. SIGHUP reads it again."""


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser(
        "serve",
        help="host environments over HTTP",
        description="Host environments as an ORS server: classes, images, other servers.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="TARGET",
        help="what to host: MODULE:CLASS, FILE.py:CLASS, http://HOST:PORT, docker:IMAGE",
    )
    add_listening(parser, config="settings and environments (ORSAY_CONFIG, else ./orsay.toml)")
    parser.add_argument(
        "--runtime",
        choices=["process", "local", "docker", "remote"],
        help="where environments run (process); docker, remote: targets are images, URLs",
    )
    parser.add_argument("--workers", type=int, help="worker processes (as many as cores)")
    parser.add_argument(
        "--index-only",
        action="store_true",
        default=None,
        help="take and give tasks by split and index only: no task_spec leaves or enters",
    )
    parser.add_argument(
        "--error-detail", choices=["auto", "exception", "id"], help="what clients read of an exception (auto)"
    )
    parser.add_argument(
        "--also", metavar="PROTOCOLS", help="serve other protocols too: openenv, mcp, or openenv,mcp"
    )
    parser.add_argument(
        "--sandboxes",
        choices=["off", "auto", "docker", "bubblewrap"],
        dest="sandboxes_backend",
        help="where sandboxes run (auto: docker or bubblewrap, for orsay.sandbox); a back end that is named"
        " also serves environments written for openreward",
    )
    add_logging(parser)
    parser.add_argument("--reload", action="store_true", help="load the code again when it changes on disk")
    parser.add_argument(
        "--settings", action="store_true", help="list every setting with its variable and exit"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.settings:
        _print_settings()
        return 0
    file = find_file(args.config, here=not args.targets)
    if file is None and not args.targets:
        return _wrong(
            "name at least one environment, for example: orsay serve my_env.env:MyEnv; or write orsay.toml,"
            " see 'orsay config --example'"
        )
    given = {
        name: value for name in Settings.model_fields if (value := getattr(args, name, None)) is not None
    }
    try:
        Server(args.targets, config=file, reload=args.reload).run(**given)
    except (LoadError, ConfigError) as exc:
        return _wrong(str(exc))
    return 0


def _wrong(text: str) -> int:
    echo_error("serve", text if "\n" not in text else f"\n{text}")
    return 2


def _print_settings() -> None:
    for name, field in Settings.model_fields.items():
        default = "" if field.is_required() else field.get_default(call_default_factory=True)
        note = f"  {field.description}" if field.description else ""
        echo(f"ORSAY_{name.upper()}={default!r}{note}")
