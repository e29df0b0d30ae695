"""``orsay build ENV_DIR``: the container image of an environment project."""

from __future__ import annotations

import argparse
import asyncio
import re
import shlex
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.status import Status
from rich.text import Text

from ..errors import ConfigError, EngineError, LoadError
from ..packaging.building import Recipe, build
from ..packaging.context import Contents
from ..packaging.project import Project, read
from ..plain import one_line
from ..runtimes.docker.engine import Engine
from .image_check import try_image
from .packed import left_out_lines, sent_lines
from .terminal import console as console_of
from .terminal import echo_error

__all__ = ["add_parser", "run"]

_EXAMPLES = """\
examples:
  orsay build my_env                        the image my-env, of the folder my_env
  orsay build . --tag me/my-env:2           of this folder, under another name
  orsay build my_env --base orsay-base      on another image: faster if it has orsay already
  orsay build my_env --check                then start it and run the conformance suite
  orsay serve --runtime docker my-env       host it

The folder is a project with a pyproject.toml ('orsay init' writes one), or holds Python files with
environments and optionally a requirements.txt, or has its own Dockerfile.

exit status: 0 built, 1 the build or a check failed, 2 the folder, the engine or the command line is wrong
"""

_PART = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
_TAG = re.compile(rf"(?:[\w.-]+(?::\d+)?/)?{_PART}(?:/{_PART})*(?::\w[\w.-]{{0,127}})?", re.ASCII)
_STEP = re.compile(r"Step (\d+)/(\d+) : (.*)")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the command line."""
    parser = subparsers.add_parser(
        "build",
        help="build an environment's container image",
        description="Build the container image of an environment project with the Docker engine.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="ENV_DIR", help="the project's folder")
    parser.add_argument("--tag", metavar="NAME[:TAG]", help="name of the image (default: the project's)")
    parser.add_argument(
        "--base", metavar="IMAGE", help="build on this image (default: that of the Dockerfile)"
    )
    parser.add_argument(
        "--orsay",
        metavar="REQUIREMENT",
        help="what pip installs as orsay: a requirement, or a wheel's path (default: what runs here)",
    )
    parser.add_argument(
        "--build-arg", action="append", default=[], metavar="NAME=VALUE", help="set an ARG of the Dockerfile"
    )
    parser.add_argument("--list", action="store_true", help="name every file that is sent, or left out")
    parser.add_argument("--no-cache", action="store_true", help="run every step again")
    parser.add_argument(
        "--check", action="store_true", help="start the image and run the conformance suite against it"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit status of the verb."""
    try:
        project = read(args.folder)
        recipe = Recipe(
            tag=_tag(args.tag or project.name),
            base=args.base,
            orsay=args.orsay,
            arguments=_arguments(args.build_arg),
            no_cache=args.no_cache,
        )
        return asyncio.run(_build(project, recipe, console_of(), args))
    except (LoadError, ConfigError) as exc:
        return _failed(str(exc), 2)
    except EngineError as exc:
        return _failed(_with_remedy(str(exc)), 1)


async def _build(project: Project, recipe: Recipe, console: Console, args: argparse.Namespace) -> int:
    async with await Engine.connect() as engine:
        started = time.monotonic()
        with console.status(f"building {recipe.tag}") as status:
            await build(
                engine,
                project,
                recipe,
                on_line=lambda line: _show_step(console, status, recipe.tag, line),
                on_packed=lambda contents, sizes: _show_packed(
                    console, contents, sizes, everything=args.list
                ),
            )
        size = (await engine.image(recipe.tag, pull="never")).size_bytes
        took_s = time.monotonic() - started
        console.print(Text(f"Built {recipe.tag}: {size / 1e6:.0f} MB, in {took_s:.0f} s. Host it:", "bold"))
        console.print(f"  orsay serve --runtime docker {shlex.quote(recipe.tag)}", soft_wrap=True)
        return await try_image(engine, recipe.tag, console) if args.check else 0


def _show_packed(console: Console, contents: Contents, sizes: Mapping[str, int], *, everything: bool) -> None:
    for line in left_out_lines(contents, everything=everything):
        console.print(Text(line, style="yellow"), soft_wrap=True)
    for line in sent_lines(sizes, everything=everything):
        console.print(Text(line), soft_wrap=True)


def _show_step(console: Console, status: Status, tag: str, line: str) -> None:
    """Progress of the build: at a terminal in one line that changes, else one line for each step."""
    step = _STEP.fullmatch(line.strip())
    if step is None:
        return
    command = " ".join(one_line(step[3]).split())
    text = Text(
        f"building {tag}, step {step[1]} of {step[2]}: {textwrap.shorten(command, 90, placeholder=' …')}"
    )
    if console.is_terminal:
        status.update(text)
    else:
        console.print(text, soft_wrap=True)


def _tag(text: str) -> str:
    if not _TAG.fullmatch(text):
        raise ConfigError(f"{text!r} cannot name an image: write it in lower case, such as me/my-env:1")
    return text


def _arguments(given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name.isidentifier():
            raise ConfigError(f"--build-arg {each!r} is not NAME=VALUE")
        if name in ("BASE", "ORSAY"):
            raise ConfigError(f"--build-arg {name}=… is spelled --{name.lower()} here")
        found[name] = value
    return found


def _with_remedy(text: str) -> str:
    """The engine's error, with the remedy for common failures."""
    if re.search(r"No matching distribution found for orsay|Could not find a version .* orsay", text):
        return f"{text}\nno package index has this orsay: name a wheel of it with --orsay"
    if re.search(r"pull access denied|manifest unknown|manifest for|dial tcp|no such host", text):
        return f"{text}\nthe base image cannot be fetched: name one that this engine has with --base"
    return text


def _failed(text: str, status: int) -> int:
    echo_error("build", text)
    return status
