"""Default certificates, read once in a test process: 27 ms of CPU that each HTTP client pays otherwise."""

from __future__ import annotations

import functools
import ssl
from typing import Any

import certifi

__all__ = ["read_once"]


@functools.cache
def read_once() -> None:
    """Share one default context among the clients of this process that trust certifi's certificates."""
    create = ssl.create_default_context
    shared = functools.cache(functools.partial(create, cafile=certifi.where()))

    def default(purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH, **options: Any) -> ssl.SSLContext:
        trusts_default = purpose is ssl.Purpose.SERVER_AUTH and options == {"cafile": certifi.where()}
        return shared() if trusts_default else create(purpose, **options)

    ssl.create_default_context = default
