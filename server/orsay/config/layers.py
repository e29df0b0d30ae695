"""Merge of settings: arguments override variables, variables override the file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from ..settings import Settings
from .problems import Problem, explain

__all__ = ["SECRETS", "FileSettings", "origin", "settings_from"]

SECRETS = frozenset({"api_keys", "api_key", "variables", "journal"})


class FileSettings(Settings):
    """The settings of a file alone, in TOML's types, without variables."""

    model_config = SettingsConfigDict(strict=True)

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)

    @model_validator(mode="after")
    def _keys_or_loopback(self) -> FileSettings:
        return self  # keys may come from a variable: only the effective settings can be checked


def settings_from(
    values: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[Settings | None, list[Problem]]:
    """The effective settings, or the problems of arguments, of variables, or of their combination.

    ``values`` are those of the file, already validated.
    """

    class Layered(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            *_: Any,
            **__: Any,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, InitSettingsSource(settings_cls, dict(values))

    try:
        return (Layered if values else Settings)(**given), []
    except ValidationError as exc:
        return None, [_problem(error, given) for error in exc.errors(include_url=False)]
    except ValueError as exc:  # pydantic-settings: a variable that should be JSON; its text may hold a key
        name = str(exc).partition('"')[2].partition('"')[0]
        return None, [Problem(f"variable {_variable(name)}", 'must be a JSON list, such as ["one", "two"]')]


def origin(name: str, given: Mapping[str, Any]) -> str | None:
    """``command line`` or ``variable NAME``; None when the setting comes from neither."""
    if name in given:
        return "command line"
    found = next((each for each in os.environ if each.upper() == _variable(name)), None)
    return None if found is None else f"variable {found}"


def _variable(name: str) -> str:
    return f"ORSAY_{name.upper()}"


def _problem(error: Any, given: Mapping[str, Any]) -> Problem:
    if not error["loc"]:
        return Problem("", str(error["msg"]).removeprefix("Value error, "))
    name = str(error["loc"][0])
    where = origin(name, given) or ""
    return Problem(where, explain(name, error, secret=name in SECRETS))
