"""Download of recorded sessions, streamed page by page, so that its size is not limited."""

from __future__ import annotations

import zlib

from sqlalchemy import Connection

from ..errors import JournalDown
from ..http.assets import accepts_gzip
from ..http.mounts import Pairs
from ..journal.export import Export, Recipe
from ..journal.read.filters import Filter
from ..journal.write.writer import Writer
from ..logs import get_logger
from .answers import strict_headers
from .policy import DetailPolicy
from .queries import ExportQuery
from .request import JournalRequest

__all__ = ["send_export"]

_log = get_logger(__name__)
_GZIP = 31  # zlib's wbits for the gzip format
_HEADERS: Pairs = (
    (b"content-type", b"application/x-ndjson"),
    (b"content-disposition", b'attachment; filename="trajectories.jsonl"'),
    (b"cache-control", b"no-store"),
    (b"vary", b"accept-encoding"),
)


async def send_export(
    writer: Writer, policy: DetailPolicy, wanted: ExportQuery, which: Filter, request: JournalRequest
) -> None:
    """Send all sessions that match ``which`` as JSON lines. Raises JournalDown before anything is sent.

    A later failure of the journal breaks the connection, which clients notice.
    """
    export = Export(_recipe(wanted, which), redact=policy.trajectory)
    packer = zlib.compressobj(5, zlib.DEFLATED, _GZIP) if accepts_gzip(request.http.headers) else None

    def more(connection: Connection) -> bytes:
        lines = export.lines(connection)
        if packer is None:
            return lines
        packed = packer.compress(lines)
        return packed + packer.flush() if export.done else packed

    part = await writer.read(more)
    headers = [*_HEADERS, *strict_headers()]
    if packer is not None:
        headers.append((b"content-encoding", b"gzip"))
    await request.http.send({"type": "http.response.start", "status": 200, "headers": headers})
    try:
        while True:
            done = export.done
            if part or done:
                await request.http.send({"type": "http.response.body", "body": part, "more_body": not done})
            if done or request.http.has_gone():
                return
            part = await writer.read(more)
    except JournalDown as down:
        _log.warning("export_broke_off", written=export.written, reason=str(down))


def _recipe(wanted: ExportQuery, which: Filter) -> Recipe:
    """Recipe of the export; a filter by fault includes lost episodes."""
    return Recipe(
        wanted=which,
        lost=wanted.faults or wanted.fault not in (None, "none"),
        living=wanted.living,
        full=wanted.full,
        images=wanted.images,
        arguments="string" if wanted.arguments == "string" else "object",
    )
