"""Answers of the console: common headers, and JSON with compression of large bodies."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

from ..http.assets import accepts_gzip
from ..http.mounts import Pairs
from ..http.request import Request

__all__ = ["compress", "plain", "refuse", "send_body", "send_value", "strict_headers"]

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'{nonce}; img-src 'self' data: blob:;"
    " connect-src 'self'; font-src 'self'; frame-ancestors 'none'; base-uri 'self'; form-action 'none'"
)
_GUARDS: Pairs = ((b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))
_NO_NONCE: Pairs = ((b"content-security-policy", _POLICY.format(nonce="").encode()), *_GUARDS)
_JSON: Pairs = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"))
_WORTH_BYTES = 1_024
_AT_ONCE_BYTES = 64 * 1_024
_LEVEL = 5


def strict_headers(nonce: str | None = None) -> Pairs:
    """Security headers: load nothing from other origins, no type sniffing, no referrer.

    Styles that carry ``nonce`` are allowed in the page itself.
    """
    if nonce is None:
        return _NO_NONCE
    policy = _POLICY.format(nonce=f" 'nonce-{nonce}'")
    return ((b"content-security-policy", policy.encode()), *_GUARDS)


def plain(text: str) -> str:
    """JSON data without lone surrogates, which clients may have sent and JSON cannot carry."""
    return text.encode(errors="replace").decode()


async def compress(body: bytes) -> bytes:
    """Compress the body with gzip; large bodies on a thread."""
    if len(body) <= _AT_ONCE_BYTES:
        return gzip.compress(body, _LEVEL, mtime=0)
    return await asyncio.to_thread(gzip.compress, body, _LEVEL, mtime=0)


async def send_value(
    request: Request, value: BaseModel | Any, *, status: int = 200, more: Pairs = ()
) -> None:
    """Send a model or JSON data."""
    body = value.model_dump_json().encode() if isinstance(value, BaseModel) else to_json(value)
    await send_body(request, body, status=status, more=more)


async def refuse(request: Request, status: int, code: str, detail: str, *, more: Pairs = ()) -> None:
    """Send an error as JSON; ``code`` is for programs."""
    headers = ((b"x-orsay-code", code.encode()), *more)
    await send_value(request, {"detail": detail}, status=status, more=headers)


async def send_body(request: Request, body: bytes, *, status: int = 200, more: Pairs = ()) -> None:
    """Send encoded JSON."""
    more += ((b"vary", b"accept-encoding"),)
    if len(body) >= _WORTH_BYTES and accepts_gzip(request.headers):
        body = await compress(body)
        more += ((b"content-encoding", b"gzip"),)
    await request.send_once(status, body, (*_JSON, *more, *_NO_NONCE))
