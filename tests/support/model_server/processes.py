"""The stand-in and the real vLLM as processes: found by their port, stopped by signal."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias

import httpx

from tests.support.forkserver import Forked

from ..sockets import free_port
from ..trainers import trainers
from ..waiting import until_healthy

__all__ = ["ServedModel", "serve_model", "vllm"]

Process: TypeAlias = "Forked | subprocess.Popen[bytes]"

_ROOT = Path(__file__).parents[3]
_MODEL_SERVER_LIMIT_S = 100.0
_VLLM_LIMIT_S = 400.0
_STOP_LIMIT_S = 20.0


@dataclass(frozen=True)
class ServedModel:
    """A server that samples from the model in ``folder``."""

    base_url: str
    folder: Path
    process: Process

    def seen(self) -> dict[str, Any]:
        """What reached a stand-in since the last look: ``requests`` per path, ``most_at_once``, ``last``."""
        answer: dict[str, Any] = httpx.get(f"{self.base_url}/test/seen", trust_env=False, verify=False).json()
        return answer


@contextmanager
def serve_model(
    folder: Path,
    *,
    name: str = "tiny",
    max_model_len: int | None = None,
    tools: bool = True,
    api_key: str | None = None,
    options: Sequence[str] = (),
) -> Iterator[ServedModel]:
    """The stand-in, serving the model in ``folder`` on a free port for as long as the block."""
    command = ["-m", "tests.support.model_server.server", str(folder), "--served-model-name", name]
    command += ["--max-model-len", str(max_model_len)] if max_model_len else []
    command += ["--tools"] if tools else []
    command += ["--api-key", api_key] if api_key else []
    env = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with _running(_forked, [*command, *options], folder, env, _MODEL_SERVER_LIMIT_S) as served:
        yield served


@contextmanager
def vllm(
    python: Path, folder: Path, *, name: str = "tiny", max_model_len: int = 512, options: Sequence[str] = ()
) -> Iterator[ServedModel]:
    """The real one, of the virtual environment that ``python`` belongs to."""
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--served-model-name", name, "--host", "127.0.0.1", "--max-model-len", str(max_model_len)]
    command += ["--dtype", "float32", "--enforce-eager", "--max-num-seqs", "64"]
    command += ["--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1"]
    command += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    env = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    with _running(_fresh, [*command, *options], folder, env, _VLLM_LIMIT_S) as served:
        yield served


def _forked(command: Sequence[str], env: Mapping[str, str], log: IO[bytes]) -> Process:
    return trainers().start(
        command, env=env, stdout=log.fileno(), stderr=log.fileno(), start_new_session=True
    )


def _fresh(command: Sequence[str], env: Mapping[str, str], log: IO[bytes]) -> Process:
    return subprocess.Popen(
        command,
        cwd=_ROOT,
        env=env,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # vLLM's engine is a process of its own: they are stopped together
    )


@contextmanager
def _running(
    start: Callable[[Sequence[str], Mapping[str, str], IO[bytes]], Process],
    command: Sequence[str],
    folder: Path,
    env: Mapping[str, str],
    limit_s: float,
) -> Iterator[ServedModel]:
    port = free_port()  # vLLM prints no port that it chose itself; taken by another, the start fails
    with tempfile.TemporaryFile() as log:
        process = start([*command, "--port", str(port)], {**os.environ, **env}, log)
        try:
            url = f"http://127.0.0.1:{port}"
            until_healthy(url, process.poll, timeout_s=limit_s, log=log)
            yield ServedModel(url, folder, process)
        finally:
            _stop(process)


def _stop(process: Process) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_LIMIT_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # the session that was started above, and nothing else
    process.wait()
