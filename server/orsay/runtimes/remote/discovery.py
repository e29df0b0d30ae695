"""Discovery of an upstream's environments.

An Orsay server describes everything at ``/environments``; other servers list names, tools and splits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from orsay_protocol.headers import CODE
from orsay_protocol.redact import Redactor
from orsay_protocol.requests import Split
from orsay_protocol.tools import ListToolsOutput, TerminalToolSpec, ToolSpec
from pydantic import TypeAdapter, ValidationError

from ...errors import Forbidden
from ..base import EnvironmentInfo
from .answers import detail_of, is_starting
from .http import Answer, Broken

__all__ = ["Found", "Unusable", "discover", "env_path"]

Get = Callable[[str], Awaitable[Answer]]
_INFOS = TypeAdapter(tuple[EnvironmentInfo, ...])


class Unusable(Exception):
    """The server at the URL cannot be used; the text has reason and remedy."""


@dataclass(frozen=True, slots=True)
class Found:
    """Result of discovery. ``ours``: honours Idempotency-Key. ``versioned``: has ``/version``."""

    environments: tuple[EnvironmentInfo, ...]
    ours: bool
    versioned: bool


def env_path(key: str) -> str:
    return f"/{quote(key, safe='')}"


async def discover(get: Get, hide: Redactor) -> Found:
    """Query the server through ``get``. Raises Unusable, or Broken while it is down.

    ``hide`` removes secrets from its texts.
    """
    version = await _version(get, hide)
    described = version.json() if version.status == 200 else None
    versioned = isinstance(described, dict) and "version" in described
    ours = versioned and isinstance(described, dict) and described.get("server") == "orsay"
    if ours:
        answer = await get("/environments")
        if answer.status == 200:
            try:
                return Found(_INFOS.validate_json(answer.body), ours, versioned)
            except ValidationError:
                pass  # another release's format: use names, tools and splits
        elif answer.status != 404:
            raise _refusal(answer, "/environments", hide)
    return Found(await _by_name(get, hide), ours, versioned)


async def _version(get: Get, hide: Redactor) -> Answer:
    """Answer to GET /version; a temporary one only of a proxy that does not route that path.

    Raises Broken while a server of ours starts: taken for another, its environments would not be replayable.
    """
    version = await get("/version")
    if _is_temporary(version) and not _is_ours(version):
        await _names(get, hide)  # raises Broken while the server behind the proxy is down
        version = await get("/version")  # it may have come up meanwhile
    if _is_temporary(version) and _is_ours(version):
        raise _refusal(version, "/version", hide)
    return version


async def _by_name(get: Get, hide: Redactor) -> tuple[EnvironmentInfo, ...]:
    return tuple([await _environment(get, name, hide) for name in await _names(get, hide)])


async def _names(get: Get, hide: Redactor) -> list[str]:
    answer = await get("/list_environments")
    names = answer.json() if answer.status == 200 else None
    if answer.status != 200:
        raise _refusal(answer, "/list_environments", hide)
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise Unusable("is no ORS server: GET /list_environments lists no environments; is the URL right?")
    return names


async def _environment(get: Get, name: str, hide: Redactor) -> EnvironmentInfo:
    tools = await get(f"{env_path(name)}/tools")
    splits = await get(f"{env_path(name)}/splits")
    for answer, path in ((tools, "tools"), (splits, "splits")):
        if answer.status != 200:
            raise _refusal(answer, f"/{name}/{path}", hide)
    try:
        listing = _listing(tools.json())
        return EnvironmentInfo(
            name=name,
            key=name.lower(),
            description="",
            listing=listing,
            splits=tuple(Split(name=each["name"], type=each["type"]) for each in splits.json()),
            supports_score_group=bool(listing.supports_score_group),
            call_time_limit_s=None,
            setup_time_limit_s=None,
            tool_time_limits_s={},
            detached_tools=frozenset(),
        )
    except (ValidationError, KeyError, TypeError, AttributeError) as exc:
        text = f"describes its environment {name!r} in a way that is not ORS: {type(exc).__name__}: {exc}"
        raise Unusable(text) from exc


def _listing(raw: Any) -> ListToolsOutput:
    """The listing without unknown keys."""
    terminal = raw.get("terminal_tool")
    return ListToolsOutput(
        tools=[
            ToolSpec(
                name=each["name"],
                description=each.get("description") or "",
                input_schema=each.get("input_schema"),
            )
            for each in raw["tools"]
        ],
        terminal_tool=None
        if terminal is None
        else TerminalToolSpec(
            name=terminal["name"], arg=terminal.get("arg"), description=terminal.get("description") or ""
        ),
        supports_score_group=raw.get("supports_score_group"),
        message_block_types=raw.get("message_block_types"),
    )


def _is_ours(answer: Answer) -> bool:
    """True for an error answer of an Orsay server, or of another that starts."""
    return is_starting(answer) or CODE in answer.headers


def _is_temporary(answer: Answer) -> bool:
    return answer.status in (429, 502, 503, 504)


def _refusal(answer: Answer, path: str, hide: Redactor) -> Exception:
    """Broken for a temporary failure, Unusable for a permanent one."""
    answered = f"{answer.status} {detail_of(answer, hide)}"
    if answer.status in (401, 403):
        what = "this server" if answer.headers.get(CODE) == Forbidden.code else "the API key"
        return Unusable(f"refused {what} (GET {path}: {answered})")
    if _is_temporary(answer):
        return _down(f"not ready yet (GET {path}: {answered})")
    if answer.status >= 500:
        return _down(f"GET {path} failed: {answered}")
    return Unusable(f"is no ORS server (GET {path} answered {answer.status}); is the URL right?")


def _down(text: str) -> Broken:
    return Broken(text, may_have_run=False, unreachable=True)
