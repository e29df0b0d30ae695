"""``orsay sandboxes serve``: the sandbox service alone, for environments that run elsewhere."""

from __future__ import annotations

import argparse
from typing import Any, get_args

from ..config import find_file
from ..errors import ConfigError, LoadError
from ..serving.server import Server
from ..settings import Settings
from .listening import add_listening, add_logging
from .terminal import echo_error

__all__ = ["add_parser"]

_EXAMPLES = """examples:
  orsay sandboxes serve                                     sandboxes at http://127.0.0.1:8080
  orsay sandboxes serve --port 0                            any free port, printed when ready
  orsay sandboxes serve -c servers/big.toml                 images, data and limits of that file
  orsay sandboxes serve --host 0.0.0.0 --api-key "$KEY"     for environments on other machines

Environments find it by variables of their process; their code stays as it is:
  OPENREWARD_SESSION_URL=http://HOST:8080 OPENREWARD_API_URL=http://HOST:8080 OPENREWARD_API_KEY=$KEY

Settings are those of 'orsay serve', as variables and in the file; environments of the file are not hosted."""


def add_parser(verbs: Any) -> None:
    parser = verbs.add_parser(
        "sandboxes",
        help="serve sandboxes to environments that run elsewhere",
        description="Answer the sandbox endpoints of openreward, without hosting an environment.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=["serve"], help="serve until a signal to stop")
    add_listening(parser, config="images, data, limits (ORSAY_CONFIG, else ./orsay.toml)")
    parser.add_argument(
        "--backend",
        choices=[
            each for each in get_args(Settings.model_fields["sandboxes_backend"].annotation) if each != "off"
        ],
        dest="sandboxes_backend",
        help="where sandboxes run (that of the file, else the first that works)",
    )
    add_logging(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    given = {
        name: value for name in Settings.model_fields if (value := getattr(args, name, None)) is not None
    }
    try:
        Server(config=find_file(args.config), only_sandboxes=True).run(**given)
    except (LoadError, ConfigError) as exc:
        text = str(exc)
        echo_error("sandboxes", text if "\n" not in text else f"\n{text}")
        return 2
    return 0
