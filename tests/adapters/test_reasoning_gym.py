"""Generators of the released reasoning-gym behind a real server."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from orsay.adapters import reasoning_gym_environment
from orsay.runtimes.loader import load, source_of
from orsay_client import BadRequest, Client, Session, ToolRefused

pytest.importorskip("reasoning_gym", reason="needs the extra reasoning-gym")

from tests.support.server_process import server

pytestmark = pytest.mark.process

TARGETS = (
    "reasoning-gym:countdown?min_numbers=3&max_numbers=3&train_tasks=50&test_tasks=20",
    "reasoning-gym:leg_counting?prompt=",
    'reasoning-gym:composite?datasets=[{"name":"countdown","weight":1,"config":{}},'
    '{"name":"leg_counting","weight":2,"config":{}}]&name=mix',
)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A client of one worker: each that imports reasoning-gym costs over a second of CPU."""
    with server(*TARGETS) as running, Client(running.url) as client:
        yield client


def play(client: Client, name: str, index: int = 0, split: str = "train") -> Session:
    return client.environment(name).session(split=split, index=index)


def question(session: Session) -> str:
    (block,) = session.prompt()
    return str(getattr(block, "text", ""))


def solution(name: str, index: int, split: str = "train", **settings: Any) -> str:
    """The right answer, from the package itself."""
    import reasoning_gym

    seed = 0 if split == "train" else 1_000_000_000
    dataset = reasoning_gym.create_dataset(name, seed=seed, size=10_000, **settings)
    return str(dataset[index]["answer"])


def test_a_right_answer_pays_and_a_wrong_one_pays_less(client: Client) -> None:
    right = solution("countdown", 3, min_numbers=3, max_numbers=3)
    with play(client, "countdown", 3) as session:
        asked = question(session)
        assert len(re.findall(r"\d+", asked.splitlines()[0])) == 4
        assert asked.endswith("Give your final answer with the tool `answer`.")
        output = session.call("answer", {"text": right})
        assert (output.reward, output.finished) == (1.0, True)
        assert output.metadata is not None
        assert output.metadata["answer"] == right and output.metadata["source_dataset"] == "countdown"
        with pytest.raises(ToolRefused, match="finished"):
            session.call("answer", {"text": right})
    with play(client, "countdown", 3) as session:
        output = session.call("answer", {"text": "1+1"})
        assert output.reward is not None and output.reward < 0.1 and output.finished


def test_a_plain_message_is_graded_too(client: Client) -> None:
    environment = client.environment("leg_counting")
    assert environment.terminal_tool() is not None
    assert [spec.name for spec in environment.tools()] == ["answer"]
    right = solution("leg_counting", 0)
    for message in (f" {right}\n", f"I think <answer>0</answer>, no: <answer> {right} </answer>."):
        with play(client, "leg_counting") as session:
            output = session.call_terminal(message)
            assert (output.reward, output.finished) == (1.0, True)
    with play(client, "leg_counting") as session:
        assert session.call_terminal("no idea").reward == 0.0


def test_tasks_are_computed_from_their_index_and_splits_are_apart(client: Client) -> None:
    environment = client.environment("countdown")
    assert (environment.tasks("train").count(), environment.tasks("test").count()) == (50, 20)
    with pytest.raises(NotImplementedError, match="no list of tasks"):
        reasoning_gym_environment("countdown").list_tasks("train")
    with pytest.raises(BadRequest):
        environment.tasks("train").get(50)
    assert environment.tasks("test").get(-1).spec == {"id": "test-19", "split": "test", "index": 19}

    def asked(split: str, index: int) -> str:
        with play(client, "countdown", index, split) as session:
            return question(session)

    assert asked("train", 7) == asked("train", 7)
    train = {asked("train", index) for index in range(10)}
    test = {asked("test", index) for index in range(10)}
    assert len(train) == len(test) == 10 and not train & test


def test_an_answer_that_the_scorer_cannot_read_is_wrong_and_no_fault() -> None:
    cls: Any = reasoning_gym_environment("prime_factorization")
    episode = cls(task_spec={"split": "train", "index": 0})
    episode.setup()
    output = episode.answer("no idea")
    assert (output.reward, output.finished) == (0.0, True)
    assert "ValueError" in output.metadata["unreadable_answer"]


def test_a_mixture_of_generators_is_played(client: Client) -> None:
    kinds = set()
    for index in range(8):
        with play(client, "mix", index) as session:
            output = session.call("answer", {"text": "0"})
            assert output.metadata is not None
            kinds.add(output.metadata["source_dataset"])
    assert kinds == {"countdown", "leg_counting"}


def test_sessions_that_run_at_once_do_not_mix(client: Client) -> None:
    rights = [solution("countdown", index, min_numbers=3, max_numbers=3) for index in range(8)]

    def solve(index: int) -> float | None:
        with play(client, "countdown", index % 8) as session:
            question(session)
            return session.call("answer", {"text": rights[index % 8]}).reward

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(solve, range(24))) == [1.0] * 24


def test_a_task_of_another_kind_is_refused(client: Client) -> None:
    for spec in ({}, {"split": "train"}, {"split": "train", "index": 50}, {"split": "x", "index": 0}):
        with (
            pytest.raises(BadRequest, match="a task of 'countdown'"),
            client.environment("countdown").session(task_spec=spec) as session,
        ):
            session.prompt()


def test_a_class_from_python_is_loaded_again_from_its_target() -> None:
    cls: Any = reasoning_gym_environment("leg_counting", seed=9, max_animals=4, test_tasks=0)
    (again,) = load(source_of(cls))
    assert again.list_splits() == ["train"]  # type: ignore[attr-defined]  # an environment
    episodes = [each(task_spec={"split": "train", "index": 2}) for each in (cls, again)]
    for episode in episodes:
        episode.setup()
    assert episodes[0].prompt() == episodes[1].prompt()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # files that others leave open
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_every_generator_makes_an_item_and_scores_an_answer() -> None:
    from reasoning_gym.factory import DATASETS

    failed = {}
    for name in sorted(DATASETS):
        if name == "composite":  # needs parts: see above
            continue
        try:
            cls: Any = reasoning_gym_environment(name, train_tasks=20, test_tasks=0)
            episode = cls(task_spec={"split": "train", "index": 1})
            episode.setup()
            assert episode.prompt()
            output = episode.answer("no idea")
            output.model_dump_json()
            assert output.finished and 0 <= output.reward <= 1
        except Exception as exc:
            failed[name] = f"{type(exc).__name__}: {exc}"
    assert failed == {}
