"""Entries that a server hosts: classes, a project folder, an image, another server.

``orsay.toml`` has a table ``[environments.LABEL]`` for each; targets of the command line become the same
tables. An entry is a parsed table with its label, its line, its targets and import folders.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    WithJsonSchema,
)

__all__ = [
    "TABLES",
    "ClassTable",
    "CodeOptions",
    "DirectoryTable",
    "Entry",
    "ImageTable",
    "Table",
    "UpstreamOptions",
    "UrlTable",
]

Text: TypeAlias = Annotated[str, StringConstraints(min_length=1)]
Seconds: TypeAlias = Annotated[float, Field(gt=0)]
Count: TypeAlias = Annotated[int, Field(ge=1)]


def _listed(value: Any) -> Any:
    """A tuple; a single string becomes a tuple of one."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


def _names(value: Any) -> Any:
    flat = [*value, *value.values()] if isinstance(value, dict) else _listed(value)
    if not isinstance(flat, list | tuple) or not all(isinstance(each, str) and each for each in flat):
        raise ValueError('name environments, ["a", "b"], or rename them, { a = "another name" }')
    return value if isinstance(value, dict) else _listed(value)


def _words(value: Any) -> Any:
    return tuple(shlex.split(value)) if isinstance(value, str) else _listed(value)


def _text(value: Any) -> Any:
    """A number or boolean as a string, as in a shell variable."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


_TEXT = {"type": "string", "minLength": 1}
_TEXTS = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
_RENAMED = {"type": "object", "additionalProperties": _TEXT}

Texts: TypeAlias = Annotated[tuple[Text, ...], BeforeValidator(_listed), WithJsonSchema(_TEXTS)]
Words: TypeAlias = Annotated[tuple[Text, ...], BeforeValidator(_words), WithJsonSchema(_TEXTS)]
Scalar: TypeAlias = Annotated[
    str, BeforeValidator(_text), WithJsonSchema({"type": ["string", "number", "boolean"]})
]
Names: TypeAlias = Annotated[
    tuple[Text, ...] | dict[str, Text],
    BeforeValidator(_names),
    WithJsonSchema({"anyOf": [*_TEXTS["anyOf"], _RENAMED]}),
]


class Table(BaseModel):
    """Keys that tables of every kind may have."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    source: ClassVar[str]

    serve: Names | None = Field(
        None, description='which of its environments: ["a"]; renamed: { a = "another name" }; all by default'
    )
    max_sessions: Count | None = Field(None, description="sessions alive at once; the next is answered 429")
    call_time_limit_s: Seconds | None = Field(None, description="of environments that set none themselves")
    setup_time_limit_s: Seconds | None = Field(None, description="of environments that set none themselves")

    @property
    def names(self) -> Mapping[str, str] | None:
        """Names in the source and on this server; None takes all under their own names."""
        return {name: name for name in self.serve} if isinstance(self.serve, tuple) else self.serve


class CodeOptions(Table):
    """Options of environments whose code runs here; any of them gives the entry its own workers."""

    runtime: Literal["process", "local"] | None = Field(None, description="where its code runs")
    data: Text | None = Field(
        None, description="what its code reads at /orwd_data: a name under [sandboxes.data], or a folder"
    )
    workers: Count | None = Field(None, description="worker processes of its own")
    max_workers: Count | None = Field(None, description="with sessions_per_worker: no more processes")
    sessions_per_worker: Count | None = Field(None, description="workers are added as sessions come")
    threads_per_worker: Count | None = None
    teardown_time_limit_s: Seconds | None = None
    worker_memory_limit_mib: Annotated[int, Field(ge=32)] | None = None
    worker_session_limit: Count | None = None
    worker_start_limit_s: Seconds | None = None
    worker_stall_s: Seconds | None = None


class ClassTable(CodeOptions):
    """Environment classes, or whatever else ``orsay serve`` takes as a target."""

    source: ClassVar[str] = "class"

    targets: Texts = Field(alias="class", min_length=1, description="module:Class, or a list of such")
    path: Texts = Field((), description="folders to import from, relative to this file")


class DirectoryTable(CodeOptions):
    """The environments of a project folder."""

    source: ClassVar[str] = "directory"

    directory: Text = Field(description="the project's folder, relative to this file")


class UpstreamOptions(Table):
    """Options of environments behind a URL, a container's included."""

    api_key: SecretStr | None = Field(None, description="API key for the other server")
    api_key_variable: Text | None = Field(None, description="the variable that holds it")
    api_key_file: Text | None = Field(None, description="the file that holds it, relative to this one")
    sandboxes: bool | None = Field(
        None, description="its sessions get a key for the sandboxes of this server, as the secret api_key"
    )
    ping_s: Seconds | None = Field(None, description="time between pings of a session that is in use")
    health_s: Seconds | None = Field(None, description="time between looks whether it is up")
    start_wait_s: Annotated[float, Field(ge=0)] | None = Field(
        None, description="how long the start waits for it"
    )
    connect_timeout_s: Seconds | None = None
    request_timeout_s: Seconds | None = None
    silence_s: Seconds | None = Field(None, description="silence after which a stream counts as broken")


class ImageTable(UpstreamOptions):
    """An image whose containers speak ORS."""

    source: ClassVar[str] = "image"

    image: Text = Field(description="name and tag")
    replicas: Count | None = Field(None, description="containers")
    max_sessions_per_replica: Count | None = None
    spare: Annotated[int, Field(ge=0)] | None = Field(None, description="containers started ahead of need")
    idle_s: Seconds | None = Field(None, description="idle time after which containers stop")
    cpus: Annotated[float, Field(gt=0)] | None = None
    memory: Text | None = Field(None, description='such as "512m" or "2g"')
    pids: Count | None = Field(None, description="processes and threads in a container")
    network: Text | None = Field(
        None, description='"bridge", "isolated" (no outside network), or a network of yours'
    )
    port: Annotated[int, Field(ge=1, le=65535)] | None = Field(None, description="where it listens inside")
    variables: dict[str, Scalar] | None = None
    secrets: dict[str, Text] | None = Field(
        None, description="files on this machine, readable as /run/secrets/NAME; relative to this file"
    )
    volumes: Texts | None = Field(None, description="HOST:CONTAINER[:ro]; HOST is relative to this file")
    command: Words | None = Field(None, description="in place of the image's own")
    user: Text | None = None
    capabilities: Texts | None = Field(None, description='of root, to keep: ["CHOWN"]; none by default')
    read_only: bool | None = Field(None, description="nothing but /tmp can be written to")
    pull: Literal["missing", "always", "never"] | None = None
    start_limit_s: Seconds | None = Field(None, description="how long a container may take to be ready")
    hang_limit_s: Seconds | None = Field(None, description="silence after which a container is replaced")
    stop_grace_s: Annotated[float, Field(ge=0)] | None = Field(
        None, description="between being asked to stop and being killed"
    )
    lease_s: Seconds | None = Field(
        None, description="time after which containers end once this server is gone"
    )


class UrlTable(UpstreamOptions):
    """Entry for another ORS server."""

    source: ClassVar[str] = "url"

    url: Annotated[str, StringConstraints(pattern=r"^https?://[^/\s]+")] = Field(
        description="of any ORS server"
    )


TABLES: Mapping[str, type[ClassTable | DirectoryTable | ImageTable | UrlTable]] = {
    table.source: table for table in (ClassTable, DirectoryTable, ImageTable, UrlTable)
}


@dataclass(frozen=True)
class Entry:
    """A parsed table. ``targets`` and import ``folders`` are for code."""

    label: str
    table: ClassTable | DirectoryTable | ImageTable | UrlTable
    targets: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    where: str = field(default="", compare=False)
    """Source, such as ``orsay.toml:12``; empty for the command line."""

    def __str__(self) -> str:
        return f"{self.label!r} ({self.where})" if self.where else repr(self.label)
