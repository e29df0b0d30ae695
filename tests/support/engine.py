"""The Docker engine that tests use, when there is one, and the images that they share."""

from __future__ import annotations

import fcntl
import gc
import hashlib
import io
import tarfile
import time
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import docker
import pytest
from docker.errors import APIError, DockerException, ImageNotFound

__all__ = [
    "BASE",
    "ROOT",
    "ImageName",
    "Recipe",
    "image",
    "images",
    "needs_engine",
    "problem",
    "recipe",
    "skip_without_engine",
]

BASE = "python:3.11-slim"
ROOT = Path(__file__).parents[2]

ImageName = Literal["base", "server", "textarena", "scripted", "openreward", "haproxy", "terminal"]
"""``base``, ``server`` and ``textarena`` are those of docker/Dockerfile; ``scripted`` serves the classes of
tests/support/environments.py; ``openreward`` is a server of that released package, without anything of ours;
``haproxy`` is Debian's, in place of the official image; ``terminal`` is that of envs/terminal's sandboxes."""

Recipe = Literal["knowledge-worker", "python-ds"]
"""Folders of docker/sandboxes."""

_SOURCES = (
    *("pyproject.toml", "README.md", "LICENSE", "docker"),
    *("protocol", "server", "client", "evaluation", "trainer_bridge"),
)
_ENVIRONMENTS = tuple(f"envs/{name}" for name in ("echo", "guess", "arithmetic", "doors", "textarena"))
"""All that compose sends: the engine has the layers then for each target, and for what compose builds."""
_LEFT_OUT = ("__pycache__", "tests", ".pytest_cache", ".venv")
_FOLDER = "tests/images/shared"
_LABEL = "orsay.test.image"
_KEPT_S = 3600.0  # a run of the tests may still use the image of an earlier state of the source


@cache
def problem() -> str | None:
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
        why = f"no Docker engine: {exc}"
    else:
        return None
    with warnings.catch_warnings(category=ResourceWarning, action="ignore"):
        gc.collect()  # the SDK leaves the socket open that nobody answered on
    return why


needs_engine = pytest.mark.engine
"""For tests, or whole files as ``pytestmark``, that need a Docker engine with the base image.

They are skipped where there is none."""


def skip_without_engine() -> None:
    """The same inside a test or fixture."""
    why = problem()
    if why is not None:
        pytest.skip(why)


@cache
def image(name: ImageName) -> str:
    """Tag of a shared image; built when the engine does not have it for the source as it is now.

    One process builds and the others wait. Images of an earlier source are removed after an hour.
    """
    match name:
        case "base":
            return _built(name, _files(*_SOURCES), "docker/Dockerfile", {"BASE": BASE}, target="base")
        case "server" | "textarena":
            files = _files(*_SOURCES, *_ENVIRONMENTS)
            return _built(name, files, "docker/Dockerfile", {"BASE": BASE}, target=name)
        case "scripted":
            files = _files("tests/support/environments.py", f"{_FOLDER}/environments.Dockerfile")
            return _built(name, files, f"{_FOLDER}/environments.Dockerfile", {"BASE": image("base")})
        case "terminal":
            recipe = "envs/terminal/image/Dockerfile"
            return _built(name, _files(recipe), recipe, {"BASE": BASE})
        case "openreward" | "haproxy":
            files = _files(
                f"{_FOLDER}/{name}.Dockerfile", "tests/interop/kit.py", f"{_FOLDER}/serve_openreward.py"
            )
            return _built(name, files, f"{_FOLDER}/{name}.Dockerfile", {"BASE": BASE})


@cache
def recipe(name: Recipe) -> str:
    """Tag of the image that a recipe makes. Raises RuntimeError where it cannot, as without a network."""
    path = f"docker/sandboxes/{name}/Dockerfile"
    return _built(name, _files(path), path, {"BASE": BASE})


def images() -> None:
    """Make all of them, so that no single test pays for it with its time limit."""
    apart: list[ImageName] = ["openreward", "haproxy", "terminal"]
    with ThreadPoolExecutor() as threads:
        recipes = [threads.submit(recipe, name) for name in get_args(Recipe)]
        others = [threads.submit(image, name) for name in apart]
        for name in get_args(ImageName):  # one after the other: each has layers of those before it
            if name not in apart:
                image(name)
        for other in others:
            other.result()
        for each in recipes:
            if isinstance(why := each.exception(), RuntimeError):
                print(f"{why}; its tests will be skipped", flush=True)
            else:
                each.result()


def _files(*places: str) -> Mapping[str, Path]:
    """Files of the repository by their path in it, without caches and tests of folders."""
    found: dict[str, Path] = {}
    for place in places:
        path = ROOT / place
        for each in [path] if path.is_file() else sorted(path.rglob("*")):
            if each.is_file() and not set(each.relative_to(path).parts) & set(_LEFT_OUT):
                found[str(each.relative_to(ROOT))] = each
    return found


def _built(
    name: str, files: Mapping[str, Path], dockerfile: str, arguments: Mapping[str, str], *, target: str = ""
) -> str:
    contents = {place: path.read_bytes() for place, path in files.items()}
    recipe = (sorted(contents.items()), dockerfile, sorted(arguments.items()), target)
    digest = hashlib.sha256(repr(recipe).encode())
    tag = f"orsay-test-{name}:{digest.hexdigest()[:12]}"
    with _locked(name), closing(docker.from_env(timeout=600)) as client:
        try:
            client.images.get(tag)
        except ImageNotFound:
            _build(client, contents, dockerfile=dockerfile, buildargs=dict(arguments), target=target, tag=tag)
            _remove_older(client, tag)
    return tag


@contextmanager
def _locked(name: str) -> Iterator[None]:
    folder = ROOT / ".cache" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(client: Any, contents: Mapping[str, bytes], **options: Any) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for place, content in contents.items():
            entry = tarfile.TarInfo(place)
            entry.size = len(content)
            entry.mode = (ROOT / place).stat().st_mode & 0o777  # as compose sends it
            archive.addfile(entry, io.BytesIO(content))
    packed.seek(0)
    lines: list[str] = []
    labels = {_LABEL: options["tag"]}
    for line in client.api.build(
        fileobj=packed, custom_context=True, rm=True, forcerm=True, decode=True, labels=labels, **options
    ):
        lines.append(str(line.get("stream", "")))
        if "error" in line:
            raise RuntimeError(f"{options['tag']} cannot be built: {line['error']}\n{''.join(lines)[-3000:]}")


def _remove_older(client: Any, tag: str) -> None:
    for each in client.images.list(name=tag.partition(":")[0]):
        age_s = time.time() - each.history()[0]["Created"]
        if tag not in each.tags and age_s > _KEPT_S:
            try:
                client.images.remove(each.id)
            except APIError:
                continue  # in use, or gone meanwhile
