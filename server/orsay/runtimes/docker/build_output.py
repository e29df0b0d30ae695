"""What the engine says while it builds an image: lines, the image, or what went wrong."""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...errors import EngineError

__all__ = ["follow_build"]

_KEPT_LINES = 20  # of a step that fails
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # the engine paints what a step writes to its standard error


def follow_build(
    events: Iterator[Mapping[str, Any]], tag: str, say: Callable[[str], None], given_up: threading.Event
) -> str:
    """The id of the image. Raises EngineError with what the failed step had said."""
    step: deque[str] = deque(maxlen=_KEPT_LINES)
    image = rest = problem = ""
    for event in events:  # to the end, also after an error: the connection is let go there
        if given_up.is_set():
            raise EngineError(f"the build of {tag} was given up")
        if "error" in event:
            said = "".join(f"\n  {line}" for line in [*step, rest] if line)
            problem = f"{str(event['error']).strip()}{said}"
        image = (event.get("aux") or {}).get("ID", image)
        *lines, rest = (rest + _COLOUR.sub("", str(event.get("stream", "")))).split("\n")
        for line in filter(str.strip, lines):
            if line.startswith("Step "):
                step.clear()
            step.append(line.rstrip())
            say(line.rstrip())
    if problem or not image:
        raise EngineError(f"cannot build {tag}: {problem or 'the engine named no image at the end'}")
    return image
