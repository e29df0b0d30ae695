"""Gateways as processes of their own, with containers on the real engine that bear their name."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import docker
from docker.errors import ImageNotFound, NotFound
from orsay.runtimes.docker.claim import NAME_LABEL, SERVER_LABEL

from tests.support.config_server import FileServer, written
from tests.support.docker_runtime import SHORT
from tests.support.documentation import ROOT
from tests.support.engine import image

__all__ = [
    "LEASE_S",
    "Gateway",
    "built",
    "cleared",
    "docker_kill",
    "gateway",
    "left_of",
    "named",
    "removed",
    "scripted_entry",
]

LEASE_S = 3
BUILD_LIMIT_S = 300


class Gateway(FileServer):
    """``orsay serve`` of a file; ``name`` is what its containers and networks are labelled with."""

    def __init__(self, path: Path, name: str, **variables: str) -> None:
        self.name = name
        super().__init__(path, ORSAY_SERVER_NAME=name, ORSAY_SHUTDOWN_GRACE_S="1", **variables)

    def containers(self, label: str) -> set[str]:
        """Ids of the running containers of an entry, as a host name in there has them."""
        labels = [f"{SERVER_LABEL}={self.name}", f"{NAME_LABEL}={label}"]
        with closing(docker.from_env(timeout=60)) as engine:
            return {
                each.id[:12]
                for each in engine.containers.list(ignore_removed=True, filters={"label": labels})
            }

    def left(self) -> list[str]:
        """Names of all that the engine has of it."""
        with closing(docker.from_env(timeout=60)) as engine:
            return [each.name for each in left_of(engine, self.name)]


@contextmanager
def gateway(folder: Path, text: str, **variables: str) -> Iterator[Gateway]:
    """A gateway of a file with that text."""
    with cleared(named()) as name:
        process = Gateway(written(folder, text), name, **variables)
        try:
            process.wait_for_url()
            yield process
        finally:
            process.end()


@contextmanager
def cleared(name: str) -> Iterator[str]:
    """A name for a server; what that leaves on the engine when it fails is removed at the end."""
    try:
        yield name
    finally:
        with closing(docker.from_env(timeout=60)) as engine:
            for each in left_of(engine, name):
                with contextlib.suppress(NotFound):
                    each.remove(**({"force": True} if hasattr(each, "image") else {}))


def named() -> str:
    """A name for a server that no other has."""
    return f"test-{uuid.uuid4().hex[:12]}"


def left_of(engine: Any, name: str) -> list[Any]:
    """Containers and networks of the server of that name."""
    label = {"label": f"{SERVER_LABEL}={name}"}
    return [
        *engine.containers.list(all=True, ignore_removed=True, filters=label),
        *engine.networks.list(filters=label),
    ]


def scripted_entry(label: str, **changes: str) -> str:
    """An entry of containers with Scripted of tests/support/environments.py, which see the tests' files."""
    folder = tempfile.gettempdir()
    variables = ", ".join(f'{name} = "{value}"' for name, value in SHORT.items())
    options = {
        "image": f'"{image("scripted")}"',
        "serve": '["scripted"]',
        "variables": f"{{ {variables} }}",
        "volumes": f'["{folder}:{folder}"]',
        "user": f'"{os.getuid()}:{os.getgid()}"',
        "lease_s": str(LEASE_S),
        **changes,
    }
    return "\n".join([f"[environments.{label}]", *(f"{key} = {value}" for key, value in options.items()), ""])


@contextmanager
def built(folder: Path, *, base: str) -> Iterator[str]:
    """The image that ``orsay build`` makes of a project; removed at the end."""
    tag = f"orsay-test-deploy:{uuid.uuid4().hex[:12]}"
    with removed(tag):
        done = subprocess.run(
            [sys.executable, "-m", "orsay", "build", str(folder), "--base", base, "--tag", tag],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=BUILD_LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"orsay serve --runtime docker {tag}" in done.stdout
        yield tag


@contextmanager
def removed(tag: str) -> Iterator[None]:
    """Afterwards the engine has no image of that name."""
    try:
        yield
    finally:
        with closing(docker.from_env(timeout=60)) as engine, contextlib.suppress(ImageNotFound):
            engine.images.remove(tag, force=True)


def docker_kill(container: str) -> None:
    """As a person does it."""
    subprocess.run(["docker", "kill", container], capture_output=True, timeout=30, check=True)
