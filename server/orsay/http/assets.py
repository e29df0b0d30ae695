"""Static files of the package for browsers: compressed once, with an ETag."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

from .asgi import Headers, Send, send_once
from .mounts import Pairs

__all__ = ["Asset", "accepts_gzip", "read_asset", "send_asset"]

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".md": "text/markdown; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
    ".webp": "image/webp",
    ".woff2": "font/woff2",
}
_PACKED = frozenset({".ico", ".png", ".webp", ".woff2"})


@dataclass(frozen=True, slots=True)
class Asset:
    """A static file. ``packed`` is its gzip form, None if that is not smaller; ``mark`` is its ETag."""

    body: bytes
    packed: bytes | None
    kind: bytes
    mark: bytes


def read_asset(path: Path) -> Asset:
    """Read and compress a file; slow, so call it on a thread. Raises OSError."""
    body = path.read_bytes()
    packed = None if path.suffix in _PACKED else gzip.compress(body, 9, mtime=0)
    return Asset(
        body=body,
        packed=packed if packed is not None and len(packed) < len(body) else None,
        kind=_TYPES.get(path.suffix, "application/octet-stream").encode(),
        mark=b'"' + hashlib.blake2b(body, digest_size=12).hexdigest().encode() + b'"',
    )


async def send_asset(asset: Asset, headers: Headers, send: Send, *, keep: bytes, more: Pairs) -> None:
    """Send the file, or 304 if the browser has it already. ``keep`` is the value of Cache-Control."""
    answer: Pairs = (
        (b"content-type", asset.kind),
        (b"cache-control", keep),
        (b"etag", asset.mark),
        (b"vary", b"accept-encoding"),
        *more,
    )
    marks = headers.get(b"if-none-match", b"").replace(b"W/", b"").split(b",")
    if asset.mark in [mark.strip() for mark in marks]:
        await send({"type": "http.response.start", "status": 304, "headers": list(answer)})
        await send({"type": "http.response.body", "body": b""})
    elif asset.packed is not None and accepts_gzip(headers):
        await send_once(send, 200, asset.packed, (*answer, (b"content-encoding", b"gzip")))
    else:
        await send_once(send, 200, asset.body, answer)


def accepts_gzip(headers: Headers) -> bool:
    """True if the client accepts gzip."""
    for each in headers.get(b"accept-encoding", b"").lower().split(b","):
        coding, _, weight = each.strip().partition(b";")
        if coding.strip() in (b"gzip", b"*"):
            return weight.replace(b" ", b"").rstrip(b"0") not in (b"q=", b"q=0.")
    return False
