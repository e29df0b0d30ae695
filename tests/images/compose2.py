"""Compose 2, where the machine has only 1.29: out of a package of a later Debian, not installed."""

from __future__ import annotations

import fcntl
import hashlib
import lzma
import re
import shutil
import subprocess
import urllib.request
from functools import cache
from pathlib import Path

from tests.support.engine import ROOT

__all__ = ["compose_2"]

_SUITE = "trixie"
_LIMIT_S = 120.0


@cache
def compose_2() -> list[str] | str:
    """The command, or why there is none."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) and _is_2(command):
            return command
    program = ROOT / ".cache" / "compose2" / "docker-compose"
    try:
        program.parent.mkdir(parents=True, exist_ok=True)
        with (program.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not program.exists():
                _fetch(program)
    except (OSError, LookupError, subprocess.SubprocessError) as exc:
        return f"no Compose 2 here, and none to be had from Debian {_SUITE}: {exc}"
    return [str(program)] if _is_2([str(program)]) else "the Compose of a later Debian does not run here"


def _is_2(command: list[str]) -> bool:
    done = subprocess.run([*command, "version", "--short"], capture_output=True, text=True, timeout=30)
    return done.returncode == 0 and not done.stdout.strip().removeprefix("v").startswith("1.")


def _fetch(program: Path) -> None:
    mirror = _mirror()
    index = lzma.decompress(_get(f"{mirror}/dists/{_SUITE}/main/binary-amd64/Packages.xz")).decode()
    entry = re.search(r"^Package: docker-compose\n(?:.+\n)+", index, re.MULTILINE)
    if entry is None:
        raise LookupError("it has no docker-compose")
    fields = dict(line.split(": ", 1) for line in entry[0].splitlines() if re.match(r"[A-Z]\S*: ", line))
    package = program.with_suffix(".deb")
    package.write_bytes(_get(f"{mirror}/{fields['Filename']}"))
    if hashlib.sha256(package.read_bytes()).hexdigest() != fields["SHA256"]:
        raise LookupError("the package is not what the index says")
    folder = program.parent / "package"
    subprocess.run(["dpkg-deb", "-x", str(package), str(folder)], check=True, timeout=_LIMIT_S)
    (found,) = folder.glob("usr/libexec/docker/cli-plugins/docker-compose")
    found.rename(program)
    shutil.rmtree(folder)


def _mirror() -> str:
    """Where this machine has its packages from."""
    places = Path("/etc/apt").glob("sources.list*")
    files = [each for place in places for each in (place.glob("*") if place.is_dir() else [place])]
    for file in files:
        found = re.search(r"^(?:URIs: *|deb +)(\S+/debian)/?\s", file.read_text(), re.MULTILINE)
        if found is not None:
            return found[1]
    raise LookupError("apt has no mirror of Debian")


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=_LIMIT_S) as answer:
        content: bytes = answer.read()
        return content
