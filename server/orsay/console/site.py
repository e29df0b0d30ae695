"""Static files of the built page: served from a table, compressed once, with caching headers.

Only files of the folder's listing are served. A new build is listed again.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from pathlib import Path

from ..http.asgi import Headers, Scope, Send, send_once
from ..http.assets import Asset, read_asset, send_asset
from .answers import strict_headers

__all__ = ["Site"]

_BUILT = Path(__file__).parent / "static"
_BASE = b'<base href="/console/"'
_NONCE = b"__CSP_NONCE__"
_LIST_EVERY_S = 1.0
_FOREVER = b"public, max-age=31536000, immutable"
_ASK_AGAIN = b"no-cache"
_NOT_BUILT = b"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Orsay</title><meta name="viewport" content="width=device-width"></head>
<body>
<h1>Orsay</h1>
<p>The server runs, but the page of its console is not built. In the folder <code>console</code> of the
source, run <code>npm ci</code> and <code>npm run build</code>, then load this page again.</p>
<p>The API that the page reads is there: <code>/console/api/server</code>.</p>
</body>
</html>
"""


@dataclass(frozen=True, slots=True)
class _Listing:
    built_at: int
    paths: dict[str, Path]


class Site:
    """The files of a folder, by their paths below it; ``index.html`` stands for every other path."""

    def __init__(self, folder: Path = _BUILT) -> None:
        self._folder = folder
        self._listing = _Listing(-1, {})
        self._listed_at = 0.0
        self._assets: dict[str, Asset] = {}

    async def answer(self, scope: Scope, headers: Headers, send: Send, subpath: str) -> None:
        """Send the file at ``subpath``, relative to the console; empty for the page."""
        await self._look()
        if subpath not in self._listing.paths and "." in subpath:
            await self._look_again()
        asset = None if subpath == "index.html" else await self._asset(subpath)
        if asset is not None:
            keep = _FOREVER if subpath.startswith("assets/") else _ASK_AGAIN
            await send_asset(asset, headers, send, keep=keep, more=strict_headers())
        elif subpath.startswith("assets/"):  # an asset of an older build: the page would be a wrong answer
            text = b"this file is of another build of the console: load the page again"
            kind = (b"content-type", b"text/plain; charset=utf-8")
            await send_once(send, 404, text, (kind, (b"cache-control", b"no-store"), *strict_headers()))
        else:
            await self._send_index(scope, send)

    async def _look(self) -> None:
        """List the folder if the page has changed."""
        try:
            built_at = (self._folder / "index.html").stat().st_mtime_ns
        except OSError:
            built_at = 0
        if built_at != self._listing.built_at:
            await self._list(built_at)

    async def _look_again(self) -> None:
        """List the folder again at intervals: a build may have been in progress."""
        if asyncio.get_running_loop().time() - self._listed_at > _LIST_EVERY_S:
            await self._list(self._listing.built_at)

    async def _list(self, built_at: int) -> None:
        self._listed_at = asyncio.get_running_loop().time()
        self._listing = await asyncio.to_thread(_list, self._folder, built_at)
        self._assets.clear()

    async def _asset(self, subpath: str) -> Asset | None:
        """The file at that path, if it is listed and still exists."""
        found, path = self._assets.get(subpath), self._listing.paths.get(subpath)
        if found is None and path is not None:
            try:
                found = await asyncio.to_thread(read_asset, path)
            except OSError:
                return None
            self._assets[subpath] = found
        return found

    async def _send_index(self, scope: Scope, send: Send) -> None:
        """Send the page with a fresh nonce and relative addresses, which work behind a proxy's prefix."""
        nonce = secrets.token_urlsafe(16)
        asset = await self._asset("index.html")
        page = _NOT_BUILT if asset is None else asset.body
        page = page.replace(_NONCE, nonce.encode())
        page = page.replace(_BASE, b'<base href="' + _relative(scope).encode() + b'"')
        kind = (b"content-type", b"text/html; charset=utf-8")
        keep = (b"cache-control", _ASK_AGAIN)
        await send_once(send, 200, page, (kind, keep, *strict_headers(nonce)))


def _relative(scope: Scope) -> str:
    """Relative address of the console's folder from the path of the request."""
    path = bytes(scope.get("raw_path") or scope["path"].encode())
    below = path[path.find(b"/console") + len(b"/console") :]
    depth = below.count(b"/")
    return "console/" if not depth else "../" * (depth - 1) or "./"


def _list(folder: Path, built_at: int) -> _Listing:
    files = [each for each in folder.rglob("*") if each.is_file()] if built_at else []
    return _Listing(built_at, {each.relative_to(folder).as_posix(): each for each in files})
