"""Files of a sandbox by its endpoints: sizes, ranges, and writing in parts with a commit."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import posixpath
import secrets

from ...errors import BadRequest
from ...sandboxes.sandbox import FileInfo, Sandbox
from ...sandboxes.service import HostedSandbox

__all__ = ["PastTheEnd", "commit_file", "file_size", "read_range", "sha256_of", "write_range"]

_PIECE = 4 << 20


class PastTheEnd(Exception):
    """The file ends before the offset; ``size`` is its size in bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


def _refused(path: str, error: OSError) -> BadRequest:
    if error.errno == errno.ELOOP:
        return BadRequest(f"{path} is a symlink, which the file endpoints do not follow")
    return BadRequest(f"{path}: {error.strerror or os.strerror(error.errno or errno.EIO)}")


async def _regular(sandbox: Sandbox, path: str) -> FileInfo:
    try:
        info = await sandbox.stat(path)
    except OSError as exc:
        raise _refused(path, exc) from None
    if info.kind == "link":
        raise BadRequest(f"{path} is a symlink, which the file endpoints do not follow")
    if info.kind != "file":
        raise BadRequest(
            f"{path} is a {'folder' if info.kind == 'folder' else 'device or FIFO'}, and no file"
        )
    return info


async def file_size(sandbox: Sandbox, path: str) -> int:
    """Size of a regular file in bytes. Raises BadRequest."""
    return (await _regular(sandbox, path)).size


async def sha256_of(sandbox: Sandbox, path: str) -> str:
    """Digest of a file, in hex; read in pieces, since an image may have no program for it."""
    digest, offset = hashlib.sha256(), 0
    try:
        while piece := await sandbox.read(path, offset=offset, length=_PIECE):
            await asyncio.to_thread(digest.update, piece)
            offset += len(piece)
    except OSError as exc:
        raise _refused(path, exc) from None
    return digest.hexdigest()


async def read_range(sandbox: Sandbox, path: str, offset: int, length: int) -> tuple[bytes, int]:
    """Part of a file, and the size of the whole. Raises PastTheEnd and BadRequest."""
    size = await file_size(sandbox, path)
    if offset and offset >= size:
        raise PastTheEnd(size)
    try:
        return await sandbox.read(path, offset=offset, length=min(length, _PIECE)), size
    except OSError as exc:
        raise _refused(path, exc) from None


async def write_range(
    hosted: HostedSandbox, path: str, offset: int, content: bytes, *, folders: bool
) -> None:
    """Write a part of a file that has its name only once it is committed. Raises BadRequest."""
    sandbox = await hosted.sandbox()
    if offset == 0 and path not in hosted.parts:
        folder, name = posixpath.split(path)
        hosted.parts[path] = posixpath.join(folder, f".{name[:100]}.{secrets.token_hex(4)}.part")
    temporary = hosted.parts.get(path)
    if temporary is None:
        raise BadRequest(f"{path}: the part at offset 0 must be written first")
    try:
        await sandbox.write_part(temporary, content, offset=offset, folders=folders)
    except OSError as exc:
        raise _refused(path, exc) from None


async def commit_file(hosted: HostedSandbox, path: str, size: int) -> str:
    """Give a file that was written in parts its name, and return its digest. Raises BadRequest.

    A commit that is asked for again, since its answer was lost, has the same answer.
    """
    sandbox = await hosted.sandbox()
    temporary = hosted.parts.get(path)
    if temporary is None:
        if hosted.committed.get(path) == size and await file_size(sandbox, path) == size:
            return await sha256_of(sandbox, path)
        raise BadRequest(f"{path}: nothing was written to commit")
    digest = await sha256_of(sandbox, temporary)
    try:
        await sandbox.commit(temporary, path, size=size)
    except OSError as exc:
        if exc.errno == errno.EMSGSIZE:
            raise BadRequest(f"{path}: what was written has another size than {size} bytes") from None
        raise _refused(path, exc) from None
    del hosted.parts[path]
    hosted.committed[path] = size
    return digest
