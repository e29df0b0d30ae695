"""Name of a training run, for the labels that its sessions carry to the server."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

__all__ = ["run_name"]

_UNNAMED = ("", ".", "trainer_output")  # the last is the default of transformers


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
