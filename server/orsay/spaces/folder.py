"""The folder of a Docker Space, made from an environment project: exactly the files to upload.

A Space is built without build arguments, so the defaults in its Dockerfile must be correct.
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from ..errors import SpaceError
from ..packaging import context, dockerfile, wheel
from ..packaging.files import Kept
from ..packaging.project import Project
from .about import about
from .readme import readme

__all__ = ["MARK", "Source", "read", "write"]

MARK = ".orsay-space"
"""Manifest that marks a folder or a Space as ours; it lists the other files."""

_PORT = 8080
_LEFT_OUT = frozenset({MARK, ".gitattributes", ".gitignore", ".dockerignore", "Dockerfile", "README.md"})
_IGNORED = "# For a build of this folder: not needed in the image.\n.git\n.gitattributes\n.orsay-space\n"
_EXPOSED = re.compile(r"^\s*EXPOSE\s+(\d+)", re.IGNORECASE | re.MULTILINE)
_SPACE = """\

# In a Space: user 1000; the hub's proxy is the only way in; open to all without the secret ORSAY_API_KEYS.
USER 1000
ENV ORSAY_HOST=0.0.0.0 \\
    ORSAY_PORT={port} \\
    ORSAY_ALLOW_ANONYMOUS=true \\
    ORSAY_JOURNAL=/tmp/journal.db \\
    ORSAY_TRUSTED_PROXIES=*
"""


@dataclass(frozen=True)
class Source:
    """A project and the files for its image."""

    project: Project
    contents: context.Contents
    requirement: wheel.Requirement


def read(project: Project, *, orsay: str | None = None) -> Source:
    """Files of a Space, from a project; ``orsay`` as for ``wheel.requirement``. Raises OrsayError."""
    return Source(project, context.read(project), wheel.requirement(orsay))


def write(
    source: Source, into: Path, *, url: str, base: str | None = None, force: bool = False
) -> Mapping[str, Path]:
    """Write the Space into ``into`` and return its files by their paths, with slashes.

    Files of an earlier run are removed; a folder with other files is refused unless ``force`` is set. Raises
    SpaceError.
    """
    project = source.project
    recipe = dockerfile.text(project, orsay=source.requirement.pip, base=base)
    exposed = _EXPOSED.search(recipe)
    port = int(exposed.group(1)) if exposed else _PORT
    text = _text(source.contents.readme)
    made: dict[str, bytes] = {
        "README.md": readme(text, about(project, text, port=port), url).encode(),
        "Dockerfile": (recipe.rstrip("\n") + "\n" + _SPACE.format(port=port)).encode(),
        ".dockerignore": _IGNORED.encode(),
    }
    if "ORSAY" in dockerfile.arguments(recipe):
        made |= source.requirement.files
    taken = _taken(source.contents.files)
    names = sorted({*made, *taken, MARK})
    made[MARK] = "\n".join(
        ["# Written by orsay push: these files, from an environment project.", *names, ""]
    ).encode()
    try:
        _clear(into, force=force)
        for relpath in names:
            if relpath in made:
                _write(into, relpath, io.BytesIO(made[relpath]))
            else:
                with taken[relpath].open() as file:
                    _write(into, relpath, file, executable=taken[relpath].executable)
    except OSError as exc:
        raise SpaceError(f"cannot write the Space to {into}: {exc}") from exc
    return {relpath: into / relpath for relpath in names}


def _text(readme: Kept | None) -> str:
    """Read a text file. Raises SpaceError."""
    if readme is None:
        return ""
    try:
        with readme.open() as file:
            return file.read().decode("utf-8", errors="replace")
    except OSError as exc:
        raise SpaceError(f"cannot read {readme.path}: {exc}") from exc


def _write(into: Path, relpath: str, data: IO[bytes], *, executable: bool = False) -> None:
    """Write a new file in place of any existing one, never through a link."""
    target = into / relpath
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.parent.resolve().is_relative_to(into.resolve()):
        raise OSError(f"{target.parent} leads out of it")
    target.unlink(missing_ok=True)
    with target.open("xb") as file:
        shutil.copyfileobj(data, file)
    target.chmod(0o755 if executable else 0o644)


def _taken(files: Mapping[str, Kept]) -> Mapping[str, Kept]:
    """Files of the project itself, without those of a dry run inside it and those that are generated."""
    written = tuple(relpath.removesuffix(MARK) for relpath in files if relpath.endswith(f"/{MARK}"))
    return {
        relpath: file
        for relpath, file in files.items()
        if relpath not in _LEFT_OUT and not (written and relpath.startswith(written))
    }


def _clear(into: Path, *, force: bool) -> None:
    """Remove files of an earlier run; refuse files of other origin."""
    mark = into / MARK
    if mark.is_file():
        for line in mark.read_bytes().decode(errors="replace").split("\n")[1:]:
            path = into / line
            if line.isprintable() and line and path.resolve().is_relative_to(into.resolve()):
                path.unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # other files are in it
                    for parent in PurePosixPath(line).parents[:-1]:
                        (into / parent).rmdir()
    elif into.exists() and not into.is_dir():
        raise SpaceError(f"{into} is no folder; name one for the Space")
    elif into.is_dir() and any(into.iterdir()) and not force:
        raise SpaceError(
            f"{into} is not empty and was not written by orsay push; name another folder, or overwrite what"
            " is in it with --force"
        )
