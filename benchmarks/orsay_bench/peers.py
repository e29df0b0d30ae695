"""Virtual environments of the released peers, each as its package installs itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

REQUIREMENTS: dict[str, tuple[str, ...]] = {
    "openreward": ("openreward==0.1.167",),
    "openreward-tuned": ("openreward==0.1.167", "uvloop", "httptools"),
    "ors-sdk": ("ors-sdk==0.1.0",),
    "openenv": ("openenv==0.10.0", "uvloop", "httptools"),
    "py-spy": ("py-spy",),  # no peer: the sampler of benchmarks/profile
}
REPORTED = (
    "orsay",
    "openreward",
    "ors-sdk",
    "openenv",
    "fastapi",
    "starlette",
    "uvicorn",
    "uvloop",
    "httptools",
    "sse-starlette",
    "pydantic",
)
INSTALL_LIMIT_S = 900
VERSIONS = """
import importlib.metadata as m, json, platform, sys
found = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = m.version(name)
    except m.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def python_of(root: Path, peer: str) -> Path:
    return root / peer / "bin" / "python"


def ensure(root: Path, peers: Sequence[str], say: Callable[[str], None]) -> None:
    """Make missing environments; the stamp is written last, so an incomplete one is made again."""
    for peer in peers:
        wanted = "\n".join(REQUIREMENTS[peer])
        note = root / peer / "requirements.txt"
        if note.exists() and note.read_text() == wanted:
            continue
        say(f"installing {' '.join(REQUIREMENTS[peer])} into {root / peer}")
        _run([sys.executable, "-m", "venv", "--clear", str(root / peer)])
        pip = [str(python_of(root, peer)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, *REQUIREMENTS[peer]])
        note.write_text(wanted)


def versions(python: str) -> dict[str, str]:
    """Installed versions of the packages that matter here, as that interpreter sees them."""
    done = subprocess.run(
        [python, "-c", VERSIONS, *REPORTED], capture_output=True, text=True, timeout=60, check=True
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT_S)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{(done.stderr or done.stdout)[-2000:]}")
