"""Build context: the selected files of a project, as a list and as a tar for the Docker engine."""

from __future__ import annotations

import io
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO

from ..errors import LoadError
from .files import Kept
from .ignore import Patterns
from .judging import LeftOut, judge
from .project import Project

__all__ = ["Contents", "LeftOut", "read", "tar"]

_IN_MEMORY_BYTES = 64 * 1024 * 1024
_IGNORE_FILE = ".dockerignore"


@dataclass(frozen=True)
class Contents:
    """Files that go into an image, and files that stay out.

    ``files``: each file by its path in the context, with slashes. ``left_out``: files to report to the user,
    with reasons. ``ignored``: files and folders (with a final slash) that .dockerignore excludes. ``readme``:
    the project's, even if it is ignored; None if there is none that may be shown.
    """

    files: Mapping[str, Kept]
    left_out: tuple[LeftOut, ...] = ()
    ignored: tuple[str, ...] = ()
    readme: Kept | None = field(default=None, repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Files left out because they hold secrets: everyone with the image could read them."""
        return tuple(each.relpath for each in self.left_out if each.kind == "private")

    @property
    def links(self) -> tuple[str, ...]:
        """Links left out because they lead to a folder, out of the project, or nowhere."""
        return tuple(each.relpath for each in self.left_out if each.kind == "link")

    @property
    def size_bytes(self) -> int:
        """Size of all files."""
        return sum(each.size for each in self.files.values())


def read(project: Project) -> Contents:
    """Select the files of the project's folder that go into its image.

    Raises LoadError for a bad .dockerignore, and for what cannot be read.
    """
    found = judge(project.folder, _own_patterns(project))
    if project.own_dockerfile and "Dockerfile" not in found.texts:
        reason = next((each.reason for each in found.left_out if each.relpath == "Dockerfile"), "stays out")
        raise LoadError(f"{project.folder / 'Dockerfile'} cannot be used: it {reason}")
    return Contents(found.files, found.left_out, found.ignored, found.texts.get("README.md"))


def tar(
    project: Project, contents: Contents, *, dockerfile: str, more: Mapping[str, bytes] | None = None
) -> IO[bytes]:
    """A tar of ``contents``, the text of a Dockerfile, and ``more`` files by name; positioned at its start.

    Owners and times are left out, so that the same content is the same tar. The caller closes it.
    Raises LoadError for a file that cannot be read, or was replaced since it was selected.
    """
    written = {**(more or {}), "Dockerfile": dockerfile.encode()}
    packed = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115  # the caller closes it
    try:
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for relpath, kept in sorted(contents.files.items()):
                if relpath not in written:
                    _add(archive, relpath, kept)
            for relpath, data in sorted(written.items()):
                entry = tarfile.TarInfo(relpath)
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


def _own_patterns(project: Project) -> Patterns:
    path = project.folder / _IGNORE_FILE
    try:
        # Docker's parser needs LF line ends and no byte order mark.
        lines = path.read_text(encoding="utf-8-sig").split("\n") if path.is_file() else []
    except OSError as exc:
        raise LoadError(f"cannot read {path}: {exc.strerror or exc}") from exc
    except UnicodeDecodeError as exc:
        line = exc.object.count(b"\n", 0, exc.start) + 1
        raise LoadError(f"{path}:{line}: this is no UTF-8") from exc
    return Patterns(lines, source=str(path))


def _add(archive: tarfile.TarFile, relpath: str, kept: Kept) -> None:
    entry = tarfile.TarInfo(relpath)
    entry.mode = 0o755 if kept.executable else 0o644
    with kept.open() as source:
        entry.size = source.seek(0, io.SEEK_END)
        source.seek(0)
        archive.addfile(entry, source)
