"""Sources of OpenEnv environments: a server, containers of an image, or this process."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import LoadError
from .objects import find
from .openenv_offer import Offer, Play
from .spelling import unknown_setting

__all__ = ["Ask", "Opening", "open_source"]

Ask = Callable[[str, dict[str, Any]], Awaitable[Any]]
_URL = re.compile(r"(http|ws)s?://")


async def _no_tasks(what: str, body: dict[str, Any]) -> Any:
    raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Opening:
    """Functions of a source: ``play`` opens an episode, ``ask`` requests tasks if the offer has splits."""

    offer: Offer
    play: Callable[[], Awaitable[Play]]
    ask: Ask = _no_tasks


def open_source(
    source: str | type, settings: Mapping[str, Any], limit_s: float, *, known: Iterable[str]
) -> Opening:
    """Inspect ``source``. ``known`` are the settings of the adapter, for errors.

    Raises LoadError: openenv is missing, ``source`` is no environment of it, or a setting is unknown.
    """
    try:
        importlib.import_module("openenv.core.env_server.interfaces")
    except ImportError as exc:
        raise LoadError(
            f"environments of OpenEnv need the package openenv ({exc}): pip install 'orsay[openenv]'"
        ) from exc
    if isinstance(source, str) and _URL.match(source):
        _require_known(source, settings, ("headers",), known)
        return _url(source, settings.get("headers"), limit_s)
    if isinstance(source, str) and source.startswith("image:"):
        _require_known(source, settings, ("env_vars",), known)
        return _image(source.removeprefix("image:"), settings.get("env_vars") or {}, limit_s)
    return _class(source, settings, known)


def _url(source: str, headers: Mapping[str, str] | None, limit_s: float) -> Opening:
    remote = _module("openenv_remote")
    url = re.sub("^ws", "http", source).rstrip("/")
    offer: Offer = remote.describe(url, headers)

    async def play() -> Play:
        made: Play = remote.RemotePlay(url, offer, limit_s=limit_s, headers=headers)
        return made

    async def ask(what: str, body: dict[str, Any]) -> Any:
        return await remote.ask(url, f"/{offer.task_name}/{what}", body, headers)

    return Opening(offer, play, ask)


def _image(image: str, variables: Mapping[str, str], limit_s: float) -> Opening:
    containers = _module("openenv_image")
    offer: Offer = containers.describe_image(image, variables)

    async def play() -> Play:
        made: Play = await containers.open_image(image, offer, variables, limit_s)
        return made

    return Opening(offer, play)


def _class(source: str | type, settings: Mapping[str, Any], known: Iterable[str]) -> Opening:
    local = _module("openenv_local")
    target = source if isinstance(source, str) else source.__name__
    cls: Any = find("openenv", source) if isinstance(source, str) else source
    local.require_environment(cls, target)
    arguments = {key: value for key, value in settings.items() if key != "concurrent"}
    parameters = inspect.signature(cls).parameters
    if not any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        _require_known(target, arguments, (*parameters, "concurrent"), known)
    capacity = local.Capacity(cls, concurrent=settings.get("concurrent"))

    def make() -> Any:
        return cls(**arguments)

    async def play() -> Play:
        made: Play = local.LocalPlay(make, capacity)
        return made

    return Opening(local.describe_class(cls, make), play)


def _require_known(
    source: str, settings: Mapping[str, Any], own: Iterable[str], known: Iterable[str]
) -> None:
    names = {*own, *known}
    for key in settings:
        if key not in names:
            raise unknown_setting("openenv", source, key, names)


def _module(name: str) -> Any:
    """Import a module of this package that needs openenv."""
    return importlib.import_module(f"{__package__}.{name}")
