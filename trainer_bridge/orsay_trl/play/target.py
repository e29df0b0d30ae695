"""Address and credentials of one environment, and connections to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .source import ServerSource, Source

__all__ = ["Target"]

_USER = re.compile("//[^/]*@")  # of a URL, with the password


@dataclass(frozen=True, slots=True, repr=False)
class Target:
    """An environment of an ORS server by URL, or of the OpenReward catalog as ``owner/name``.

    Raises ValueError for other names, and for settings that the catalog does not support.
    """

    name: str
    env_name: str | None = None
    api_key: str | None = None
    headers: Mapping[str, str] | None = None
    ca_file: str | None = None
    secrets: Mapping[str, str] | None = None
    request_tries: int = 6

    def __post_init__(self) -> None:
        if not self.is_url and self.name.count("/") != 1:
            raise ValueError(
                f"target must be a URL or owner/name of the OpenReward catalog, not {self.name!r}"
            )
        if not self.is_url and (self.headers or self.ca_file):
            raise ValueError("headers and ca_file are for a server by URL, not for the OpenReward catalog")

    def __repr__(self) -> str:
        return f"<Target {self.address}>"

    @property
    def is_url(self) -> bool:
        return "://" in self.name

    @property
    def address(self) -> str:
        """The name without user and password, for messages."""
        return _USER.sub("//", self.name)

    @property
    def class_name(self) -> str:
        """Python identifier for the class that TRL shows for this environment."""
        name = self.env_name or self.address.rstrip("/").rsplit("/", 1)[-1]
        plain = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name)
        return f"Environment_{plain.strip('_')}"

    def connect(self) -> Source:
        """New connection; called on the playing event loop."""
        if self.is_url:
            return ServerSource(
                self.name,
                env_name=self.env_name,
                api_key=self.api_key,
                headers=self.headers,
                ca_file=self.ca_file,
                secrets=self.secrets,
                tries=self.request_tries,
            )
        from .catalog import CatalogSource  # needs openreward, an optional dependency

        return CatalogSource(self.name, env_name=self.env_name, api_key=self.api_key, secrets=self.secrets)
