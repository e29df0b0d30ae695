"""The command line: ``orsay VERB …``. Each verb is a module here, loaded only when it is used."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

__all__ = ["main"]

_VERBS = {
    "serve": "host environments over HTTP",
    "config": "check orsay.toml, or write one",
    "init": "write a new environment project",
    "build": "build an environment's container image",
    "play": "play a task of a server in the terminal",
    "push": "put an environment into a Hugging Face Space",
    "check": "run the conformance suite against any ORS server",
    "eval": "evaluate a model, or compare two evaluations",
    "journal": "count, export and prune recorded sessions",
    "data": "tell what an environment needs and lacks",
    "sandboxes": "serve sandboxes to environments that run elsewhere",
}

_EXAMPLES = """examples:
  orsay init my_env                     start a new environment
  orsay serve my_env.env:MyEnv          host it on http://127.0.0.1:8080
  orsay play http://127.0.0.1:8080      play it yourself
  orsay check http://127.0.0.1:8080     test it against the standard

'orsay VERB --help' describes a verb."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; the exit code is 0, 1 for a failure, 2 for a wrong command line or setting."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="orsay",
        description="Self-hosted environments for reinforcement learning of language models.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    verbs = parser.add_subparsers(metavar="VERB", dest="verb")
    chosen = next((each for each in arguments if not each.startswith("-")), None)
    for verb, text in _VERBS.items():
        if verb == chosen:
            importlib.import_module(f"{__name__}.{verb}").add_parser(verbs)
        else:
            verbs.add_parser(verb, help=text)
    args = parser.parse_args(arguments)
    if args.version:
        from importlib.metadata import version  # only here: reading metadata is slow

        print(f"orsay {version('orsay')}")
        return 0
    if args.verb is None:
        parser.print_help()
        return 2
    try:
        code: int = args.run(args)
    except KeyboardInterrupt:
        return 130
    return code
