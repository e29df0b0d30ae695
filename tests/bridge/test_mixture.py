"""Several environments in one run: rows of each go to it, with its tools and its rules."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from orsay_trl import EnvironmentSpec

from ..support.bridge_server import TRAINING, EnvServer, serve_environments

pytest.importorskip("trl", reason="needs the extra 'trl'")
from .players import ConcurrentScripted, PlainScripted, call, make_trainer
from .rolling import logged

pytestmark = [pytest.mark.process, *TRAINING]

BOTH = pytest.mark.parametrize("cls", [PlainScripted, ConcurrentScripted], ids=["trl", "ours"])


@pytest.fixture(scope="module")
def env_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvServer]:
    names = ("Words", "Judged", "Mixed", "Schemas")
    with serve_environments(tmp_path_factory.mktemp("mixture"), *names) as found:
        yield found


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvServer]:
    with serve_environments(tmp_path_factory.mktemp("other"), "Schemas") as found:
        yield found


def _specs(env_server: EnvServer, *names: str, **more: Any) -> list[EnvironmentSpec]:
    return [EnvironmentSpec(env_server.url, env_name=name, **more) for name in names]


def test_rows_of_all_environments_are_mixed(env_server: EnvServer) -> None:
    mixture = EnvironmentSpec.combine(*_specs(env_server, "Words", "Judged"))
    rows = list(mixture.train_dataset)
    assert Counter(row["environment"] for row in rows) == {"Words": 8, "Judged": 2}
    assert {row["word"] for row in rows if row["environment"] == "Judged"} == {None}
    assert {row["answer"] for row in rows if row["environment"] == "Judged"} == {"yes", "no"}
    assert [row["environment"] for row in rows] != sorted(row["environment"] for row in rows)
    again = EnvironmentSpec.combine(*_specs(env_server, "Words", "Judged"))
    assert list(again.train_dataset) == rows, "the same seed gives the same order"
    turned = EnvironmentSpec.combine(*_specs(env_server, "Words", "Judged"), seed=1)
    assert list(turned.train_dataset) != rows
    assert Counter(row["environment"] for row in mixture.eval_dataset) == {"Words": 3, "Judged": 1}
    for made in (mixture, again, turned):
        made.close()


@pytest.mark.parametrize(
    ("weights", "counts"),
    [
        ([1, 1], {"Words": 5, "Judged": 5}),
        ([3, 1], {"Words": 8, "Judged": 2}),
        ([0, 2], {"Judged": 10}),
        ([0.1, 0.9], {"Words": 1, "Judged": 9}),
    ],
)
def test_weights_are_shares_of_the_rows(
    env_server: EnvServer, weights: list[float], counts: dict[str, int]
) -> None:
    mixture = EnvironmentSpec.combine(*_specs(env_server, "Words", "Judged"), weights=weights)
    rows = list(mixture.train_dataset)
    assert Counter(row["environment"] for row in rows) == counts
    for name, size in (("Words", 8), ("Judged", 2)):
        tasks = Counter(row["task_index"] for row in rows if row["environment"] == name)
        assert not tasks or max(tasks.values()) - min([*tasks.values(), *[0] * (size - len(tasks))]) <= 1
    mixture.close()


def test_columns_whose_types_conflict_hold_json(env_server: EnvServer) -> None:
    mixture = EnvironmentSpec.combine(*_specs(env_server, "Words", "Mixed"))
    rows = list(mixture.train_dataset)
    assert len(rows) == 11
    assert sorted(row["value"] for row in rows if row["value"] is not None) == ['"two"', "1"]
    assert all(row["prompt"] == [{"role": "user", "content": ""}] for row in rows)
    mixture.close()


def test_the_task_is_in_the_message_for_a_rollout_function(env_server: EnvServer) -> None:
    mixture = EnvironmentSpec.combine(*_specs(env_server, "Words", "Judged"))
    for row in mixture.rollout_dataset:
        task = json.loads(row["prompt"][0]["task"])
        assert (task["task_split"], task["task_index"]) == ("train", row["task_index"])
    mixture.close()


@pytest.mark.parametrize(
    ("names", "more", "message"),
    [
        ([], {}, "at least one"),
        (["Words", "Words"], {}, "name of its own"),
        (["Words", "Judged"], {"names": ["a"]}, "name of its own"),
        (["Words", "Judged"], {"weights": [1]}, "one number for each"),
        (["Words", "Judged"], {"weights": [1, -1]}, "below 0"),
        (["Words", "Judged"], {"weights": [0, 0]}, "all of them 0"),
    ],
)
def test_what_cannot_be_combined_is_refused(names: list[str], more: dict[str, Any], message: str) -> None:
    specs = [EnvironmentSpec("http://127.0.0.1:1", env_name=name) for name in names]
    with pytest.raises(ValueError, match=message):
        EnvironmentSpec.combine(*specs, **more)


def test_a_mixture_can_be_pickled_after_use(env_server: EnvServer, other: EnvServer) -> None:
    mixture = EnvironmentSpec.combine(*_specs(env_server, "Words"), *_specs(other, "Schemas"))
    row = next(row for row in mixture.train_dataset if row["environment"] == "Words")
    mixture.environment_factory["Words"]().reset(**row)
    copy, factories = pickle.loads(pickle.dumps((mixture, mixture.environment_factory)))
    mixture.close()
    for found in (copy.environment_factory, factories):
        environment: Any = found["Schemas"]()
        assert environment.reset(task_split="train", task_index=0) == "Draw."
        environment = found["Words"]()
        assert environment.reset(**row).startswith("Say the word")
    copy.close()


def player(text: str) -> str:
    """Solves the words, answers yes where it is judged, draws where it can."""
    word = text.rsplit("Say the word: ", 1)
    if "<tool_response>" in text:
        return "Done."
    if len(word) > 1:
        assert '"name": "say"' in text
        assert '"name": "draw"' not in text, "the tools of another environment are shown"
        return call("say", word=word[1].split(".")[0])
    if "The answer is" in text:
        assert '"name": "hint"' in text
        assert '"name": "say"' not in text
        return "yes"
    assert '"name": "draw"' in text
    return call("nothing")


@BOTH
def test_three_environments_on_two_servers_train_together(
    env_server: EnvServer, other: EnvServer, tmp_path: Path, cls: type
) -> None:
    env_server.diary.clear()
    other.diary.clear()
    words, judged = _specs(env_server, "Words", "Judged", discover_task_tools=False)
    [schemas] = _specs(other, "Schemas", discover_task_tools=False, unscored=0.125)
    mixture = EnvironmentSpec.combine(
        words, judged, schemas, names=["words", "judged", "schemas"], weights=[1, 1, 1]
    )
    assert Counter(row["environment"] for row in mixture.train_dataset) == {
        "words": 4,
        "judged": 4,
        "schemas": 4,
    }
    seen: list[tuple[str, float | None]] = []

    def watch(environments: Any, environment: Any, **_: Any) -> list[None]:
        seen.extend(
            (f"{name} {played.episode.task.index}", played.reward)
            for name, played in zip(environment, environments, strict=True)
        )
        return [None] * len(environments)

    trainer = make_trainer(
        cls,
        tmp_path,
        player=player,
        spec=mixture,
        batch=12,
        steps=2,
        reward_funcs=[mixture.reward_funcs, watch],
    )
    trainer.train()
    assert Counter(name.split()[0] for name, _ in seen) == {"words": 8, "judged": 8, "schemas": 8}
    for name, reward in seen:
        expected = {"words": 1.0, "judged": 1.0 if name == "judged 0" else 0.0, "schemas": 0.125}
        assert reward == expected[name.split()[0]]
    entry = [entry for entry in trainer.state.log_history if "reward" in entry][-1]
    assert {"env/words/success", "env/judged/success", "env/schemas/success"} <= set(entry)
    assert sum(logged(trainer, "env/words/success")) == 2.0
    assert sum(logged(trainer, "env/schemas/reward")) == 0.25
    assert env_server.diary.calls() == {"say": 8}
    mixture.close()
    assert env_server.diary.open_sessions() == set()


def test_metrics_go_by_the_names_that_were_given(env_server: EnvServer, tmp_path: Path) -> None:
    first, second = (EnvironmentSpec(env_server.url, indices=[i], discover_task_tools=False) for i in (0, 1))
    mixture = EnvironmentSpec.combine(first, second, names=["easy", "hard"])
    trainer = make_trainer(ConcurrentScripted, tmp_path, player=player, spec=mixture, batch=4, steps=1)
    trainer.train()
    mixture.close()
    entry = next(entry for entry in trainer.state.log_history if "reward" in entry)
    assert (entry["env/easy/success"], entry["env/hard/success"]) == (1.0, 1.0)
    assert entry["env/easy/length"] == 1.0


def test_evaluation_of_a_mixture_plays_every_environment(env_server: EnvServer, tmp_path: Path) -> None:
    mixture = EnvironmentSpec.combine(*_specs(env_server, "Words", "Judged", discover_task_tools=False))
    trainer = make_trainer(
        ConcurrentScripted,
        tmp_path,
        player=player,
        spec=mixture,
        eval_dataset=mixture.eval_dataset,
        arguments={"per_device_eval_batch_size": 4},
    )
    assert trainer.evaluate()["eval_reward"] == 1.0
    mixture.close()


def test_a_fault_in_one_environment_leaves_the_others_alone(
    env_server: EnvServer, other: EnvServer, tmp_path: Path
) -> None:
    [words] = _specs(env_server, "Words", discover_task_tools=False, indices=[0])
    [schemas] = _specs(
        other, "Schemas", discover_task_tools=False, call_timeout_s=1e-6, retries=0, max_fault_share=1.0
    )
    mixture = EnvironmentSpec.combine(words, schemas)
    trainer = make_trainer(ConcurrentScripted, tmp_path, player=player, spec=mixture, batch=4, steps=1)
    trainer.train()
    mixture.close()
    assert logged(trainer, "env/Words/faults") == [0.0]
    assert logged(trainer, "env/Schemas/faults") == [1.0]
    assert logged(trainer, "reward") == [1.0]
