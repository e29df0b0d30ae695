"""Settings of a sandbox as the client sends them, and what they are here."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...authoring.sandbox.allow_list import network_of
from ...authoring.sandbox.model import Network
from ...errors import BadRequest, SandboxRefused
from ...sandboxes.base import SandboxSpec

__all__ = ["Catalogue", "read_settings"]

_SIZES = re.compile(r"(\d{1,9}(?:\.\d{1,9})?):(\d{1,9}(?:\.\d{1,9})?)", re.ASCII)
_REFERENCE = re.compile(r"\$\{(\w+)\}")
_GIB = 1 << 30


class _Bucket(BaseModel):
    mount_path: str
    read_only: bool = True
    only_dir: str | None = None
    implicit_dirs: bool = True


class _Ours(BaseModel):
    """What we offer beside the platform's settings, which it goes before."""

    model_config = ConfigDict(extra="forbid")

    cpus: float | None = Field(None, gt=0)
    memory_bytes: int | None = Field(None, gt=0)
    disk_bytes: int | None = Field(None, gt=0)
    processes: int | None = Field(None, gt=0)
    snapshot: str = ""


class _Rule(BaseModel):
    model_config = ConfigDict(extra="forbid")

    action: Literal["allow"]
    host: str
    path: None = None
    methods: None = None


class _Policy(BaseModel):
    """What an allow-list of names can say of ``SandboxNetworkPolicy``: names alone, that are allowed."""

    model_config = ConfigDict(extra="forbid")

    rules: list[_Rule] = []
    presets: list[str] = Field([], max_length=0)
    enforce: Literal[True] = True


class _Settings(BaseModel):
    """SandboxSettings of openreward 0.1.167."""

    model_config = ConfigDict(extra="forbid")

    environment: str
    image: str
    machine_size: str
    env: dict[str, str] | None = None
    block_network: bool = False
    bucket_config: _Bucket | None = None
    sidecars: list[Any] | None = None
    host_aliases: list[Any] | None = None
    network: _Policy | None = None
    orsay: _Ours = _Ours()
    task_id: str | None = None


@dataclass(frozen=True)
class Catalogue:
    """What names of the hosted platform stand for on this machine."""

    images: Mapping[str, str] = field(default_factory=dict)
    """Images by the exact reference that code asks for."""
    data: Mapping[str, Path] = field(default_factory=dict)
    """Folders by the name of an environment, for its buckets."""

    def folder(self, name: str, mount_path: str, only: str = "") -> str:
        """The data of that name, or a folder ``only`` of it, to be mounted at a path. Raises BadRequest."""
        root = self.data.get(name)
        if root is None:
            raise BadRequest(
                f"there is no data of {name!r} on this server: give it a folder, in orsay.toml under"
                f' [sandboxes.data] as "{name}" = "FOLDER"'
            )
        if not mount_path.startswith("/") or os.path.normpath(mount_path) == "/":
            raise BadRequest(f"mount_path {mount_path!r} must be an absolute path below /")
        base = root.resolve()
        folder = (base / only.lstrip("/")).resolve()
        if not folder.is_relative_to(base):
            raise BadRequest(f"only_dir {only!r} leads out of the data of {name!r}")
        if not folder.is_dir():
            raise BadRequest(f"the data of {name!r} has no folder {only or '.'!r} on this server")
        return str(folder)


def read_settings(body: bytes, secrets: Mapping[str, str], catalogue: Catalogue) -> SandboxSpec:
    """The specification that a request asks for. Raises BadRequest with what is unknown or missing."""
    try:
        return _spec(body, secrets, catalogue)
    except SandboxRefused as exc:
        raise BadRequest(str(exc)) from None


def _spec(body: bytes, secrets: Mapping[str, str], catalogue: Catalogue) -> SandboxSpec:
    try:
        wanted = _Settings.model_validate_json(body)
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "body"
        if place.startswith("network."):
            raise BadRequest(
                f"{place} is not supported here: rules that allow hosts are; no sandbox was made"
            ) from None
        raise BadRequest(f"settings of a sandbox, {place}: {first['msg']}") from None
    for name in ("sidecars", "host_aliases"):
        if getattr(wanted, name):
            raise BadRequest(
                f"{name} is not supported here: nothing of it was applied, and no sandbox was made"
            )
    ours = wanted.orsay
    cpus, memory_bytes = _size(wanted.machine_size)
    return SandboxSpec(
        image=catalogue.images.get(wanted.image, wanted.image),
        snapshot=ours.snapshot,
        variables={
            name: _REFERENCE.sub(lambda found: secrets.get(found[1].lower(), found[0]), value)
            for name, value in (wanted.env or {}).items()
        },
        cpus=ours.cpus or cpus,
        memory_bytes=ours.memory_bytes or memory_bytes,
        disk_bytes=ours.disk_bytes,
        processes=ours.processes or SandboxSpec.processes,
        network=_network(wanted),
        folders={} if wanted.bucket_config is None else _folders(wanted, wanted.bucket_config, catalogue),
    )


def _network(wanted: _Settings) -> Network:
    if wanted.block_network or (wanted.network is not None and not wanted.network.rules):
        return "none"
    if wanted.network is None:
        return "open"
    try:
        return network_of([each.host for each in wanted.network.rules])
    except ValueError as exc:
        raise BadRequest(f"settings of a sandbox, network: {exc}") from None


def _size(text: str) -> tuple[float, int]:
    found = _SIZES.fullmatch(text)
    if found is None or not float(found[1]) or not float(found[2]):
        raise BadRequest(f"machine_size {text!r} is not supported here: write CPUs and GB, such as 1:2")
    return float(found[1]), round(float(found[2]) * _GIB)


def _folders(wanted: _Settings, bucket: _Bucket, catalogue: Catalogue) -> dict[str, str]:
    path = os.path.normpath(bucket.mount_path)
    return {path: catalogue.folder(wanted.environment, bucket.mount_path, bucket.only_dir or "")}
