"""The tiny model that calls a tool, and a stand-in for vLLM that serves it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .standin.processes import ServedModel


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of the recorded answers and its tokenizer. Not to be written to."""
    pytest.importorskip("torch", reason="needs the extra 'trl'")
    pytest.importorskip("trl", reason="needs the extra 'trl'")
    from .standin import model

    return model.build(tmp_path_factory.mktemp("served") / "model")


@pytest.fixture(scope="session")
def standin(model_folder: Path) -> Iterator[ServedModel]:
    """A stand-in over ``model_folder`` for all tests of this process: ``base_url``, ``folder``, ``seen()``.

    Who changes weights or breaks the engine starts its own, with ``standin.processes.stand_in``.
    """
    from .standin.processes import stand_in

    with stand_in(model_folder) as served:
        yield served
