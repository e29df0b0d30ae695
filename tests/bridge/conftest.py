"""The tiny model that calls a tool, a stand-in for vLLM that serves it, and OpenEnv's own echo server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ..support.model_server.processes import ServedModel
    from .parrot import Parrot


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of the recorded answers and its tokenizer. Not to be written to."""
    pytest.importorskip("torch", reason="needs the extra 'trl'")
    pytest.importorskip("trl", reason="needs the extra 'trl'")
    from ..support.model_server import model

    return model.build(tmp_path_factory.mktemp("served") / "model")


@pytest.fixture(scope="session")
def model_server(model_folder: Path) -> Iterator[ServedModel]:
    """A stand-in over ``model_folder`` for all tests of this process: ``base_url``, ``folder``, ``seen()``.

    Who changes weights or breaks the engine starts its own, with ``serve_model``.
    """
    from ..support.model_server.processes import serve_model

    with serve_model(model_folder) as served:
        yield served


@pytest.fixture(scope="session")
def parrot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parrot]:
    """The echo environment that ``openenv init`` makes, served as a process; its client can be imported."""
    pytest.importorskip("openenv", reason="needs the extra 'openenv'")
    from .parrot import serve_parrot

    with serve_parrot(tmp_path_factory.mktemp("parrot")) as found:
        yield found
