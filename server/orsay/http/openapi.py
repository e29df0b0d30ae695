"""The OpenAPI document of all endpoints.

FastAPI describes the discovery endpoints, which it routes; the table here describes all others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from orsay_protocol.blocks import ImageBlock, Message, TextBlock
from orsay_protocol.faults import Fault
from orsay_protocol.headers import MOST_SECRET_BYTES, MOST_SECRETS
from orsay_protocol.requests import CallTool, CancelCall, CreateSession, ScoreGroup, ScoreGroupOutput
from orsay_protocol.tools import ListToolsOutput, RunToolOutput
from pydantic import BaseModel, RootModel
from pydantic.json_schema import models_json_schema

from .operations import Operation

__all__ = ["describe"]


class Status(BaseModel):
    """``status`` is ``ok``, or ``ready``."""

    status: str


class SessionAnswer(BaseModel):
    """The id of the session."""

    sid: str


class DeleteAnswer(BaseModel):
    """The id of the session, and how its teardown failed, if it did."""

    sid: str
    fault: Fault | None = None


class CancelAnswer(BaseModel):
    """``cancelled``: there was such a call, and it was still running."""

    cancelled: bool


class Prompt(RootModel[list[TextBlock | ImageBlock]]):
    """Blocks of the prompt."""


class Messages(RootModel[list[Message]]):
    """The prompt as a conversation."""


class ServerSentEvent(BaseModel):
    """One event of a stream (WHATWG HTML, "Server-sent events")."""

    event: str
    data: str


class ErrorAnswer(BaseModel):
    """The error, for people."""

    detail: str


class Problem(BaseModel):
    """One reason why a body does not fit."""

    type: str
    loc: list[str | int]
    msg: str


class ProblemAnswer(BaseModel):
    """Every reason why the body does not fit."""

    detail: list[Problem]


_ERRORS: dict[int, tuple[str, type[BaseModel]]] = {
    400: ("the request is not complete or does not fit the environment", ErrorAnswer),
    401: ("the API key is missing or wrong", ErrorAnswer),
    403: ("a server without keys, asked at a foreign name or by a foreign web page", ErrorAnswer),
    404: ("no such session, environment or capability", ErrorAnswer),
    409: ("the session id, or the Idempotency-Key, belongs to another request", ErrorAnswer),
    410: ("the session has ended; detail has the reason", ErrorAnswer),
    413: ("the body is over the server's limit", ErrorAnswer),
    422: ("the body does not fit its schema", ProblemAnswer),
    429: ("a limit is reached; try again after Retry-After", ErrorAnswer),
    500: ("code of the environment failed; X-Orsay-Fault names the class", ErrorAnswer),
    503: ("still starting (X-Backend-State: starting) or shutting down; nothing ran", ErrorAnswer),
}

_EVENTS = "text/event-stream"
_STREAM = (
    "Server-sent events: `task_id` first; then the result as `chunk` events and one `end`, whose data joined"
    " are JSON; or `fault` (JSON, see Fault) and `error` (text). Comments keep a long stream alive."
)


_CALL_ERRORS = (400, 401, 404, 409, 410, 413, 422, 429, 500, 503)
_DISCOVERY_ERRORS = (400, 401, 404, 413, 422, 429, 500, 503)
_OPERATIONS = (
    Operation("get", "/health", "The server answers.", Status, session=False, errors=(), tag="server"),
    Operation(
        "get", "/ready", "The environments are loaded.", Status, session=False, errors=(503,), tag="server"
    ),
    Operation(
        "post",
        "/create_session",
        "A fresh session id: as JSON, or as events when Accept asks for text/event-stream.",
        SessionAnswer,
        session=False,
        stream=True,
        errors=(401,),
    ),
    Operation(
        "post", "/delete_session", "Does nothing, for clients that send it.", SessionAnswer, errors=(400, 401)
    ),
    Operation(
        "post",
        "/create",
        "Open a session: build the environment for one task. Sent again, it changes nothing.",
        SessionAnswer,
        body=CreateSession,
        headers=("X-Secrets",),
        errors=(400, 401, 404, 409, 410, 413, 422, 429, 500, 503),
    ),
    Operation(
        "post", "/delete", "End a session; fine for one that is unknown.", DeleteAnswer, errors=(400, 401)
    ),
    Operation("post", "/ping", "Keep a session alive.", Status),
    Operation(
        "post",
        "/cancel",
        "Stop a running call, named by its task_id or by its Idempotency-Key; its stream ends with a fault.",
        CancelAnswer,
        body=CancelCall,
        headers=("Idempotency-Key",),
        errors=(400, 401, 404, 410, 413, 422),
    ),
    Operation(
        "get",
        "/{env}/prompt",
        "The prompt of the session's task.",
        Prompt,
        errors=(400, 401, 404, 410, 500, 503),
    ),
    Operation(
        "get", "/{env}/messages", "The prompt as messages.", Messages, errors=(400, 401, 404, 410, 500, 503)
    ),
    Operation(
        "get",
        "/{env}/task_tools",
        "The tools of this very session.",
        ListToolsOutput,
        errors=(400, 401, 404, 410, 500, 503),
    ),
    Operation(
        "post",
        "/{env}/call",
        "Call a tool, or attach to a call by task_id.",
        RunToolOutput,
        body=CallTool,
        stream=True,
        headers=("Idempotency-Key",),
        errors=_CALL_ERRORS,
    ),
    Operation(
        "post",
        "/{env}/score_group",
        "Score the rollouts of a group.",
        ScoreGroupOutput,
        body=ScoreGroup,
        stream=True,
        headers=("Idempotency-Key",),
        errors=_CALL_ERRORS,
    ),
)

_HEADERS = {
    "X-Session-ID": "the session",
    "X-Secrets": f'base64 of JSON {{name: {{"value": string}}}}; {MOST_SECRETS} names at most, and'
    f" {MOST_SECRET_BYTES:,} bytes of names and values",
    "Idempotency-Key": "a call is done once per key; with another body, 409",
}


def describe(app: FastAPI, more: Sequence[Operation] = ()) -> dict[str, Any]:
    """The OpenAPI document, made once; ``more`` are endpoints of other protocols on the same server."""
    if app.openapi_schema is not None:
        return app.openapi_schema
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    document["servers"] = [{"url": "."}]  # relative to this document: a proxy may add a prefix
    operations = [*_OPERATIONS, *more]
    references, schemas = _schemas(operations)
    components = document.setdefault("components", {})
    components["schemas"] = {**schemas, **components.get("schemas", {})}
    components["securitySchemes"] = {
        "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        "bearer": {"type": "http", "scheme": "bearer"},
    }
    document["security"] = [{}, {"key": []}, {"bearer": []}]
    for path, methods in document["paths"].items():
        statuses = _DISCOVERY_ERRORS if "{env}" in path else (401, 503)
        for entry in methods.values():
            entry["responses"].update(_errors(statuses, references))
    for operation in operations:
        entry = _entry(operation, references)
        document["paths"].setdefault(operation.path, {})[operation.method] = entry
    app.openapi_schema = document
    return document


def _schemas(
    operations: Sequence[Operation],
) -> tuple[dict[type[BaseModel], dict[str, Any]], dict[str, Any]]:
    bodies = {operation.body for operation in operations if operation.body is not None}
    answers = {operation.answer for operation in operations if operation.answer is not None}
    answers |= {ErrorAnswer, ProblemAnswer, Fault, ServerSentEvent}
    wanted: list[tuple[type[BaseModel], Any]] = [(model, "validation") for model in sorted(bodies, key=_name)]
    wanted += [(model, "serialization") for model in sorted(answers, key=_name)]
    found, definitions = models_json_schema(wanted, ref_template="#/components/schemas/{model}")
    references = {wanted_model: found[wanted_model, mode] for wanted_model, mode in wanted}
    return references, definitions["$defs"]


def _name(model: type[BaseModel]) -> str:
    return model.__name__


def _entry(operation: Operation, references: dict[type[BaseModel], dict[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    json_answer = operation.answer is not None and (
        not operation.stream or operation.path == "/create_session"
    )
    if json_answer and operation.answer is not None:
        content["application/json"] = {"schema": references[operation.answer]}
    if operation.media is not None:
        content[operation.media] = {"schema": {"type": "string"}}
    if operation.stream or operation.media == _EVENTS:
        content[_EVENTS] = {"schema": references[ServerSentEvent]}  # of each event
    text = operation.summary
    if operation.stream and operation.answer is not None and not json_answer:
        text += f" {_STREAM} Here the JSON is {operation.answer.__name__}."
    entry: dict[str, Any] = {
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": text,
        "operationId": operation.name or operation.path.strip("/").replace("{env}/", ""),
        "parameters": _parameters(operation),
        "responses": {"200": {"description": "done", "content": content}},
    }
    if operation.body is not None:
        schema = references[operation.body]
        entry["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    entry["responses"].update(_errors(operation.errors, references))
    return entry


def _errors(
    statuses: Sequence[int], references: dict[type[BaseModel], dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    answers: dict[str, dict[str, Any]] = {}
    for status in sorted({*statuses, 400, 403} if 401 in statuses else statuses):
        what, model = _ERRORS[status]
        answer = answers[str(status)] = {
            "description": what,
            "content": {"application/json": {"schema": references[model]}},
        }
        if status in (429, 503):
            answer["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "seconds"}}
    return answers


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = []
    if "{env}" in operation.path:
        parameters.append(
            {
                "name": "env",
                "in": "path",
                "required": True,
                "description": "any environment's name, or none: the session determines the environment",
                "schema": {"type": "string"},
            }
        )
    for name in re.findall(r"\{(\w+)\}", operation.path.replace("{env}", "")):
        schema = {"type": "string", "minLength": 1, "maxLength": 256}
        parameters.append({"name": name, "in": "path", "required": True, "schema": schema})
    parameters += _query(operation.query) if operation.query is not None else []
    names = (["X-Session-ID"] if operation.session else []) + list(operation.headers)
    for name in names:
        required = operation.session and name == "X-Session-ID"
        schema = {"type": "string", **({"minLength": 1, "maxLength": 256} if required else {})}
        parameters.append(
            {
                "name": name,
                "in": "header",
                "required": required,
                "description": _HEADERS[name],
                "schema": schema,
            }
        )
    return parameters


def _query(model: type[BaseModel]) -> list[dict[str, Any]]:
    found = model.model_json_schema()
    wanted = found.get("required", ())
    return [
        {
            "name": name,
            "in": "query",
            "required": name in wanted,
            "description": schema.get("description", ""),
            "schema": {key: value for key, value in schema.items() if key not in ("title", "description")},
        }
        for name, schema in found.get("properties", {}).items()
    ]
