"""The echo environment that the released ``openenv`` package makes, and its own server as a process.

As a script: ``parrot.py FOLDER PORT`` serves what ``openenv init parrot_env`` wrote into FOLDER.
"""

from __future__ import annotations

import importlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

__all__ = ["Parrot", "serve_parrot"]

_START_S = 100.0


@dataclass(frozen=True)
class Parrot:
    """The running server, and what its client needs."""

    url: str
    client: Any
    action: Any
    process: subprocess.Popen[bytes]


@contextmanager
def serve_parrot(folder: Path) -> Iterator[Parrot]:
    """Make the environment and serve it; its reward for a message is a tenth of its length."""
    if not (folder / "parrot_env").exists():
        made = [sys.executable, "-m", "openenv.cli", "init", "parrot_env", "-o", str(folder)]
        subprocess.run(made, check=True, capture_output=True, timeout=_START_S)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, __file__, str(folder), str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    url = f"http://127.0.0.1:{port}"
    sys.path.insert(0, str(folder))
    try:
        _wait(url, process)
        client = importlib.import_module("parrot_env.client").ParrotEnv
        yield Parrot(url, client, importlib.import_module("parrot_env.models").ParrotAction, process)
    finally:
        sys.path.remove(str(folder))
        process.kill()
        process.wait(20)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/health", trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise RuntimeError(f"no server at {url}; exit code {process.poll()}")


def _main(folder: str, port: int) -> None:
    import uvicorn
    from openenv.core.env_server.http_server import create_app

    sys.path.insert(0, folder)
    models = importlib.import_module("parrot_env.models")
    made = importlib.import_module("parrot_env.server.parrot_env_environment")
    app = create_app(
        made.ParrotEnvironment,
        models.ParrotAction,
        models.ParrotObservation,
        env_name="parrot_env",
        max_concurrent_envs=64,
    )
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error")


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
