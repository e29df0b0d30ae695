"""The Docker engine that tests use, when there is one, and the images that they share."""

from __future__ import annotations

from functools import cache

import docker
import pytest
from docker.errors import DockerException, ImageNotFound

__all__ = ["BASE", "needs_engine"]

BASE = "python:3.11-slim"


@cache
def _problem() -> str | None:
    """Why tests cannot use a Docker engine here; None when they can."""
    try:
        client = docker.from_env(timeout=20)
        try:
            client.images.get(BASE)
        finally:
            client.close()
    except ImageNotFound:
        return f"the Docker engine has no image {BASE}"
    except DockerException as exc:
        return f"no Docker engine: {exc}"
    return None


needs_engine = pytest.mark.skipif(_problem() is not None, reason=_problem() or "")
"""For tests, or whole files as ``pytestmark``, that need a Docker engine with the base image."""
