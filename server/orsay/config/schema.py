"""The JSON schema of ``orsay.toml``, for editors."""

from __future__ import annotations

from typing import Any

from ..settings import Settings
from .entries import TABLES
from .file import ENTRIES, JOURNAL, LABEL, SANDBOXES, SETTING_TABLES

__all__ = ["schema"]


def schema() -> dict[str, Any]:
    """JSON schema of ``orsay.toml``, in the draft that TOML editors support."""
    settings = Settings.model_json_schema(by_alias=True)["properties"]
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "orsay.toml",
        "description": "Settings and environments of an Orsay server.",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            **{name: _tidy(each) for name, each in settings.items()},
            JOURNAL: {
                "anyOf": [
                    _tidy(settings[JOURNAL]),
                    _settings(JOURNAL, "The journal: where it is, and for how long.", settings),
                ]
            },
            SANDBOXES: _settings(SANDBOXES, "Sandboxes for code that environments run.", settings),
            ENTRIES: {
                "description": "What the server hosts, a table each; the first is the default.",
                "type": "object",
                "propertyNames": {"pattern": f"^{LABEL}$"},
                "additionalProperties": {"oneOf": [{"$ref": f"#/definitions/{source}"} for source in TABLES]},
            },
        },
        "definitions": {source: _table(kind) for source, kind in TABLES.items()},
    }


def _settings(title: str, description: str, settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "description": description,
        "type": "object",
        "additionalProperties": False,
        "properties": {key: _tidy(settings[name]) for key, name in SETTING_TABLES[title].items()},
    }


def _table(kind: Any) -> dict[str, Any]:
    found = kind.model_json_schema(by_alias=True)
    return {
        "description": found["description"].split("\n")[0],
        "type": "object",
        "additionalProperties": False,
        "required": found["required"],
        "properties": {name: _tidy(each) for name, each in found["properties"].items()},
    }


def _tidy(field: dict[str, Any]) -> dict[str, Any]:
    """The schema without titles that repeat the name, and without null, which TOML does not have."""
    found = {key: value for key, value in field.items() if key not in ("title", "writeOnly")}
    if "items" in found:
        found["items"] = _tidy(found["items"])
    if found.get("default", 0) is None:
        del found["default"]
    choices = [each for each in found.pop("anyOf", []) if each != {"type": "null"}]
    if len(choices) == 1:
        found = {**choices[0], **found}
    elif choices:
        found["anyOf"] = choices
    return found
