"""Names of secrets that the hosted code asks for, read from its sources."""

from __future__ import annotations

from collections.abc import Iterator

from ..authoring.imports import split_target
from ..errors import LoadError
from ..logs import get_logger
from ..packaging.needs.needs import needs_of
from ..packaging.needs.project import sources_of
from .plan import CodeSpec, RuntimeSpec

__all__ = ["secrets_in"]

_KEY = "api_key"  # the client sends its own, and a server with sandboxes replaces it
_log = get_logger(__name__)


def secrets_in(spec: RuntimeSpec, key: str) -> list[str]:
    """The names, sorted; of the class called as ``key``, else of all that the spec hosts.

    None for code in images and on other servers, whose sources are not here.
    """
    if not isinstance(spec, CodeSpec):
        return []
    targets = [part for target in spec.targets for part in target.split(",")]
    own = [target for target in targets if _name(target).lower() == key] or targets
    return sorted({name for target in own for name in _asked(target, spec.folders)} - {_KEY})


def _name(target: str) -> str:
    try:
        return split_target(target)[1]
    except LoadError:
        return ""


def _asked(target: str, folders: tuple[str, ...]) -> Iterator[str]:
    try:
        yield from (need.what for need in needs_of(sources_of(target, folders)) if need.kind == "secret")
    except LoadError as exc:  # an adapter's, or a class of this process
        _log.debug("sources_not_read", target=target, reason=str(exc))
