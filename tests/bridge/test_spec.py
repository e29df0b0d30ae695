"""``EnvironmentSpec``: what a trainer takes from it, against real servers, ours and released ones."""

from __future__ import annotations

import gc
import json
import logging
import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from orsay_client import errors
from orsay_trl import EnvironmentSpec
from orsay_trl.trainer.dataset import RESERVED_COLUMNS, seed_of
from orsay_trl.trainer.environment import EnvironmentFactory, RolloutEnvironment

from tests.interop.servers import released
from tests.interop.venvs import OPENREWARD, ORS, python_for

from ..support.bridge_server import EnvServer, serve_environments
from ..support.waiting import until_true
from .child_player import play

pytest.importorskip("datasets", reason="needs the extra 'trl'")

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def env_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvServer]:
    names = ("Words", "Fickle", "Unseeded", "Noted", "Broken", "Judged", "Mixed", "Endless")
    with serve_environments(tmp_path_factory.mktemp("spec"), *names) as found:
        yield found


@pytest.fixture
def spec(env_server: EnvServer) -> Iterator[EnvironmentSpec]:
    made = EnvironmentSpec(env_server.url)
    yield made
    made.close()


# What TRL's own spec offers


def test_making_a_spec_sends_nothing() -> None:
    spec = EnvironmentSpec("http://127.0.0.1:1", num_tasks=3, env_name="any")
    assert spec.environment_factory is spec.environment_factory
    pickle.dumps(spec)
    assert spec.live._pool is None, "a connection was made before anything was asked"


def test_the_dataset_has_a_row_for_each_task(spec: EnvironmentSpec) -> None:
    rows = list(spec.train_dataset)
    assert [row["task_index"] for row in rows] == list(range(8))
    assert [row["prompt"] for row in rows] == [[{"role": "user", "content": ""}]] * 8
    assert rows[3] == {**rows[3], "id": "word-3", "word": "fig", "level": 0, "task_split": "train"}
    assert spec.train_dataset is spec.train_dataset


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"num_tasks": 2}, ["apple", "pear"]),
        ({"num_tasks": 99, "split": "test"}, ["apple", "pear", "plum"]),
        ({"indices": [5, 0, 5]}, ["lime", "apple", "lime"]),
        ({"indices": [2, 3, 4, 6]}, ["plum", "fig", "cherry", "quince"]),
        ({"indices": [-1]}, ["grape"]),
    ],
)
def test_tasks_are_chosen(env_server: EnvServer, arguments: dict[str, Any], words: list[str]) -> None:
    spec = EnvironmentSpec(env_server.url, **arguments)
    assert [row["word"] for row in spec.train_dataset] == words
    environment = spec.environment_factory()
    assert environment.reset(**spec.train_dataset[0]) == f"Say the word: {words[0]}."
    spec.close()


def test_a_rollout_has_the_state_that_reward_functions_read(spec: EnvironmentSpec) -> None:
    environment: Any = spec.environment_factory()
    assert (environment.reward, environment.rewards, environment.metadata) == (0.0, [], [])
    assert (environment.finished, environment.last_output, environment.get_reward()) == (False, "", None)
    assert environment.reset(**spec.train_dataset[1]) == "Say the word: pear."
    assert environment.say(word="apple") == "wrong, heard ['apple']"
    assert environment.look() == "here: pear"
    assert environment.say("pear") == "right"
    assert environment.rewards == [0.0, None, 1.0]
    assert environment.metadata[0]["rewards"]["accuracy"] == 0.0
    assert environment.metadata[1] is None
    assert (environment.reward, environment.finished, environment.last_output) == (1.0, True, "right")
    assert environment.get_reward() == 1.0
    assert spec.reward_funcs([environment]) == spec.reward_funcs(environments=[environment]) == [1.0]


def test_a_reset_begins_anew_and_ends_the_session_before(
    env_server: EnvServer, spec: EnvironmentSpec
) -> None:
    environment: Any = spec.environment_factory()
    environment.reset(**spec.train_dataset[0])
    first = env_server.diary.lines("setup")[-1]["key"]
    environment.say(word="apple")
    environment.reset(**spec.train_dataset[1])
    assert (environment.rewards, environment.finished, environment.reward) == ([], False, 0.0)
    spec.close()
    assert first in {line["key"] for line in env_server.diary.lines("teardown")}


def test_tools_of_tasks_are_looked_for_only_where_asked(env_server: EnvServer) -> None:
    for arguments, probed in (
        ({"discover_task_tools": False}, []),
        ({}, ["word-0"]),
        ({"indices": [4, 2, 4]}, ["word-2", "word-4"]),
        ({"indices": [4, 2], "task_tools_discovery_index": 5}, ["word-5"]),
    ):
        before = len(env_server.diary.lines("constructed"))
        spec = EnvironmentSpec(env_server.url, env_name="Noted", **arguments)
        assert callable(spec.environment_factory().say)  # type: ignore[attr-defined]
        spec.close()
        assert sorted(line["id"] for line in env_server.diary.lines("constructed")[before:]) == probed


def test_a_tool_shows_people_its_types(spec: EnvironmentSpec) -> None:
    environment: Any = spec.environment_factory()
    assert environment.say.__annotations__ == {"word": str, "return": str}
    assert "Say a word." in environment.say.__doc__
    with pytest.raises(TypeError, match="at most"):
        environment.say("one", "two")
    with pytest.raises(TypeError, match="twice"):
        environment.say("one", word="two")
    with pytest.raises(RuntimeError, match="reset"):
        environment.say(word="x")


# Beyond it


def test_several_servers_in_one_process_stay_apart(env_server: EnvServer, tmp_path: Path) -> None:
    with serve_environments(tmp_path, "Judged") as other:
        first, second = EnvironmentSpec(env_server.url), EnvironmentSpec(other.url)
        assert (len(first.train_dataset), len(second.train_dataset)) == (8, 2)
        one: Any = first.environment_factory()
        two: Any = second.environment_factory()
        assert type(one) is not type(two)
        assert one.reset(**first.train_dataset[0]) == "Say the word: apple."
        assert two.reset(**second.train_dataset[0]) == "The answer is yes."
        assert two.hint() == "yes"
        assert not hasattr(two, "say")
        assert not hasattr(one, "hint")
        first.close()
        second.close()


def test_no_variable_of_the_process_says_where_to_go(
    env_server: EnvServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENREWARD_API_URL", "OPENREWARD_SESSION_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("OPENREWARD_API_KEY", "wrong")
    spec = EnvironmentSpec(env_server.url, num_tasks=1)
    assert len(spec.train_dataset) == 1
    spec.close()


def test_the_evaluation_dataset_comes_from_its_own_split(env_server: EnvServer) -> None:
    spec = EnvironmentSpec(env_server.url, eval_num_tasks=2)
    assert [(row["id"], row["task_split"]) for row in spec.eval_dataset] == [
        ("test-0", "test"),
        ("test-1", "test"),
    ]
    environment = spec.environment_factory()
    environment.reset(**spec.eval_dataset[1])
    assert env_server.diary.lines("setup")[-1]["id"] == "test-1"
    spec.close()
    assert EnvironmentSpec(env_server.url, eval_split="train").eval_dataset[7]["word"] == "grape"


def test_a_seed_is_one_for_each_task_and_reaches_the_environment(env_server: EnvServer) -> None:
    spec = EnvironmentSpec(
        env_server.url, env_name="Unseeded", seed_field="seed", seed=7, include_metadata=False
    )
    rows = list(spec.train_dataset)
    assert [row["seed"] for row in rows] == [seed_of(7, "train", i) for i in range(8)]
    assert len({row["seed"] for row in rows}) == 8
    places = [spec.environment_factory() for _ in range(3)]
    prompts = [place.reset(**rows[2]) for place in places]
    assert prompts == [f"Number {rows[2]['seed']}: say plum."] * 3
    spec.prepare([rows[0]] * 4 + [rows[1]] * 4, one_prompt_per_task=True)
    spec.close()


def test_prompts_that_differ_in_a_group_are_an_error_for_a_server_that_samples_groups(
    env_server: EnvServer,
) -> None:
    spec = EnvironmentSpec(env_server.url, env_name="Unseeded")
    rows = list(spec.train_dataset)[:2]
    spec.prepare(rows, one_prompt_per_task=True)
    spec.prepare([rows[0]] * 2)
    with pytest.raises(ValueError, match=r"train\[1\].*seed_field"):
        spec.prepare([rows[1]] * 2, one_prompt_per_task=True)
    spec.close()


def test_columns_without_a_common_type_hold_json(env_server: EnvServer) -> None:
    rows = list(EnvironmentSpec(env_server.url, env_name="Mixed").train_dataset)
    assert [row["value"] for row in rows] == ["1", '"two"', None]
    assert [row["extra"] for row in rows] == [None, True, None]
    assert [row["rows"] for row in rows] == [[1, 2], [], None]
    assert json.loads(rows[0]["huge"]) == 2**80
    assert [row["prompt"] for row in rows] == [[{"role": "user", "content": ""}]] * 3
    taken = set(RESERVED_COLUMNS) & set(rows[0])
    assert taken == {"prompt", "task_index", "task_split"}, "a field became a column that a trainer reads"


def test_a_split_too_large_to_list_is_counted_only(env_server: EnvServer) -> None:
    before = len(env_server.diary.lines("get_task"))
    spec = EnvironmentSpec(
        env_server.url, env_name="Endless", num_tasks=2000, include_metadata=False, discover_task_tools=False
    )
    assert len(spec.train_dataset) == 2000
    assert len(env_server.diary.lines("get_task")) == before
    spec.close()
    with_fields = EnvironmentSpec(env_server.url, env_name="Endless", indices=[3, 999_999_999])
    assert [row["number"] for row in with_fields.train_dataset] == [3, 999_999_999]
    assert with_fields.environment_factory().reset(**with_fields.train_dataset[1]) == "number 999999999"
    with_fields.close()


def test_a_spec_can_be_pickled_before_and_after_use(env_server: EnvServer, spec: EnvironmentSpec) -> None:
    fresh = pickle.loads(pickle.dumps(spec))
    row = spec.train_dataset[0]
    used: Any = spec.environment_factory()
    used.reset(**row)
    copies = pickle.loads(
        pickle.dumps((spec, spec.environment_factory, spec.reward_funcs, spec.group_reward))
    )
    for factory in (fresh.environment_factory, copies[0].environment_factory, copies[1]):
        assert isinstance(factory, EnvironmentFactory)
        environment: Any = factory()
        environment.reset(**row)
        assert environment.say(word="apple") == "right"
        assert copies[2](environments=[environment]) == [1.0]
        factory.live.close()
    assert used.say(word="pear") == "wrong, heard ['pear']", "the first was disturbed"


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_a_spec_that_was_used_plays_in_a_child_process_too(spec: EnvironmentSpec, way: Any) -> None:
    row = spec.train_dataset[2]
    environment: Any = spec.environment_factory()
    environment.reset(**row)
    context = multiprocessing.get_context(way)
    answer = context.Queue()
    child = context.Process(target=play, args=(spec, row, answer))
    child.start()
    assert answer.get(timeout=60) == 1.0
    child.join(30)
    assert child.exitcode == 0
    assert environment.look() == "here: plum", "the child ended its parent's session"


def test_importing_the_bridge_imports_nothing_heavy() -> None:
    code = (
        "import sys, orsay_trl; from orsay_trl import EnvironmentSpec;"
        "EnvironmentSpec('http://127.0.0.1:1').environment_factory;"
        "heavy = {'torch', 'trl', 'transformers', 'datasets', 'openreward', 'vllm', 'PIL', 'numpy'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_tasks": 2, "indices": [0]}, "num_tasks or indices"),
        ({"target": "nowhere"}, "owner/name"),
        ({"max_fault_share": 2}, "max_fault_share"),
        ({"terminal": "never"}, "terminal"),
        ({"retries": -1}, "retries"),
        ({"concurrency": 0}, "concurrency"),
        ({"reward": "best"}, "discounted"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EnvironmentSpec(**{"target": "http://127.0.0.1:1", **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "nope"}, "nope"),
        ({"env_name": "nope"}, "nope"),
        ({"indices": [99]}, "99"),
        ({"indices": [6, 7, 8]}, "8"),
        ({"split": "empty"}, "no tasks"),
        ({"num_tasks": 0}, "no tasks"),
    ],
)
def test_what_the_server_does_not_have_is_named(
    env_server: EnvServer, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(errors.BadRequest, match=message):
        EnvironmentSpec(env_server.url, **arguments).train_dataset  # noqa: B018


def test_a_server_that_is_no_ors_server_is_reported_as_such(env_server: EnvServer) -> None:
    with pytest.raises((errors.ProtocolError, errors.BadRequest)):
        EnvironmentSpec(env_server.url + "/health").train_dataset  # noqa: B018


def test_keys_and_secrets_show_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serve_environments(tmp_path, "Words", api_keys='["the-right-key"]') as env_server:
        spec = EnvironmentSpec(env_server.url, api_key="the-right-key", secrets={"token": "hush-hush"})
        environment: Any = spec.environment_factory()
        environment.reset(**spec.train_dataset[0])
        assert environment.secret() == "1 secrets"
        assert env_server.diary.lines("secret")[-1]["given"] == {"token": "hush-hush"}
        texts = [repr(spec), repr(environment.episode), repr(spec.environment_factory), repr(environment)]
        spec.close()
        for key in ("the-wrong-key", None):
            with pytest.raises(errors.Unauthorized) as caught:
                EnvironmentSpec(env_server.url, api_key=key).train_dataset  # noqa: B018
            texts.append(str(caught.value))
        texts.append(caplog.text)
        texts.append(env_server.process.everything)
    for text in texts:
        assert not any(word in text for word in ("the-right-key", "hush-hush", "the-wrong-key"))


def test_a_password_in_the_url_does_not_show() -> None:
    spec = EnvironmentSpec("http://someone:hush-hush@127.0.0.1:1/", num_tasks=1)
    assert "hush-hush" not in repr(spec)
    assert "hush-hush" not in spec.class_name


def test_a_spec_that_is_garbage_ends_its_sessions(env_server: EnvServer) -> None:
    spec: EnvironmentSpec | None = EnvironmentSpec(env_server.url)
    assert spec is not None
    environment: RolloutEnvironment | None = spec.environment_factory()
    assert environment is not None
    environment.reset(**spec.train_dataset[0])
    key = env_server.diary.lines("setup")[-1]["key"]
    spec = environment = None
    gc.collect()
    until_true(lambda: key not in env_server.diary.open_sessions())


def test_a_spec_that_its_own_loop_collects_ends_its_sessions(env_server: EnvServer) -> None:
    environment = EnvironmentSpec(env_server.url).environment_factory()
    environment.reset(task_split="train", task_index=0)
    key = env_server.diary.lines("setup")[-1]["key"]
    held, pool = [environment], environment.live.pool
    del environment

    async def forget() -> None:
        held.clear()
        gc.collect()

    pool.start(forget()).result(60)
    until_true(lambda: key not in env_server.diary.open_sessions())


def test_a_mixture_that_is_garbage_ends_the_sessions_of_all(env_server: EnvServer) -> None:
    """The specs share a loop, which goes on until the last of them has ended."""
    leader, other = (EnvironmentSpec(env_server.url, env_name="Noted", concurrency=2) for _ in range(2))
    mixture = EnvironmentSpec.combine(leader, other, names=["a", "b"])
    loop = leader.live.pool._loop
    other.prepare([{"task_split": "train", "task_index": 0}] * 12)
    keys = {line["key"] for line in env_server.diary.lines("setup")[-12:]}
    assert other.live.pool._loop is loop
    del leader, other, mixture
    gc.collect()
    until_true(lambda: not keys & set(env_server.diary.open_sessions()))
    until_true(lambda: not loop._thread.is_alive())


def test_sessions_end_with_the_process(env_server: EnvServer) -> None:
    code = (
        "import os; from orsay_trl import EnvironmentSpec;"
        "spec = EnvironmentSpec(os.environ['URL'], env_name='Noted');"
        "row = {'task_split': 'train', 'task_index': 0};"
        "places = [spec.environment_factory() for _ in range(3)]; [p.reset(**row) for p in places];"
        "print('open')"
    )
    before = env_server.diary.open_sessions()
    started = len(env_server.diary.lines("constructed"))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "URL": env_server.url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "open\n", "")
    assert len(env_server.diary.lines("constructed")) == started + 4, "three episodes and a look for tools"
    assert env_server.diary.open_sessions() <= before


# Released servers


@pytest.mark.venv
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("package", "version"), [("openreward", OPENREWARD[-1]), ("ors-sdk", ORS)])
def test_released_servers_are_played_unmodified(package: str, version: str) -> None:
    with released(python_for(package, version), package) as server:
        spec = EnvironmentSpec(server.url, num_tasks=3, reward="sum", images=False)
        rows = list(spec.train_dataset)
        assert [row["goal"] for row in rows] == ["say 0", "say 1", "say 2"]
        environment: Any = spec.environment_factory()
        assert "Task train-1: say 1" in environment.reset(**rows[1])
        assert environment.look() == "train-1"
        assert environment.add(n=3) == "3"
        assert environment.add(n=4) == "7"
        assert "1000" in environment.add(n=4000), "a refusal tells the model what is wrong"
        assert environment.finish(n=2) == "done"
        assert (environment.finished, environment.rewards) == (True, [None, 3.0, 4.0, None, 2.0])
        assert spec.reward_funcs(environments=[environment]) == [9.0]
        second = EnvironmentSpec(server.url, env_name="second", discover_task_tools=False)
        assert second.tools.schemas
        second.close()
        spec.close()
