"""Word problems: made by index, always the same, many, tidy, and solved by the expression they come with."""

import pytest
from arithmetic_env.calculator import calculate
from arithmetic_env.problems import LEVELS, SIZES, Problems, make_problem, solution
from arithmetic_env.templates import TEMPLATES


@pytest.mark.parametrize("split", SIZES)
def test_a_split_counts_and_gets_without_listing(split: str) -> None:
    problems = Problems(split)
    assert len(problems) == SIZES[split]
    last = problems[SIZES[split] - 1]
    assert last == problems[-1]
    assert (last["split"], last["index"]) == (split, SIZES[split] - 1)
    with pytest.raises(IndexError):
        problems[SIZES[split]]


def test_a_slice_is_made_of_the_tasks_at_its_indexes() -> None:
    problems = Problems("train")
    assert list(problems[10:13]) == [problems[10], problems[11], problems[12]]
    assert len(problems[-2:]) == 2


def test_the_same_index_gives_the_same_problem_for_ever() -> None:
    problem = make_problem("train", 0)
    assert problem == make_problem("train", 0)
    assert problem.question == FIRST_QUESTION


def test_a_task_holds_the_question_and_not_the_answer() -> None:
    assert set(Problems("train")[7]) == {"id", "split", "index", "level", "question"}


def test_levels_take_turns() -> None:
    assert [Problems("train")[index]["level"] for index in range(8)] == [1, 2, 3, 4, 1, 2, 3, 4]
    assert {template.level for template in TEMPLATES} == set(range(1, LEVELS + 1))


def test_nearly_all_of_the_first_four_thousand_questions_are_distinct() -> None:
    assert len({make_problem("train", index).question for index in range(4_000)}) > 3_950


def test_every_template_is_used() -> None:
    questions = [make_problem("train", index).question for index in range(400)]
    for template in TEMPLATES:
        closing = template.text.rpartition("}")[2]
        opening = template.text.split("}")[1].partition("{")[0]
        assert any(opening in question and question.endswith(closing) for question in questions), template


def test_no_question_stands_in_two_splits() -> None:
    questions = {split: {make_problem(split, index).question for index in range(1_000)} for split in SIZES}
    assert not questions["train"] & questions["validation"]
    assert not questions["train"] & questions["test"]
    assert not questions["validation"] & questions["test"]


def test_answers_are_positive_and_small() -> None:
    for index in range(2_000):
        problem = make_problem("train", index)
        assert 0 < problem.answer < 1_000_000, problem
        assert problem.answer.denominator <= 100, problem


def test_each_question_can_be_solved_from_its_text() -> None:
    for index in range(2_000):
        problem = make_problem("test", index)
        expression = solution(problem.question)
        assert expression is not None, problem
        assert calculate(expression) == problem.answer, problem


def test_a_foreign_question_has_no_solution() -> None:
    assert solution("What is the meaning of life?") is None


FIRST_QUESTION = "Igor shares 158 apples fairly among 2 friends. How many apples does each friend get?"
