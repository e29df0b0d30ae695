"""What a training run is called, in the labels that its sessions carry to the server."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

__all__ = ["calling_player", "calling_trainer", "is_trainer", "run_name", "starting_trainer", "tokenizer_of"]

_UNNAMED = ("", ".", "trainer_output")  # the last is what transformers takes when nobody says
_FRAMES = 6
_FRAMES_OF_A_START = 32  # from where a process is begun, and what it takes along pickled, to the trainer


def run_name(args: Any, model: Any, day: str) -> str:
    """The trainer's ``run_name``, else the name of its ``output_dir``, else the model's name and the day."""
    folder = str(getattr(args, "output_dir", None) or "")
    given = getattr(args, "run_name", None)
    if given and given != folder:
        return str(given)
    name = PurePath(folder).name
    if name not in _UNNAMED:
        return name
    config = getattr(model, "config", None)
    path = PurePath(str(getattr(config, "_name_or_path", "") or getattr(config, "model_type", "") or "model"))
    return f"{path.name or 'model'} {day}"


def calling_trainer() -> Any:
    """The trainer of TRL on whose behalf this is called, None where there is none.

    TRL tells an environment nothing of it, but calls from one of its methods. Other frames are left alone: to
    look at their variables is to keep what these hold alive.
    """
    return _caller_among(_FRAMES, is_trainer)


def starting_trainer() -> Any:
    """The trainer of TRL that pickles the caller for a process that it begins; None where there is none."""
    return _caller_among(_FRAMES_OF_A_START, is_trainer)


def calling_player() -> Any:
    """A trainer of TRL, or its rollout worker's loop, that makes an environment; None where neither does."""
    return _caller_among(_FRAMES, lambda found: tokenizer_of(found) is not None)


def tokenizer_of(player: Any) -> Any:
    """The one that it parses turns with, None where there is none."""
    return getattr(player, "_tokenizer", None) or getattr(player, "tokenizer", None)


def is_trainer(found: Any) -> bool:
    """It has a trainer's state and arguments."""
    return hasattr(getattr(found, "state", None), "global_step") and hasattr(found, "args")


def _caller_among(frames: int, is_it: Callable[[Any], bool]) -> Any:
    frame = sys._getframe(2).f_back
    for _ in range(frames):
        if frame is None:
            return None
        names = frame.f_code.co_varnames
        if names[:1] == ("self",) and str(frame.f_globals.get("__name__", "")).startswith("trl."):
            found = frame.f_locals["self"]
            if is_it(found):
                return found
        frame = frame.f_back
    return None
