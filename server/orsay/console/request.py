"""One request to an endpoint that reads the journal, with its validated query."""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError

from ..http.errors import problems_answer
from ..http.mounts import Pairs
from ..http.request import Request
from .answers import refuse, send_body

__all__ = ["BadQuery", "JournalRequest"]

Q = TypeVar("Q", bound=BaseModel)


class BadQuery(Exception):
    """Invalid query; ``body`` is the body of the 422."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.body = body


class JournalRequest:
    """A request to the journal. Only sessions of ``owner`` are visible; None: of all owners."""

    __slots__ = ("http", "owner")

    def __init__(self, http: Request, owner: str | None) -> None:
        self.http = http
        self.owner = owner

    def query(self, model: type[Q]) -> Q:
        """Parse the query; empty values, as forms send them, count as missing. Raises BadQuery."""
        given = dict(parse_qsl(self.http.scope["query_string"].decode("latin-1")))
        try:
            return model.model_validate(given)
        except ValidationError as exc:
            problems = exc.errors(include_url=False, include_context=False)
            body = problems_answer({**each, "loc": ("query", *each["loc"])} for each in problems)
            raise BadQuery(body) from None

    async def answer(self, body: bytes, *, status: int = 200) -> None:
        """Send JSON."""
        await send_body(self.http, body, status=status)

    async def refuse(self, status: int, code: str, detail: str, *, more: Pairs = ()) -> None:
        """Send a refusal with its reason; ``code`` is for programs."""
        await refuse(self.http, status, code, detail, more=more)
