"""The terminal environment: its templates, its splits, and what a task says of itself, without a sandbox."""

import inspect
from collections import Counter
from typing import Any

import pytest
from orsay import JSONObject, host
from terminal_env.checks import Content, Data
from terminal_env.env import TerminalEnvironment
from terminal_env.kinds import TEMPLATES
from terminal_env.tasks import NUMBERS, SPLITS, Tasks, problem_of

KINDS = {"files", "text", "processes", "git", "archives", "sqlite", "logs", "permissions"}

HARDEST = [SPLITS["train"][2 * len(TEMPLATES) + at] for at in range(len(TEMPLATES))]
hardest = pytest.mark.parametrize("task", HARDEST, ids=[f"{each.kind}-{each.name}" for each in TEMPLATES])


def test_there_are_eight_kinds_with_five_templates_or_more() -> None:
    counts = Counter(template.kind for template in TEMPLATES)
    assert set(counts) == KINDS
    assert min(counts.values()) >= 5
    assert len({(each.kind, each.name) for each in TEMPLATES}) == len(TEMPLATES) == 60


def test_the_splits_are_computed_and_have_all_templates_in_turn() -> None:
    splits = host(TerminalEnvironment).splits
    assert [(split.name, split.type) for split in splits] == [("train", "train"), ("test", "test")]
    for split, tasks in SPLITS.items():
        assert len(tasks) == NUMBERS[split] * len(TEMPLATES)
        found = [tasks[at]["template"] for at in range(len(TEMPLATES), 2 * len(TEMPLATES))]
        assert found == [each.name for each in TEMPLATES]
        assert tasks[-1] == tasks[len(tasks) - 1]
        assert tasks[3:5] == [tasks[3], tasks[4]]
        with pytest.raises(IndexError):
            tasks[len(tasks)]


async def test_no_task_is_made_to_count_or_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    one = Tasks._task

    def counted(tasks: Tasks, index: int) -> JSONObject:
        made.append(index)
        return one(tasks, index)

    monkeypatch.setattr(Tasks, "_task", counted)
    tasks = host(TerminalEnvironment).tasks
    assert await tasks.num_tasks("test") == 1500
    assert (await tasks.get_task("train", 14_999))["id"] == "terminal-train-14999"
    assert made == [14_999]


def test_no_instance_is_in_both_splits() -> None:
    """Neither what is found in the sandbox, without the names of files, nor what must hold in the end."""
    inputs: dict[str, set[object]] = {}
    checks: dict[str, set[object]] = {}
    for split, tasks in SPLITS.items():
        problems = [problem_of(task) for task in tasks]
        inputs[split] = {(tuple(sorted(map(repr, each.files.values()))), each.setup) for each in problems}
        checks[split] = {repr(each.checks) for each in problems}
    assert not inputs["train"] & inputs["test"]
    assert not checks["train"] & checks["test"]
    assert len(checks["train"]) == len(SPLITS["train"])
    assert len(checks["test"]) == len(SPLITS["test"])


def test_the_problems_of_a_template_differ() -> None:
    for at in range(len(TEMPLATES)):
        some = [problem_of(SPLITS["train"][number * len(TEMPLATES) + at]) for number in range(20)]
        assert len({repr(problem.checks) for problem in some}) == 20


@hardest
def test_a_task_is_always_the_same_problem(task: JSONObject) -> None:
    assert problem_of(task) == problem_of(dict(task))


@hardest
def test_neither_task_nor_prompt_nor_sandbox_has_the_answer(task: JSONObject) -> None:
    problem = problem_of(task)
    assert sorted(task) == ["id", "index", "kind", "level", "split", "template"]
    assert problem.solution not in problem.setup + problem.prompt
    for check in problem.checks:
        if isinstance(check, Content | Data) and check.path not in problem.files:
            wanted = check.content if isinstance(check, Content) else str(check.value)
            raw = wanted if isinstance(wanted, bytes) else wanted.encode()
            found = [each if isinstance(each, bytes) else each.encode() for each in problem.files.values()]
            assert raw not in found
            if b"\n" in raw:
                assert raw not in problem.prompt.encode()


@hardest
def test_a_prompt_is_ordinary_text(task: JSONObject) -> None:
    prompt = TerminalEnvironment(task).prompt()
    assert prompt.startswith(f"Task {task['id']}.\n\n")
    assert inspect.cleandoc(prompt) == prompt
    assert "{" not in prompt.replace('{"2024-01-31": 5}', "")
    assert "  " not in prompt


@pytest.mark.parametrize(
    "change", [{"index": 2}, {"index": -1}, {"index": 10**9}, {"split": "dev"}, {"level": 2}, {"answer": "x"}]
)
def test_a_task_that_was_not_made_here_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a task of the terminal environment"):
        TerminalEnvironment({**SPLITS["train"][0], **change})
