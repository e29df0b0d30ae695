"""``orsay init``: write a new environment project from the templates that ship with the package."""

from __future__ import annotations

import argparse
import keyword
import re
import shlex
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import orsay

from ..packaging.dockerfile import generate
from .terminal import echo, echo_error

__all__ = ["TEMPLATES", "BadName", "add_parser", "check_name", "class_name", "project_files", "run"]

_EPILOG = """\
examples:
  orsay init my_env               a project in ./my_env, with the class my_env.env:MyEnv
  orsay init my_env --into envs   the same in ./envs/my_env
  orsay init my_env --full        with methods for tasks and a pydantic model per tool
  orsay init my_env --template sandbox
                                  a model that works in a sandbox, with isolated grading
"""

TEMPLATES = ("environment", "full", "sandbox")
"""The first has all files; the others have what is different."""
_FILES = {
    "pyproject.toml": "pyproject.toml.tmpl",
    "README.md": "README.md.tmpl",
    ".dockerignore": "dockerignore.tmpl",
    ".gitignore": "gitignore.tmpl",
    "{package}/__init__.py": "package/__init__.py.tmpl",
    "{package}/env.py": "package/env.py.tmpl",
    "tests/test_{package}.py": "tests/test_env.py.tmpl",
}

_TAKEN = frozenset({"orsay", "orsay_protocol", "orsay_client", "orsay_trl", "pydantic", "pytest", "tests"})
_TAKEN_CLASSES = frozenset({*orsay.__all__, "BaseModel", "ClassVar", "Field", "Mapping", "Submission"})


class BadName(ValueError):
    """The name cannot be used for a Python package; the message has the remedy."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the command line."""
    parser = subparsers.add_parser(
        "init",
        help="write a new environment project",
        description="Write a complete environment project: package, tests, pyproject, Dockerfile, README.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", help="name of the package and of its folder, such as my_env")
    parser.add_argument(
        "--into",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="folder to make the project in (default: here)",
    )
    parser.add_argument(
        "--template",
        choices=TEMPLATES,
        default="environment",
        help="what to begin with: a small environment, the same in the standard's full spelling, or one with"
        " a sandbox (default: environment)",
    )
    parser.add_argument(
        "--full", action="store_const", const="full", dest="template", help="the same as --template full"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the project. Exit status 2 for invalid arguments; nothing is written then."""
    try:
        check_name(args.name)
    except BadName as exc:
        return _refuse(str(exc))
    folder: Path = args.into / args.name
    try:
        taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
        if taken:
            return _refuse(
                f"{folder} exists and is not an empty folder; choose another name, or --into another folder"
            )
        for path, text in project_files(args.name, args.template).items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    except OSError as exc:
        return _refuse(f"cannot write to {folder}: {exc.strerror or exc}; choose another folder with --into")
    echo(_next_steps(folder, args.name, args.template))
    return 0


def check_name(name: str) -> None:
    """Raise BadName unless ``name`` can be imported and shadows no module that the project needs."""
    suggestion = _suggestion(name)
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        hint = f"try {suggestion}" if suggestion else "try my_env"
        raise BadName(
            f"{name!r} cannot be a package name: use lower-case letters, digits and underscores, "
            f"starting with a letter, and no Python keyword; {hint}"
        )
    if class_name(name) in _TAKEN_CLASSES:
        raise BadName(f"{name!r} gives the class {class_name(name)}, a name that is taken; try {name}_env")
    if name in _TAKEN or name in sys.stdlib_module_names:
        raise BadName(f"{name!r} is the name of a package that the project needs; try {name}_env")


def class_name(name: str) -> str:
    """``my_env`` -> ``MyEnv``."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def project_files(name: str, template: str = "environment") -> Mapping[str, str]:
    """Relative path and text of every file of the project, from one of ``TEMPLATES``."""
    values = {"package": name, "project": name.strip("_").replace("_", "-"), "class": class_name(name)}
    templates = files("orsay") / "templates"
    sources = {}
    for path, source in _FILES.items():
        own = templates / template / source
        sources[path] = own if own.is_file() else templates / "environment" / source
    written = {
        path.format(package=name): _fill(source.read_text(encoding="utf-8"), values)
        for path, source in sources.items()
    }
    return {**written, "Dockerfile": generate((f"{name}.env:{class_name(name)}",))}


def _fill(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(package|project|class)\}\}", lambda found: values[found.group(1)], text)


def _suggestion(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    suggestion = re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")
    if suggestion[:1].isdigit():
        suggestion = f"env_{suggestion}"
    return f"{suggestion}_env" if keyword.iskeyword(suggestion) else suggestion


def _refuse(message: str) -> int:
    echo_error("init", message)
    return 2


def _next_steps(folder: Path, name: str, template: str) -> str:
    sandboxes = " --sandboxes docker" if template == "sandbox" else ""
    return f"""\
Wrote {folder}. Next:

  cd {shlex.quote(str(folder))}
  pip install -e ".[dev]"
  pytest
  orsay serve {name}.env:{class_name(name)}{sandboxes} --reload
"""
