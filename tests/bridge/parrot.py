"""The echo environment that the released ``openenv`` package makes, and its own server as a process.

As a program: ``python -m tests.bridge.parrot FOLDER PORT`` serves what ``openenv init parrot_env`` wrote into
FOLDER.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.forkserver import ForkServer
from tests.support.sockets import free_port
from tests.support.waiting import until_healthy

__all__ = ["Parrot", "serve_parrot"]

_START_S = 100.0


@dataclass(frozen=True)
class Parrot:
    """The running server, and what its client needs."""

    url: str
    client: Any
    action: Any


@contextmanager
def serve_parrot(folder: Path) -> Iterator[Parrot]:
    """Make the environment and serve it; its reward for a message is a tenth of its length."""
    with closing(
        ForkServer("openenv.cli.__main__", "openenv.core.env_server.http_server", "uvicorn", teardown=False)
    ) as openenv:
        made = openenv.run(["-m", "openenv.cli", "init", "parrot_env", "-o", str(folder)], timeout=_START_S)
        assert made.returncode == 0, made.stderr
        port = free_port()
        command = ["-m", "tests.bridge.parrot", str(folder), str(port)]
        with open(os.devnull, "wb") as nowhere:
            process = openenv.start(command, stdout=nowhere.fileno(), stderr=nowhere.fileno())
    url = f"http://127.0.0.1:{port}"
    sys.path.insert(0, str(folder))
    try:
        until_healthy(url, process.poll, timeout_s=_START_S)
        client = importlib.import_module("parrot_env.client").ParrotEnv
        yield Parrot(url, client, importlib.import_module("parrot_env.models").ParrotAction)
    finally:
        sys.path.remove(str(folder))
        process.kill()
        process.wait(20)


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
