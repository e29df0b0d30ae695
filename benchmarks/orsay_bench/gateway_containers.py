"""Time until a container takes a session, cold and warm, and size of images."""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .servers import RunningServer, ServerSpec

__all__ = ["containers"]

_LIMIT_S = 60.0
_IDLE_S = 1


def containers(image: str, *, repeat: int, logs: Path, say: Callable[[str], None]) -> dict[str, str]:
    """Medians as texts, by title; empty, with the reason, without an engine or the image."""
    try:
        size = int(_docker("image", "inspect", "--format", "{{.Size}}", image))
    except (OSError, subprocess.CalledProcessError):
        say(f"no Docker engine, or no image {image}: containers are left out (docker compose build makes it)")
        return {}
    say(f"containers of {image} ...")
    cold, warm, spare, bare = [], [], [], []
    for _ in range(repeat):
        bare.append(_bare_start_s(image))
        with _serving(image, logs, f"idle_s = {_IDLE_S}") as (server, label):
            _session_s(server.url)
            _wait(lambda: not _ids(label), "the container sleeps")
            cold.append(_session_s(server.url))
        with _serving(image, logs, "spare = 1") as (server, label):
            _session_s(server.url)
            warm += [_session_s(server.url) for _ in range(10)]
            _wait(lambda: len(_ids(label)) == 2, "the spare container is up")
            _docker("kill", _ids(label)[-1])  # the oldest container, which has sessions
            spare.append(_session_s(server.url))
    return {
        f"size of {image}, MB": f"{size / 1e6:.0f}",
        "docker run to /health, s": f"{statistics.median(bare):.2f}",
        "first session of a sleeping container (cold), s": f"{statistics.median(cold):.2f}",
        "session in a container that runs (warm), ms": f"{statistics.median(warm) * 1e3:.1f}",
        "first session after a kill, a spare waiting, ms": f"{statistics.median(spare) * 1e3:.1f}",
    }


def _docker(*words: str) -> str:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=True, timeout=_LIMIT_S)
    return done.stdout.strip()


def _ids(label: str) -> list[str]:
    return _docker("ps", "-q", "--filter", f"label=orsay.label={label}").split()


@contextmanager
def _serving(image: str, logs: Path, option: str) -> Iterator[tuple[RunningServer, str]]:
    label = f"bench-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "orsay.toml")
        config.write_text(f'[environments.{label}]\nimage = "{image}"\n{option}\n')
        command = ("-m", "orsay", "serve", "--config", str(config), "--port", "PORT")
        with RunningServer(
            ServerSpec("orsay-docker", "ors", command), peers=logs, logs=logs, core=None
        ) as server:
            server.wait_until("/ready")
            yield server, label


def _bare_start_s(image: str) -> float:
    """From ``docker run`` to the first 200 at /health."""
    started = time.perf_counter()
    container = _docker("run", "--rm", "-d", "-p", "127.0.0.1::8080", image)
    try:
        address = _docker("port", container, "8080/tcp").splitlines()[0]
        _wait(lambda: _ask(f"http://{address}", "GET", "/health", "") is not None, "/health answers", 0.005)
        return time.perf_counter() - started
    finally:
        _docker("kill", container)


def _session_s(url: str) -> float:
    """Time from the first request for a new session to its prompt, with retries while the server starts."""
    sid = uuid.uuid4().hex
    started = time.perf_counter()
    body = json.dumps({"split": "train", "index": 0}).encode()
    _wait(lambda: _ask(url, "POST", "/create", sid, body) is not None, "a session is created", 0.01)
    _wait(lambda: _ask(url, "GET", "/prompt", sid) is not None, "a prompt is there", 0.01)
    took = time.perf_counter() - started
    _ask(url, "POST", "/delete", sid, b"")
    return took


def _ask(url: str, method: str, path: str, sid: str, body: bytes | None = None) -> bytes | None:
    """The answer; None while the server starts or cannot be reached."""
    headers = {"X-Session-ID": sid, "Content-Type": "application/json"}
    request = urllib.request.Request(url + path, data=body, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            content: bytes = answer.read()
            return content
    except urllib.error.HTTPError as error:
        if error.code == 503:
            return None
        raise RuntimeError(f"{method} {path}: {error.code} {error.read()[:300]!r}") from error
    except OSError:
        return None


def _wait(condition: Callable[[], bool], what: str, pause_s: float = 0.1) -> None:
    end = time.monotonic() + _LIMIT_S
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"not within {_LIMIT_S:g} s: {what}")
        time.sleep(pause_s)
