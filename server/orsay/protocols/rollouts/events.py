"""Events of the rollout endpoint, as clients of ``openreward`` send them, and as rows of the journal."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

from orsay_protocol.redact import HIDDEN, Redactor, redact
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import to_json

from ...journal.records import RolloutLogged, RolloutOpened
from ...sandboxes.keys import without_keys

__all__ = [
    "Clean",
    "Events",
    "Message",
    "Started",
    "Update",
    "logged_row",
    "opened_row",
    "read_events",
    "rollout_id",
    "update_row",
]

_MOST_EVENTS = 1_000
_LARGEST = 2**53
_LONGEST_NAME = 1_000

_EventId: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00]*$")]
_Name: TypeAlias = Annotated[str, StringConstraints(max_length=_LONGEST_NAME, pattern=r"^[^\x00]*$")]
_Moment: TypeAlias = Annotated[int, Field(ge=0, le=_LARGEST)]  # milliseconds since 1970
_Object: TypeAlias = dict[str, Any]


class _Event(BaseModel):
    model_config = ConfigDict(extra="ignore")

    eventId: _EventId
    timestamp: _Moment


class Started(_Event):
    """A rollout begins."""

    eventType: Literal["rollout"]
    runName: _Name
    rolloutName: _Name | None = None
    environment: _Name | None = None
    variant: _Name | None = None
    split: _Name | None = None
    step: int | None = Field(None, ge=-_LARGEST, le=_LARGEST)
    metadata: _Object | None = None
    task_spec: _Object | None = None
    run_info: _Object | None = None


class Message(_Event):
    """A message of the rollout ``rolloutEventId``, at position ``index``."""

    eventType: Literal["message"]
    rolloutEventId: _EventId
    index: int = Field(ge=0, le=_LARGEST)
    type: Literal[
        "user_message", "assistant_message", "system_message", "reasoning", "tool_call", "tool_result"
    ]
    content: str | None = None
    contentReference: str | None = None
    summary: str | None = None
    name: str | None = None
    callId: str | None = None
    reward: float | None = None
    isFinished: bool | None = None
    metadata: _Object | None = None


class Update(_Event):
    """More about a rollout, whose own id is ``eventId``."""

    eventType: Literal["rollout_update"]
    rollout_info: _Object | None = None


class Events(BaseModel):
    """Body of ``POST /v1/rollouts``."""

    model_config = ConfigDict(extra="ignore")

    events: list[Annotated[Started | Message | Update, Field(discriminator="eventType")]] = Field(
        max_length=_MOST_EVENTS
    )


def read_events(body: bytes) -> Events:
    """The events; halves of surrogate pairs, which JSON can escape, are replaced. Raises ValidationError."""
    try:
        return Events.model_validate_json(body)
    except ValidationError as exc:
        if exc.errors(include_url=False, include_input=False)[0]["type"] != "json_invalid":
            raise
        try:
            text = json.dumps(json.loads(body), ensure_ascii=False)
        except (ValueError, RecursionError):
            raise exc from None
        return Events.model_validate_json(text.encode(errors="replace"))


def rollout_id(owner: str, event: str) -> int:
    """Id of a rollout in the journal; no other owner has an id that leads to it."""
    digest = hashlib.blake2b(f"{owner}\0{event}".encode(), digest_size=8, person=b"rollout").digest()
    return int.from_bytes(digest) >> 1


class Clean:
    """Texts and JSON without secrets, and without keys of sessions."""

    def __init__(self, hides: Sequence[Redactor]) -> None:
        self._hides = [hide for hide in hides if hide]

    def text(self, text: str | None) -> str | None:
        return None if text is None else self._text(text)

    def name(self, text: str | None) -> str | None:
        """A short text; what a model made up may be long."""
        return None if text is None else self._text(text)[:_LONGEST_NAME]

    def json(self, value: _Object | None) -> str | None:
        return None if value is None else to_json(self._value(value), inf_nan_mode="null").decode()

    def _text(self, text: str) -> str:
        return redact(without_keys(text), self._hides).replace("\0", "\ufffd")

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            return {self._text(name): self._value(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._value(each) for each in value]
        is_number = isinstance(value, int | float)
        return HIDDEN if is_number and any(hide.hides(value) for hide in self._hides) else value


def opened_row(event: Started, clean: Clean, *, owner: str, client: str, now: float) -> RolloutOpened:
    return RolloutOpened(
        id=rollout_id(owner, event.eventId),
        event=event.eventId,
        owner=owner,
        run=clean.name(event.runName) or "",
        name=clean.name(event.rolloutName),
        environment=clean.name(event.environment),
        variant=clean.name(event.variant),
        split=clean.name(event.split),
        step=event.step,
        task_spec=clean.json(event.task_spec),
        metadata=clean.json(event.metadata),
        run_info=clean.json(event.run_info),
        client=clean.name(client) or "",
        started_at=now,
    )


def logged_row(event: Message, clean: Clean, *, owner: str) -> RolloutLogged:
    reward = event.reward
    return RolloutLogged(
        rollout=rollout_id(owner, event.rolloutEventId),
        event=event.eventId,
        number=event.index,
        kind=event.type,
        content=clean.text(event.content),
        summary=clean.text(event.summary),
        reference=clean.text(event.contentReference),
        name=clean.name(event.name),
        call=clean.name(event.callId),
        reward=reward if reward is not None and math.isfinite(reward) else None,
        finished=bool(event.isFinished),
        metadata=clean.json(event.metadata or None),
        at=event.timestamp / 1000,
    )


def update_row(event: Update, clean: Clean, *, owner: str) -> RolloutLogged:
    """Its own id is that of the rollout, of which there may be several: one is made of what it says."""
    told = clean.json(event.rollout_info or {}) or ""
    digest = hashlib.blake2b(told.encode(), digest_size=8).hexdigest()
    return RolloutLogged(
        rollout=rollout_id(owner, event.eventId),
        event=f"update-{event.timestamp}-{digest}",
        number=None,
        kind="update",
        content=None,
        summary=None,
        reference=None,
        name=None,
        call=None,
        reward=None,
        finished=False,
        metadata=told,
        at=event.timestamp / 1000,
    )
