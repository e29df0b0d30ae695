"""Servers as processes of their own on free loopback ports: the environment's, and vLLM's."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import httpx

__all__ = ["TARGET", "VllmServer", "serve_environment", "serve_vllm"]

TARGET = "doors_env.env:DoorsEnvironment"

_START_LIMIT_S = 60.0
_VLLM_START_LIMIT_S = 180.0
_STOP_LIMIT_S = 20.0


@contextmanager
def serve_environment() -> Iterator[str]:
    """The URL of ``orsay serve``, for as long as the block. Raises RuntimeError when it does not start."""
    command = [sys.executable, "-m", "orsay", "serve", TARGET, "--port", "0", "--log-level", "warning"]
    process = subprocess.Popen([*command, "--workers", "1"], stdout=subprocess.PIPE, text=True)
    hung = threading.Timer(_START_LIMIT_S, process.kill)
    hung.start()
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        hung.cancel()
        if found is None:
            raise RuntimeError(f"the environment's server did not start (exit code {process.wait()})")
        yield found.group()
    finally:
        hung.cancel()
        _stop(process)


class VllmServer:
    """vLLM on a model's folder, started at once; ``wait`` for it before it is used."""

    def __init__(self, python: Path, folder: Path, log: IO[bytes]) -> None:
        with socket.create_server(
            ("127.0.0.1", 0)
        ) as listener:  # vLLM does not tell a port of its own choice
            port = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._log = log
        self.process = subprocess.Popen(
            [
                str(python),
                "-m",
                "vllm.entrypoints.openai.api_server",
                "--model",
                str(folder),
                *_vllm_flags(port),
            ],
            env={**os.environ, **_VLLM_VARIABLES},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # its engine is another process: they are stopped together
        )

    def wait(self) -> None:
        """Return when it answers. Raises RuntimeError with the end of its log when it does not."""
        deadline = time.monotonic() + _VLLM_START_LIMIT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            with suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/health", trust_env=False).status_code == 200:
                    return
            time.sleep(0.2)
        self._log.seek(0)
        text = self._log.read()[-3000:].decode(errors="replace")
        raise RuntimeError(f"vLLM did not start within {_VLLM_START_LIMIT_S:.0f} s; it printed:\n{text}")


@contextmanager
def serve_vllm(python: Path, folder: Path, log_file: Path) -> Iterator[VllmServer]:
    """vLLM of the virtual environment that ``python`` belongs to, for as long as the block."""
    with log_file.open("w+b") as log:
        server = VllmServer(python, folder, log)
        try:
            yield server
        finally:
            _stop(server.process)
            with suppress(ProcessLookupError):
                os.killpg(server.process.pid, signal.SIGKILL)  # the session started above, and nothing else


_VLLM_VARIABLES: Mapping[str, str] = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_SERVER_DEV_MODE": "1",  # lets it read new weights
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}


def _vllm_flags(port: int) -> Sequence[str]:
    flags = "--host 127.0.0.1 --served-model-name tiny --max-model-len 512 --max-num-seqs 96 --dtype float32"
    exact = "--enforce-eager --logprobs-mode processed_logprobs --max-logprobs -1"
    return [*flags.split(), *exact.split(), "--port", str(port)]


def _stop(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
