"""Pieces of scripts that run inside of a sandbox: POSIX shell, with Python where the sandbox has it."""

from __future__ import annotations

import base64
import re
import shlex
from collections import defaultdict

__all__ = ["PRELUDE", "SAYINGS", "ends_well", "find", "hidden", "python", "seen_in"]

PRELUDE = """\
say() { printf '%s-%s %s\\n' orsay seen "$*" | tr -d '\\000-\\011\\013-\\037'; }
PY=$(command -v python3 || command -v python || true)
"""
"""Defines ``say NAME TEXT``, whose lines do not occur in the script itself, and ``PY``."""

SAYINGS = ("", "1", '{"reward": 1.0, "score": 1.0, "passed": true, "success": true}', "OK\n1 passed in 0.01s")
"""What a grader might print that is content."""

_SYSTEM = (
    "/proc",
    "/sys",
    "/dev",
    "/usr",
    "/lib*",
    "/bin",
    "/sbin",
    "/boot",
    "/var/lib",
    "/var/cache",
    "/etc/ssl",
)
_LIBRARIES = ("site-packages", "dist-packages", "node_modules", ".orsay*")
_SEEN = re.compile(r"orsay-seen (\S+)(?: ([^\r\n]*))?")


def seen_in(text: str) -> defaultdict[str, list[str]]:
    """Reports of ``say`` in what a tool shows, also where it shows line ends as ``\\n`` in JSON."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, words in _SEEN.findall(text.replace("\\n", "\n")):
        found[name].append(words.strip())
    return found


def find(what: str) -> str:
    """A ``find`` over all files that belong neither to the system nor to libraries."""
    places = " -o ".join(
        [*(f"-path '{each}'" for each in _SYSTEM), *(f"-name '{each}'" for each in _LIBRARIES)]
    )
    return f"find / \\( {places} \\) -prune -o {what} 2>/dev/null"


def hidden(lines: list[str], path: str) -> str:
    """A script that writes the lines to a file, without holding one of them itself."""
    text = base64.b64encode("".join(f"{line}\n" for line in lines).encode()).decode()
    return f"printf %s {text} | base64 -d >{path}"


def python(code: str, *arguments: str) -> str:
    """A script that runs code by the sandbox's Python."""
    words = " ".join(shlex.quote(each) for each in arguments)
    return f"\"$PY\" - {words} <<'ORSAY_END'\n{code}\nORSAY_END"


def ends_well(said: str, *, between: str = "\n") -> str:
    """Python code that prints ``said`` and ends its process with success, whatever else that was to do."""
    return between.join(["import os", f"os.write(1, {f'{said}{chr(10)}'.encode()!r})", "os._exit(0)"])
