"""Templates, tasks and inputs of the coding environment, and how outputs are judged, without a sandbox."""

import json
from collections import Counter, defaultdict
from typing import Any

import pytest
from coding_env.cases import EXAMPLES, HIDDEN, examples, hidden
from coding_env.env import CCodingEnvironment, CodingEnvironment
from coding_env.languages import PLAIN
from coding_env.problem import Instance
from coding_env.problems import PROBLEMS
from coding_env.tasks import SIZES, instance_of, split_of
from orsay import host

TRAIN, TEST = (CodingEnvironment.splits[split] for split in ("train", "test"))
ROUND = len(PROBLEMS)
each_problem = pytest.mark.parametrize("name", PROBLEMS)


def first(name: str, turn: int = 0) -> Instance:
    """The instance of a template in its turn of the training tasks."""
    return instance_of(TRAIN[turn * ROUND + [*PROBLEMS].index(name)])


def parameters(tasks: Any) -> dict[str, set[str]]:
    found = defaultdict(set)
    for task in tasks:
        found[task["problem"]].add(json.dumps(instance_of(task).params, sort_keys=True))
    return found


def test_it_can_be_served() -> None:
    hosted = host(CodingEnvironment)
    assert {tool.name for tool in hosted.listing.tools} >= {"bash", "write_file", "run_examples", "submit"}
    assert [(split.name, split.type) for split in hosted.splits] == [("train", "train"), ("test", "test")]
    assert (len(TRAIN), len(TEST)) == (SIZES["train"], SIZES["test"])


def test_there_are_functions_and_programs_each_with_solutions_in_its_languages() -> None:
    forms = Counter(problem.form for problem in PROBLEMS.values())
    assert forms["function"] >= 10 and forms["program"] >= 10
    for problem in PROBLEMS.values():
        languages = {"python"} if problem.form == "function" else {*PLAIN}
        assert languages <= problem.solutions.keys() <= languages | {"c"}, problem.name
        assert len(problem.statements) >= 2 and all(len(words) >= 4 for words in problem.words.values())


def test_no_instance_of_one_split_is_in_the_other() -> None:
    trained, held_out = parameters(TRAIN[: 60 * ROUND]), parameters(TEST)
    for name in PROBLEMS:
        assert len(trained[name]) >= 30 and len(held_out[name]) >= 8, name
        assert not trained[name] & held_out[name], name
        assert {split_of(name, json.loads(found)) for found in trained[name]} == {"train"}
        assert {split_of(name, json.loads(found)) for found in held_out[name]} == {"test"}


def test_the_languages_take_turns() -> None:
    for name, problem in PROBLEMS.items():
        found = {task["language"] for task in TRAIN[: 8 * ROUND] if task["problem"] == name}
        assert found == problem.solutions.keys() & {*PLAIN}, name
    assert {task["language"] for task in CCodingEnvironment.splits["test"]} == {"c"}


def test_a_task_does_not_hold_its_parameters() -> None:
    for task in (*TRAIN[:ROUND], *TEST[:ROUND]):
        assert " ".join(task) == "id split index problem form language"


@pytest.mark.parametrize(
    "change", [{"index": 1}, {"index": True}, {"split": "dev"}, {"language": "perl"}, {"size": 1}]
)
def test_a_task_that_was_not_made_here_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a task of the coding environment"):
        CodingEnvironment({**TRAIN[0], **change})


@each_problem
def test_an_instance_is_the_same_each_time_and_says_all_of_itself(name: str) -> None:
    for turn in range(6):
        instance, again = first(name, turn), first(name, turn)
        assert (instance.text(), instance.solution()) == (again.text(), again.solution())
        for statement in instance.problem.statements:
            assert "{" not in statement.format(**instance.params, **instance.words)
        for language in instance.problem.solutions:
            source = Instance(**{**vars_of(instance), "language": language}).solution()
            assert "{{" not in source.replace("{{0", "") and source.strip()


def vars_of(instance: Instance) -> dict[str, Any]:
    return {name: getattr(instance, name) for name in ("problem", "params", "words", "statement", "language")}


@each_problem
def test_wording_and_parameters_vary(name: str) -> None:
    texts = {first(name, turn).text() for turn in range(30)}
    assert len(texts) >= 25


@each_problem
def test_hidden_inputs_are_others_than_the_examples_and_new_for_each_seed(name: str) -> None:
    instance = first(name)
    shown = examples(instance, "a")
    assert len(shown) == EXAMPLES and shown == examples(instance, "a")
    one, other = (hidden(instance, seed, shown=shown) for seed in ("1", "2"))
    assert len({instance.stdin(value) for value in [*one, *shown]}) == HIDDEN + EXAMPLES
    assert {instance.stdin(value) for value in one} != {instance.stdin(value) for value in other}


@each_problem
def test_no_answer_is_right_for_nearly_all_inputs(name: str) -> None:
    for turn in range(12):
        instance = first(name, turn)
        outputs = Counter(
            str(instance.expected(value)) for value in hidden(instance, str(turn), shown=[], number=40)
        )
        assert outputs.most_common(1)[0][1] <= 36, instance.text()


@each_problem
def test_the_prompt_has_the_statement_and_the_examples(name: str) -> None:
    task = TRAIN[[*PROBLEMS].index(name)]
    prompt = CodingEnvironment(task).prompt()
    instance = instance_of(task)
    assert prompt.startswith(instance.text())
    for value in examples(instance, task["id"]):
        assert str(instance.expected(value)) in prompt


# judging


def right(instance: Instance, value: Any) -> bytes:
    expected = instance.expected(value)
    return (json.dumps(expected) if instance.problem.form == "function" else str(expected)).encode()


@each_problem
def test_the_reference_is_right_and_hostile_outputs_are_wrong(name: str) -> None:
    instance = first(name)
    for value in hidden(instance, "1", shown=[], number=8):
        assert instance.accepts(value, right(instance, value))
        for output in (
            b"\xff\xfe",
            b"[" * 16_000,
            b"9" * 16_000,
            b'{"__class__": "int"}',
            b"NaN",
            b'[{}, [[]], "x"]',
            b"[[[[1]]], null]",
            right(instance, value) + b"\n1",
        ):
            assert not instance.accepts(value, output), output


def test_types_count() -> None:
    instance = first("shelf")
    params = {**instance.params, "answer": "the number of requests that found their item there"}
    instance = Instance(**{**vars_of(instance), "params": params})
    value = [["a", "a", "b"]]
    assert instance.accepts(value, b" 1 \n")
    for output in (b"true", b"1.0", b'"1"', b"[1]", b"2", b""):
        assert not instance.accepts(value, output), output


def test_white_space_at_the_end_does_not_count_in_programs() -> None:
    instance = first("number-words")
    value = "0\n0\n"
    word = right(instance, value).split()[0]
    assert instance.accepts(value, word + b"  \r\n" + word + b" \n\n")
    for output in (word, word + b" " + word, b"\n" + word + b"\n" + word, word + b"\n\n" + word):
        assert not instance.accepts(value, output), output


def test_any_right_choice_is_accepted() -> None:
    instance = first("pick-positions")
    params = {"modulus": 7, "fewest": 1, "apart": 2}
    instance = Instance(**{**vars_of(instance), "params": params})
    value = [[3, 4, 3, 1], 3]
    for output in ("[0]", "[2]"):
        assert instance.accepts(value, output.encode())
    for output in ("null", "[]", "[1]", "[2, 0]", "[0, 0]", "[0, 1]", "[-4]", "[4]", "[false]", "[0.0]", "0"):
        assert not instance.accepts(value, output.encode()), output
    assert instance.accepts([[7], 3], b"null") and not instance.accepts([[7], 3], b"[0]")


def test_any_plan_that_keeps_to_the_rules_is_accepted() -> None:
    instance = first("day-plan")
    params = {"most": 1, "rest": 2, "off": 2, "pair": "[earlier, later]"}
    instance = Instance(**{**vars_of(instance), "params": params})
    value = [["a", "b"], [["a", "b"]]]
    for output in ('[["a"], [], ["b"]]', '[[], [], ["a"], [], [], [], ["b"], []]'):
        assert instance.accepts(value, output.encode()), output
    for output in (
        "null",
        "[]",
        '[["a"], ["b"]]',
        '[["b"], [], ["a"]]',
        '[["a", "b"]]',
        '[["a"], [], ["b"], [], ["a"]]',
        '[["a"], null, ["b"]]',
        '["a", [], "b"]',
        '[["a"], [], [["b"]]]',
    ):
        assert not instance.accepts(value, output.encode()), output
    assert instance.accepts([["a", "b"], [["a", "b"], ["b", "a"]]], b"null")
