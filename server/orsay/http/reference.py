"""``/docs`` and ``/redoc``: two views of the OpenAPI document, by Swagger UI and by Redoc.

They load nothing from other servers: their files are in the package (``pages``), built with the console. All
addresses are relative, so that a proxy may add a prefix.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from .assets import Asset, read_asset, send_asset
from .mounts import Pairs
from .operations import Operation
from .request import Endpoint, Request

__all__ = ["ReferenceMount"]

_FILES = Path(__file__).parent / "pages"
_BELOW = "/docs/"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; img-src 'self' data:;"
    " connect-src 'self'; worker-src blob:; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'self'{framers}"
)
_GUARDS: Pairs = ((b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Orsay</title>
<link rel="icon" href="data:,">
{styles}
</head>
<body>
<div id="page" data-document="{up}openapi.json"></div>
{scripts}
</body>
</html>
"""
_PAGES = {
    "/docs": (("page.css", "swagger-ui.css"), ("swagger-ui.js", "docs.js")),
    "/redoc": (("page.css",), ("nonce.js", "redoc.standalone.js", "redoc.js")),
}
"""Styles and scripts of each."""


class ReferenceMount:
    """``framers``: origins of other pages that may show these in a frame."""

    operations: Sequence[Operation] = ()

    def __init__(self, framers: Sequence[str] = ()) -> None:
        self._framers = "".join(f" {each}" for each in framers)
        self._names = {name for files in _PAGES.values() for each in files for name in each}
        self._names.add("licenses.md")
        self._assets: dict[str, Asset] = {}

    def find(self, path: str) -> Mapping[str, Endpoint]:
        if path in _PAGES:
            endpoint: Endpoint = partial(self._page, path)
        elif path.startswith(_BELOW) and path[len(_BELOW) :] in self._names:
            endpoint = partial(self._file, path[len(_BELOW) :])
        else:
            return {}
        return {"GET": endpoint, "HEAD": endpoint}

    def find_socket(self, path: str) -> Endpoint | None:
        return None

    async def close(self) -> None:
        """Do nothing: the mount holds no resources."""

    async def _page(self, path: str, request: Request) -> None:
        """Send the page, with a nonce for the styles that its scripts add."""
        nonce = secrets.token_urlsafe(16)
        up = "../" if request.scope.get("raw_path", b"").endswith(b"/") else ""
        styles, scripts = _PAGES[path]
        page = _PAGE.format(
            up=up,
            styles="\n".join(f'<link rel="stylesheet" href="{up}docs/{name}">' for name in styles),
            scripts="\n".join(f'<script src="{up}docs/{name}" nonce="{nonce}"></script>' for name in scripts),
        )
        policy = _POLICY.format(nonce=nonce, framers=self._framers)
        answer: Pairs = (
            (b"content-type", b"text/html; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"content-security-policy", policy.encode()),
            *_GUARDS,
        )
        await request.send_once(200, page.encode(), answer)

    async def _file(self, name: str, request: Request) -> None:
        if name not in self._assets:
            self._assets[name] = await asyncio.to_thread(read_asset, _FILES / name)
        await send_asset(self._assets[name], request.headers, request.send, keep=b"no-cache", more=_GUARDS)
