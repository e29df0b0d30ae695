"""The grading process: a line of JSON in, a line of JSON out, until the input ends.

The CPU time limit kills the process, also in the middle of a C function, by the default action of SIGPROF.
"""

from __future__ import annotations

import json
import logging
import re
import resource
import signal
import sys
from typing import Any

from math_verify import parse, verify  # type: ignore[import-untyped]  # has no stubs
from sympy import Rational  # type: ignore[import-untyped]  # has no stubs

MEMORY_BYTES = 2 * 1024**3
MESSAGE_CHARACTERS = 4_000
ANSWER_CHARACTERS = 200

_BOLD = re.compile(r"(?<![0-9)])\*\*|\*\*(?![0-9(])")
_BLANKS = re.compile(r"[^\S\n]+")
_LINE_BREAKS = re.compile(r"\n\s*")
_MARKED = re.compile(r"answer ?(?:is ?[:=]?|[:=])\s?(.*[0-9].*)", re.IGNORECASE)


def answer_part(message: str) -> str:
    """The text after the last "Answer:" before a number, if there is one; else the end of the message."""
    message = _BOLD.sub("", message[-MESSAGE_CHARACTERS:].replace("\\$", "").replace("`", ""))
    message = _LINE_BREAKS.sub("\n", _BLANKS.sub(" ", message))
    marked = _MARKED.findall(message)
    if not marked:
        return message
    answer = str(marked[-1])[:ANSWER_CHARACTERS]
    # math-verify takes the last number; a remark such as "(about 2.33)" is not the answer.
    before, _, _ = answer.partition(" (")
    return before if any(char.isdigit() for char in before) else answer


def grade(message: str, numerator: int, denominator: int) -> dict[str, Any]:
    """The verdict on ``message``; a text that math-verify cannot parse is wrong."""
    read: list[Any] = []
    try:
        # math-verify's time limits are off: this process has its own.
        read = parse(answer_part(message), parsing_timeout=0)
        correct = verify(Rational(numerator, denominator), read, timeout_seconds=0)
    except (Exception, MemoryError, RecursionError):
        correct = False
    return {"correct": bool(correct), "read": str(read[-1])[:ANSWER_CHARACTERS] if read else ""}


def main() -> None:
    """Serve until standard input ends, as it does when the parent dies. The argument: seconds per message."""
    cpu_limit_s = float(sys.argv[1])
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, hard))
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, cpu_limit_s)
        verdict = grade(request["message"], *request["answer"])
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(verdict), flush=True)


if __name__ == "__main__":
    main()
