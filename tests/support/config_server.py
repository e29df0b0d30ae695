"""Servers that run what a file says, as processes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.server_process import ENVIRONMENTS, ServerProcess
from tests.support.servers import ROOT

__all__ = ["ENVS", "SCRIPTED", "FileServer", "configured", "written"]

ENVS = ROOT / "envs"
SCRIPTED = f'class = "{ENVIRONMENTS}:Scripted"'


def written(folder: Path, text: str, name: str = "orsay.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


class FileServer(ServerProcess):
    """``orsay serve -c FILE``, on a free port unless the file names one, with one worker."""

    def __init__(self, path: Path, *options: str, **variables: str) -> None:
        self.path = path
        defaults = {"ORSAY_PORT": "0", "ORSAY_WORKERS": "1", "ORSAY_LOG_FORMAT": "json"}
        super().__init__(["-c", str(path), *options], {**defaults, **variables})


@contextmanager
def configured(folder: Path, text: str, *options: str, **variables: str) -> Iterator[FileServer]:
    """A running server of a file with that text."""
    process = FileServer(written(folder, text), *options, **variables)
    try:
        process.wait_for_url()
        yield process
    finally:
        process.end()
