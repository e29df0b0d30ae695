"""Requests as plain ASGI: what is known of a client without waiting for it."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from orsay.http.asgi import cycle_of, has_gone, has_left


class UvicornsCycle:
    """A request of an unchanged uvicorn, as far as an application finds it behind ``receive``."""

    def __init__(self) -> None:
        self.disconnected = False
        self.received = 0

    async def receive(self) -> MutableMapping[str, Any]:
        self.received += 1
        return {"type": "http.request"}


def test_below_an_unchanged_uvicorn_a_disconnect_is_found_without_a_read() -> None:
    cycle = UvicornsCycle()
    assert not has_gone(cycle.receive) and not has_left(cycle.receive)
    cycle.disconnected = True
    assert has_gone(cycle.receive) and has_left(cycle.receive)
    assert cycle.received == 0 and cycle_of(cycle.receive) is None
