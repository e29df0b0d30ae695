"""Programs that train, in processes of their own that are forked where torch and TRL are imported already."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence

import pytest

from tests.support.forkserver import ForkServer

__all__ = ["OFFLINE", "ranks", "skip_without_trl", "spawning_trainers", "trainers"]

OFFLINE = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
"""Variables of a process that trains a tiny model."""


def skip_without_trl() -> None:
    """Skip a file whose programs need TRL; the process that runs the file does not import it."""
    for package in ("torch", "trl"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs the extra 'trl': there is no {package}", allow_module_level=True)


@functools.cache
def trainers() -> ForkServer:
    """The fork server of this run; to import TRL costs five seconds of CPU, and here once."""
    optional = [name for name in ("openreward",) if importlib.util.find_spec(name)]
    server = ForkServer(
        "orsay_trl.rollout.rollout_func",
        "trl.trainer.grpo_trainer",
        "transformers.models.qwen3.modeling_qwen3",
        "transformers.models.auto.tokenization_auto",
        *optional,
        teardown=False,
    )
    atexit.register(server.close)
    return server


def spawning_trainers() -> ForkServer:
    """The same fork server; what its programs spawn need not import TRL again."""
    return trainers().before("tests.support.spawned:split_off")


def ranks(
    arguments: Sequence[str], *, count: int = 2, timeout: float, env: Mapping[str, str] | None = None
) -> list[subprocess.CompletedProcess[str]]:
    """The processes of one training, started as torchrun starts them; each must end by itself."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    shared = {**os.environ, **OFFLINE, **place, "LOCAL_WORLD_SIZE": str(count), **(env or {})}
    envs = [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]
    return trainers().run_together([arguments] * count, timeout=timeout, envs=envs)
