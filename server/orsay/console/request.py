"""One request for the console's API, and its query, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError

from ..http.asgi import Headers, Receive, Scope, Send
from ..http.errors import problems_answer
from ..http.mounts import Pairs
from .answers import send_body, send_value

__all__ = ["BadQuery", "Request"]

Q = TypeVar("Q", bound=BaseModel)


class BadQuery(Exception):
    """The query does not fit; ``body`` tells why, as the body of a 422 does."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.body = body


@dataclass(frozen=True, slots=True)
class Request:
    """A request, and the channel for its answer. ``owner``: whose sessions it may see; None for all."""

    scope: Scope
    headers: Headers
    owner: str | None
    receive: Receive
    send: Send

    @property
    def method(self) -> str:
        return str(self.scope["method"])

    def query(self, model: type[Q]) -> Q:
        """The parsed query; an empty value is as good as none, as forms send it. Raises BadQuery."""
        given = dict(parse_qsl(self.scope["query_string"].decode("latin-1")))
        try:
            return model.model_validate(given)
        except ValidationError as exc:
            problems = exc.errors(include_url=False, include_context=False)
            body = problems_answer({**each, "loc": ("query", *each["loc"])} for each in problems)
            raise BadQuery(body) from None

    async def answer(self, body: bytes, *, status: int = 200) -> None:
        """With JSON."""
        await send_body(self.send, self.headers, body, status=status)

    async def refuse(self, status: int, code: str, detail: str, *, more: Pairs = ()) -> None:
        """With what went wrong; ``code`` is for programs."""
        headers = ((b"x-orsay-code", code.encode()), *more)
        await send_value(self.send, self.headers, {"detail": detail}, status=status, more=headers)
