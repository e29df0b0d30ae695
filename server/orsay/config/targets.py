"""Targets of the command line as entries: classes, ``http://HOST``, ``docker:IMAGE``."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from ..errors import ConfigError
from .entries import ClassTable, Entry, ImageTable, UrlTable

__all__ = ["is_url", "read_targets"]

_IMAGE = "docker:"


def is_url(target: str) -> bool:
    """True for the URL of another server."""
    return target.startswith(("http://", "https://"))


def read_targets(targets: Sequence[str], runtime: str) -> list[Entry]:
    """Entries in the order of the targets; with ``docker`` and ``remote`` bare ones are images and URLs.

    Raises ConfigError for an invalid target.
    """
    return [_entry(target, runtime) for target in targets]


def _entry(target: str, runtime: str) -> Entry:
    if is_url(target) or runtime == "remote":
        url = target if is_url(target) else f"http://{target}"
        if not urlsplit(url).hostname:
            raise ConfigError(f"{target!r} is no URL; write http://HOST:PORT")
        return Entry(urlsplit(url).netloc.rpartition("@")[2], UrlTable(url=url))
    if target.startswith(_IMAGE) or runtime == "docker":
        image = target.removeprefix(_IMAGE)
        if not image:
            raise ConfigError(f"{target!r} names no image; write docker:IMAGE")
        return Entry(image, ImageTable(image=image))
    return Entry(target, ClassTable.model_validate({"class": target}), (target,))
