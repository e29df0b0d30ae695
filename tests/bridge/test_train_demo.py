"""The training demonstration: a short run end to end, and the parts that its claim rests on."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'trl'")
pytest.importorskip("trl", reason="needs the extra 'trl'")
pytest.importorskip("matplotlib", reason="needs the extra 'demo'")

import torch
from doors_env.tasks import TASKS, WORDS, code_word
from orsay_trl import EnvironmentSpec, Episode
from orsay_trl.rollout.tokens import ChatFormat
from orsay_trl.testing import tiny_model as tiny
from rich.console import Console
from train_demo import gpu, training, warmup
from train_demo.evaluation import Evaluation, by_looking, by_model, evaluate
from train_demo.report import Batch, Report, write
from train_demo.screen import Curve, Screen
from train_demo.serving import TARGET
from train_demo.transcripts import encode, render

from tests.interop.servers import serve

from ..support.trainers import trainers

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
PATHS = [ROOT / "examples", ROOT / "envs" / "doors"]
SEARCHED = os.pathsep.join([*map(str, PATHS), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.fixture(scope="module")
def spec() -> Iterator[EnvironmentSpec]:
    with serve(TARGET, options=["--workers", "1"], paths=PATHS) as server:
        found = EnvironmentSpec(server.url)
        yield found
        found.close()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """So small a model is slower on several, and far slower where other tests run too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def demo(*arguments: str, limit_s: float = 250) -> subprocess.CompletedProcess[str]:
    """What ``scripts/train-demo`` runs, in this interpreter's environment."""
    variables = {**os.environ, "PYTHONPATH": SEARCHED, "OMP_NUM_THREADS": "1"}
    return trainers().run(["-m", "train_demo", *arguments], env=variables, timeout=limit_s)


@pytest.mark.timeout(300)  # half a minute where nothing else runs
def test_a_short_run_goes_from_nothing_to_a_report(tmp_path: Path) -> None:
    done = demo("--smoke", "--seed", "3", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "batch   1" in done.stdout
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["seed"], report["path"]) == (3, "environment_factory")
    assert (report["optimizer_steps"], report["episodes_per_batch"]) == (4, 96)
    (batch,) = report["batches"]
    assert batch["reward"] == report["first_batch"] == report["last_five"]
    assert round(batch["reward"] * 96) == pytest.approx(batch["reward"] * 96, abs=1e-3), (
        "a share of 96 episodes"
    )
    assert 0 < batch["environment_share"] < 1
    assert batch["seconds"] > 0
    for name in ("held_out_before", "held_out_after"):
        played = report[name]
        assert (played["tasks"], played["episodes"], played["faults"]) == (5, 5, 0)
        assert played["reward"] == played["won"] / 5
    first_loss, last_loss = report["warm_up_loss"]
    assert last_loss < first_loss / 3
    assert set(report["seconds"]) == {"set-up", "warm-up", "evaluation", "training", "total"}
    assert 1 < report["cpu_seconds"] < 600
    assert set(report["versions"]) == {"orsay", "trl", "transformers", "torch"}
    assert (tmp_path / "reward.png").read_bytes().startswith(b"\x89PNG")
    assert "| held-out reward after |" in (tmp_path / "report.md").read_text()
    assert (tmp_path / "model" / "config.json").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_measuring_a_gpu_where_there_is_none_says_so_and_exits_with_2() -> None:
    done = demo("--gpu")
    assert done.returncode == 2
    assert "there is no GPU here" in done.stderr


@pytest.mark.timeout(300)  # ten seconds where nothing else runs
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")  # TRL's, of what it sets itself
def test_the_measurement_for_gpus_gives_its_numbers_on_any_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", SEARCHED)
    monkeypatch.setattr(gpu, "_EPISODES", 20)
    monkeypatch.setattr(gpu, "_WARM_UP_STEPS", 2)
    monkeypatch.setattr(training, "PROMPTS", 2)
    short = partial(training.make_trainer, max_completion_length=32)
    monkeypatch.setattr(training, "make_trainer", short)
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_key_value_heads": 1, "head_dim": 16}
    gpu.measure(0, tmp_path, Screen(Console(file=StringIO())), device="cpu", size=small, batches=4)
    measured = json.loads((tmp_path / "gpu.json").read_text())
    assert measured["device"] == "cpu"
    assert 30_000 < measured["model_parameters"] < 150_000
    assert measured["episodes_per_second"] == pytest.approx(measured["steps_per_second"] / 4 * 16)
    assert 0 < measured["environment_share"] < 1


def test_the_script_explains_itself_without_installing_anything() -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "train-demo", "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    for option in ("--seed", "--vllm", "--steps", "--out", "--smoke", "--gpu"):
        assert option in done.stdout
    assert "examples:" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--vllm"], "scripts/train-demo"), (["--steps", "0"], "at least 1")],
)
def test_what_cannot_be_run_is_refused_in_words(arguments: list[str], message: str) -> None:
    done = demo(*arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_script_that_looks_wins_every_held_out_task(spec: EnvironmentSpec) -> None:
    assert evaluate(spec, by_looking, times=3) == Evaluation(5, 15, 0, 15, 1.0)


def test_held_out_episodes_are_counted_one_by_one(spec: EnvironmentSpec) -> None:
    async def first_two_doors(episode: Episode) -> None:
        right = code_word(TASKS["test"][episode.task.index])
        await episode.call("open", {"code": right if episode.row["door"] <= 2 else "no"})

    assert evaluate(spec, first_two_doors, times=4) == Evaluation(5, 20, 0, 8, 0.4)


def test_who_does_nothing_gets_nothing(spec: EnvironmentSpec) -> None:
    async def nothing(episode: Episode) -> None:
        pass

    assert evaluate(spec, nothing, times=1) == Evaluation(5, 5, 0, 0, 0.0)


def test_an_episode_lost_to_a_fault_is_not_a_lost_game(spec: EnvironmentSpec) -> None:
    async def lost(episode: Episode) -> None:
        if episode.row["door"] == 1:
            episode.mark_lost("worker_lost", "the worker is gone")
        else:
            await by_looking(episode)

    assert evaluate(spec, lost, times=2) == Evaluation(5, 10, 2, 8, 1.0)


def test_held_out_tasks_are_those_of_the_split_test(spec: EnvironmentSpec) -> None:
    seen = []

    async def note(episode: Episode) -> None:
        seen.append((episode.task.split, episode.task.index))

    evaluate(spec, note, times=1)
    assert sorted(seen) == [("test", index) for index in range(5)]


def test_a_model_that_learned_nothing_wins_nothing_and_every_session_ends(spec: EnvironmentSpec) -> None:
    tokenizer = tiny.tokenizer()
    model = tiny.model(tokenizer)
    with by_model(spec, model, tokenizer) as policy:
        found = evaluate(spec, policy, times=1)
    assert (found.episodes, found.faults, found.won) == (5, 0, 0)
    assert spec.pool.open_episodes == 0


def scripted(spec: EnvironmentSpec, episodes: int = 24) -> list[list[dict[str, Any]]]:
    environment = spec.environment_factory()
    rows = list(spec.train_dataset)
    return [[dict(m) for m in one] for one in warmup.play_many(environment, rows, episodes, seed=5)]


def test_scripted_episodes_look_and_then_say_the_right_word_seldom(spec: EnvironmentSpec) -> None:
    printed, right = [], 0
    for number, messages in enumerate(scripted(spec, 100)):
        task = TASKS["train"][number % 20]
        look, opened = (messages[at]["tool_calls"][0]["function"] for at in (1, 3))
        assert (look["name"], look["arguments"]) == ("look", {"door": task["door"]})
        assert code_word(task) in messages[2]["content"]
        printed.append(opened["arguments"]["code"])
        right += printed[-1] == code_word(task)
        assert ("opens" in messages[4]["content"]) == (printed[-1] == code_word(task))
    assert set(printed) == set(WORDS)
    assert 0.3 < right / 100 < 0.5, "a quarter, and a fifth of the rest"


def test_a_transcript_has_the_tokens_that_a_trainer_would_put_together(spec: EnvironmentSpec) -> None:
    episodes = scripted(spec)
    tools = spec.tools.schemas
    texts = [render(tiny.tokenizer(), messages, tools) for messages in episodes]
    tokenizer = tiny.tokenizer(texts)
    chat = ChatFormat(tokenizer, template_kwargs={"enable_thinking": False})
    for messages, text in zip(episodes, texts, strict=True):
        made = encode(tokenizer, text)
        ids, learned = chat.prompt(messages[:1], tools), []
        learned += [False] * len(ids)
        turns = list(_spoken(messages))
        for at, turn in enumerate(turns):
            sampled = tokenizer.encode(turn)
            ids += sampled
            learned += [True] * len(sampled)
            if at < len(turns) - 1:
                between = chat.between(sampled, [messages[2 * at + 2]])
                ids += between
                learned += [False] * len(between)
        assert made.ids == ids
        assert made.learned == learned


def _spoken(messages: list[dict[str, Any]]) -> Iterator[str]:
    for message in messages:
        if message["role"] == "assistant":
            calls = message.get("tool_calls")
            text = message["content"]
            if calls:
                call = calls[0]["function"]
                arguments = json.dumps(call["arguments"])
                text = f'<tool_call>\n{{"name": "{call["name"]}", "arguments": {arguments}}}\n</tool_call>'
            yield text + "<|im_end|>"


def report(rewards: list[float], after: float) -> Report:
    made = Report(
        seed=0,
        path="environment_factory",
        model_parameters=1,
        versions={"trl": "1"},
        warm_up_episodes=1,
        warm_up_steps=1,
        optimizer_steps=4,
        episodes_per_batch=96,
    )
    made.batches = [Batch(reward, 1.0, 0.25) for reward in rewards]
    made.held_out_before = Evaluation(5, 40, 0, 8, 0.2)
    made.held_out_after = Evaluation(5, 40, 0, round(after * 40), after)
    return made


@pytest.mark.parametrize(
    ("rewards", "after", "learned"),
    [
        ([0.3, 0.5, 0.8, 0.8, 0.8, 0.8, 0.8], 0.8, True),
        ([0.3, 0.9, 0.9, 0.7, 0.7, 0.8, 0.8], 0.9, False),
        ([0.3, 0.5, 0.9, 0.9, 0.9, 0.9, 0.9], 0.775, False),
        ([0.45, 0.5, 0.9, 0.9, 0.9, 0.9, 0.9], 0.9, False),
    ],
    ids=["learned", "end too low", "held out too low", "began too high"],
)
def test_a_run_shows_learning_only_by_all_three_metrics(
    rewards: list[float], after: float, learned: bool, tmp_path: Path
) -> None:
    made = report(rewards, after)
    assert made.last_five == pytest.approx(sum(rewards[-5:]) / 5)
    assert made.learned is learned
    write(made, tmp_path)
    assert json.loads((tmp_path / "report.json").read_text())["learned"] is learned
    assert ("does not show" in (tmp_path / "report.md").read_text()) is not learned


def test_the_curve_grows_with_the_reward() -> None:
    curve = Curve(4)
    curve.rewards += [0.0, 0.5, 1.0]
    lines = [line.split("┤")[1] for line in curve.lines()]
    assert len(lines) == 8
    assert lines[0] == "    ██  "
    assert lines[4:] == ["  ████  "] * 4
