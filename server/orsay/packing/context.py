"""The files of a project that go into its image, as a list and as the tar that a Docker engine takes."""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from ..errors import LoadError
from .ignore import CLUTTER, SECRETS, Patterns
from .project import Project

__all__ = ["Contents", "read", "tar"]

_IN_MEMORY_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Contents:
    """What goes in and what stays out of an image.

    ``files``: place in the context, with slashes, to the file. ``secrets``: left out because they look like
    keys or passwords; a line ``!PATH`` in .dockerignore lets one in. ``links``: left out because they lead to
    a folder, out of the project, or nowhere.
    """

    files: Mapping[str, Path]
    secrets: tuple[str, ...] = ()
    links: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of what was left out: one sentence for each kind; often empty."""
        found = []
        if self.secrets:
            found.append(
                f"left out, since it looks like a secret: {', '.join(self.secrets)} "
                "(a line '!PATH' in .dockerignore lets a file in)"
            )
        if self.links:
            found.append(f"left out, since it links to no file of this folder: {', '.join(self.links)}")
        return tuple(found)


@dataclass
class _Found:
    files: dict[str, Path] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)


def read(project: Project) -> Contents:
    """What of the project's folder belongs into its image. Raises LoadError for a bad .dockerignore."""
    path = project.folder / ".dockerignore"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    own, clutter, secrets = Patterns(lines, source=str(path)), Patterns(CLUTTER), Patterns(SECRETS)
    found = _Found()
    for place, each in _walk(project.folder, "", own, clutter):
        verdict = own.verdict(place)
        if verdict or (verdict is None and clutter.verdict(place)):
            continue
        if verdict is None and secrets.verdict(place):
            found.secrets.append(place)
        elif each.is_file() and each.resolve().is_relative_to(project.folder):
            found.files[place] = each
        elif each.is_symlink():
            found.links.append(place)
    return Contents(found.files, tuple(found.secrets), tuple(found.links))


def tar(
    project: Project, contents: Contents, *, dockerfile: str, more: Mapping[str, bytes] | None = None
) -> IO[bytes]:
    """A tar of ``contents``, of the text of the Dockerfile, and of ``more`` files by name; at its beginning.

    Owners and times are left out, so that the same content is the same tar. The caller closes it.
    Raises LoadError for a file that cannot be read.
    """
    written = {**(more or {}), "Dockerfile": dockerfile.encode()}
    packed = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115  # the caller closes it
    try:
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for place, path in sorted(contents.files.items()):
                if place not in written:
                    _add(archive, place, path)
            for place, data in sorted(written.items()):
                entry = tarfile.TarInfo(place)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
    except OSError as exc:
        packed.close()
        raise LoadError(f"cannot pack {project.folder}: {exc}") from exc
    except BaseException:
        packed.close()
        raise
    packed.seek(0)
    return packed


def _walk(root: Path, inside: str, own: Patterns, clutter: Patterns) -> Iterator[tuple[str, Path]]:
    """Files and links below a folder; folders that stay out as a whole are not entered."""
    for entry in sorted(os.scandir(root / inside), key=lambda each: each.name):
        place = f"{inside}/{entry.name}" if inside else entry.name
        if not entry.is_dir(follow_symlinks=False):
            yield place, Path(entry.path)
        elif not (_stays_out(place, own, clutter) or Path(entry.path, "pyvenv.cfg").exists()):
            yield from _walk(root, place, own, clutter)


def _stays_out(place: str, own: Patterns, clutter: Patterns) -> bool:
    if own.has_exceptions:  # something below may be let in again
        return own.verdict(place) is None and bool(clutter.verdict(place))
    verdict = own.verdict(place)
    return bool(clutter.verdict(place)) if verdict is None else verdict


def _add(archive: tarfile.TarFile, place: str, path: Path) -> None:
    entry = tarfile.TarInfo(place)
    entry.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
    entry.size = path.stat().st_size
    with path.open("rb") as source:
        archive.addfile(entry, source)
