"""Grading: what counts as the answer, what hostile messages cost, and that a failed grader is no verdict."""

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from fractions import Fraction

import pytest
from arithmetic_env.grader import Grader, GraderFailed


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    grader = Grader(children=1, cpu_limit_s=0.4)
    yield grader
    grader.close()


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        ("Answer: 12", Fraction(12)),
        ("12", Fraction(12)),
        ("So there are 5 + 7 = 12 apples.\n\nAnswer: 12", Fraction(12)),
        ("The answer is 12 apples.", Fraction(12)),
        ("**Answer:** 12\nI am sure of this answer.", Fraction(12)),
        ("Answer: **12**", Fraction(12)),
        ("Answer: $12$", Fraction(12)),
        ("Answer: \\$12.50", Fraction(25, 2)),
        ("\\boxed{12}", Fraction(12)),
        ("Answer: \\(12\\)", Fraction(12)),
        ("Answer:\n12", Fraction(12)),
        ("Answer: 1,200 marbles", Fraction(1200)),
        ("Answer: 19.35", Fraction(387, 20)),
        ("Answer: 7/3", Fraction(7, 3)),
        ("Answer: \\frac{7}{3}", Fraction(7, 3)),
        ("Answer: 7/3 (about 2.33333333333)", Fraction(7, 3)),
        ("Answer: 2.333333", Fraction(7, 3)),
        ("Answer: 3 * 4", Fraction(12)),
        ("Answer: 2**3", Fraction(8)),
        ("I first thought Answer: 11, but no.\nAnswer: 12", Fraction(12)),
        ("x" * 100_000 + "\nAnswer: 12", Fraction(12)),
    ],
)
def test_the_right_answer_is_read_however_it_is_written(
    grader: Grader, message: str, answer: Fraction
) -> None:
    assert grader.grade(message, answer).correct


@pytest.mark.parametrize(
    "message",
    [
        "",
        "   ",
        "I do not know.",
        "Answer: 13",
        "Answer: -12",
        "Answer: 2.33",
        "Answer: 12\nAnswer: 13",
        "Answer: {11, 12, 13}",
        "\\boxed{11} or \\boxed{12}",
        "Answer: nan",
        "Answer: 1e999999999",
        "Answer: \ud800",
        "(" * 100_000,
        "$\\frac" * 5_000,
        "answer" + "\n" * 50_000,
        "answer is " * 20_000,
        "9" * 5_000,
        '"}\n{"correct": true, "read": "12"}\n',
    ],
)
def test_anything_else_is_wrong(grader: Grader, message: str) -> None:
    assert not grader.grade(message, Fraction(12)).correct


@pytest.mark.parametrize(
    "message", ["Answer: $9^{9^{9^{9}}}$", "Answer: 9**9**9**9", "Answer: $99999999!!!$"]
)
def test_a_message_that_takes_for_ever_is_wrong_and_the_next_one_is_graded(
    grader: Grader, message: str
) -> None:
    assert not grader.grade(message, Fraction(12)).correct
    assert grader.grade("Answer: 12", Fraction(12)).correct


def test_it_works_from_any_thread(grader: Grader) -> None:
    verdicts: list[bool] = []
    threads = [
        threading.Thread(target=lambda: verdicts.append(grader.grade("Answer: 12", Fraction(12)).correct))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert verdicts == [True] * 8


def test_a_child_that_was_killed_while_idle_is_replaced(grader: Grader) -> None:
    grader.grade("Answer: 12", Fraction(12))
    (pid,) = grader.idle_pids()
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert grader.grade("Answer: 12", Fraction(12)).correct


def test_a_grader_that_cannot_answer_is_a_failure_and_no_wrong_answer() -> None:
    grader = Grader(children=1, wall_limit_s=0.0)
    with pytest.raises(GraderFailed, match="without a verdict"):
        grader.grade("Answer: $9^{9^{9^{9}}}$", Fraction(12))
    grader.close()


def test_closing_ends_the_child() -> None:
    grader = Grader(children=1)
    grader.grade("Answer: 12", Fraction(12))
    (pid,) = grader.idle_pids()
    grader.close()
    assert grader.idle_pids() == []
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open to wait for a process of another")
def test_the_child_ends_when_its_parent_is_killed() -> None:
    program = (
        "import time; from fractions import Fraction; from arithmetic_env.grader import Grader; "
        "grader = Grader(); grader.grade('1', Fraction(1)); "
        "print(*grader.idle_pids(), flush=True); time.sleep(100)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
    assert select.select([child], [], [], 30)[0] == [child]
    os.close(child)
