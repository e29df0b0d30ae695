"""The names of secrets that an environment asks for, where clients of ``openreward`` look for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pydantic import BaseModel
from pydantic_core import to_json

from ..http.choice import choose
from ..http.operations import Operation
from ..http.request import Endpoint, Request
from ..runtimes.base import Runtime

__all__ = ["RequiredSecretsMount"]

_BEFORE, _AFTER = "/v1/environments/", "/required-secrets"


class Secrets(BaseModel):
    """Answer of ``required-secrets``."""

    secrets: list[str]


class RequiredSecretsMount:
    """``GET /v1/environments/{owner}/{name}/required-secrets``; the owner may be any, also empty.

    ``secrets_of`` has the names by the key of an environment. It reads files, so a thread runs it.
    """

    operations = (
        Operation(
            "get",
            f"{_BEFORE}{{owner}}/{{name}}{_AFTER}",
            "Names of secrets that the environment's sources ask for.",
            answer=Secrets,
            session=False,
            errors=(401, 404),
            tag="environments",
            name="required_secrets",
        ),
    )

    def __init__(self, runtime: Runtime, secrets_of: Callable[[str], Sequence[str]]) -> None:
        self._runtime = runtime
        self._secrets_of = secrets_of

    def find(self, path: str) -> Mapping[str, Endpoint]:
        if not path.startswith(_BEFORE) or not path.endswith(_AFTER):
            return {}
        _, separator, name = path[len(_BEFORE) : -len(_AFTER)].partition("/")
        return {"GET": partial(self._answer, name)} if separator and name and "/" not in name else {}

    def find_socket(self, path: str) -> Endpoint | None:
        return None

    async def close(self) -> None:
        """It holds nothing."""

    async def _answer(self, name: str, request: Request) -> None:
        info = choose(self._runtime, name, None)
        found = await asyncio.to_thread(self._secrets_of, info.key)
        await request.send_json(to_json({"secrets": list(found)}))
