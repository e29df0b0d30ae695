"""Builds the image of a project on a Docker engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..errors import ConfigError
from ..runtimes.docker.engine import Engine
from ..suggest import did_you_mean
from .context import Contents, tar
from .context import read as read_contents
from .dockerfile import arguments, text
from .project import Project
from .wheel import requirement

__all__ = ["Recipe", "build"]


@dataclass(frozen=True)
class Recipe:
    """Options of a build. None: the base of the Dockerfile, the orsay that runs here."""

    tag: str
    base: str | None = None
    orsay: str | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    no_cache: bool = False


async def build(
    engine: Engine,
    project: Project,
    recipe: Recipe,
    *,
    on_line: Callable[[str], None] = lambda line: None,
    on_packed: Callable[[Contents, Mapping[str, int]], None] = lambda contents, sizes: None,
) -> str:
    """The id of the image, tagged.

    ``on_line`` gets the engine's output, ``on_packed`` the selected and left out files.

    Raises ConfigError for an option that the Dockerfile does not support, LoadError for a project that cannot
    be packed, EngineError with the last lines of the failed step.
    """
    installed = requirement(recipe.orsay)
    contents = read_contents(project)
    dockerfile = text(project, orsay=installed.pip, base=recipe.base)
    offered = arguments(dockerfile)
    if recipe.orsay is not None and "ORSAY" not in offered:
        raise ConfigError("the project's Dockerfile has no ARG ORSAY, so what it installs cannot be chosen")
    for name in recipe.arguments:
        if name not in offered:
            hint = did_you_mean(name, offered, listed=False)
            raise ConfigError(f"the project's Dockerfile has no ARG {name}{hint}")
    more = installed.files if "ORSAY" in offered else {}
    written = {**more, "Dockerfile": dockerfile.encode()}
    sizes = {relpath: kept.size for relpath, kept in contents.files.items()}
    on_packed(contents, sizes | {relpath: len(data) for relpath, data in written.items()})
    with tar(project, contents, dockerfile=dockerfile, more=more) as packed:
        return await engine.build(
            packed,
            tag=recipe.tag,
            buildargs=recipe.arguments,
            no_cache=recipe.no_cache,
            on_line=on_line,
        )
