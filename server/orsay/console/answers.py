"""Answers of the console: the headers that all carry, and JSON that is compressed when large."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

from ..http.asgi import Headers, Send, send_once
from ..http.assets import accepts_gzip
from ..http.mounts import Pairs

__all__ = ["compress", "plain", "send_body", "send_value", "strict_headers"]

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
    """Content policy for browsers: load nothing from elsewhere, guess no type, send no referrer.

    Styles that carry ``nonce`` are allowed in the page itself.
    """
    if nonce is None:
        return _NO_NONCE
    policy = _POLICY.format(nonce=f" 'nonce-{nonce}'")
    return ((b"content-security-policy", policy.encode()), *_GUARDS)


def plain(text: str) -> str:
    """The same, where clients may have sent halves of letters, which no JSON can carry."""
    return text.encode(errors="replace").decode()


async def compress(body: bytes) -> bytes:
    """With gzip; what takes a while is done in a thread."""
    if len(body) <= _AT_ONCE_BYTES:
        return gzip.compress(body, _LEVEL, mtime=0)
    return await asyncio.to_thread(gzip.compress, body, _LEVEL, mtime=0)


async def send_value(
    send: Send, headers: Headers, value: BaseModel | Any, *, status: int = 200, more: Pairs = ()
) -> None:
    """A model, or anything that is JSON."""
    body = value.model_dump_json().encode() if isinstance(value, BaseModel) else to_json(value)
    await send_body(send, headers, body, status=status, more=more)


async def send_body(
    send: Send, headers: Headers, body: bytes, *, status: int = 200, more: Pairs = ()
) -> None:
    """JSON that is bytes already."""
    more += ((b"vary", b"accept-encoding"),)
    if len(body) >= _WORTH_BYTES and accepts_gzip(headers):
        body = await compress(body)
        more += ((b"content-encoding", b"gzip"),)
    await send_once(send, status, body, (*_JSON, *more, *_NO_NONCE))
