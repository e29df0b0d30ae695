"""Docker images that hold an OpenEnv server: a container for each episode, run by OpenEnv's own provider.

Imports openenv, so it is itself imported only where such an environment is made or played.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from openenv.core.containers.runtime.providers import LocalDockerProvider

from ..errors import Faulted, LoadError
from .openenv_offer import Offer
from .openenv_remote import RemotePlay, describe
from .openenv_results import Reply

__all__ = ["describe_image", "open_image"]


def describe_image(image: str, variables: Mapping[str, str]) -> Offer:
    """Offer of the server in ``image``, read from a temporary container. Raises LoadError."""
    try:
        provider = LocalDockerProvider()
    except RuntimeError as exc:
        raise LoadError(
            f"openenv:image:{image} needs a Docker engine that answers to 'docker version': {exc} Start the "
            "image elsewhere and serve its URL instead: openenv:http://HOST:PORT"
        ) from exc
    try:
        return describe(_start(provider, image, variables), None)
    except (RuntimeError, TimeoutError, OSError) as exc:
        raise LoadError(f"openenv:image:{image} cannot be started: {exc}") from exc
    finally:
        provider.stop_container()


async def open_image(image: str, offer: Offer, variables: Mapping[str, str], limit_s: float) -> ContainerPlay:
    """Start a container for one episode. Raises Faulted (setup_error), and leaves no container then."""
    provider = await asyncio.to_thread(LocalDockerProvider)
    starting = asyncio.ensure_future(asyncio.to_thread(_start, provider, image, variables))
    try:
        url = await asyncio.shield(starting)
    except BaseException as exc:
        await asyncio.wait([starting])
        await asyncio.to_thread(provider.stop_container)
        if isinstance(exc, Exception):
            raise Faulted("setup_error", f"the image {image} cannot be started: {exc}") from exc
        raise
    return ContainerPlay(provider, RemotePlay(url, offer, limit_s=limit_s, headers=None))


def _start(provider: LocalDockerProvider, image: str, variables: Mapping[str, str]) -> str:
    url: str = provider.start_container(image, env_vars=dict(variables))
    provider.wait_for_ready(url)
    return url


class ContainerPlay:
    """An episode on its own server; closing it removes the container."""

    def __init__(self, provider: LocalDockerProvider, play: RemotePlay) -> None:
        self._provider = provider
        self._play = play

    async def reset(self, **settings: Any) -> Reply:
        return await self._play.reset(**settings)

    async def step(self, action: dict[str, Any]) -> Reply:
        return await self._play.step(action)

    async def call(self, name: str, arguments: dict[str, Any]) -> Reply:
        return await self._play.call(name, arguments)

    async def close(self) -> None:
        try:
            await self._play.close()
        finally:
            await asyncio.to_thread(self._provider.stop_container)
