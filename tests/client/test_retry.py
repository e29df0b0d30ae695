from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from orsay_client.retry import Attempts, Retry, retry_after_s

STARTING = {"x-backend-state": "starting", "retry-after": "2"}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def attempts(retry: Retry, *, clock: Clock | None = None, jitter: float = 1.0) -> Attempts:
    return Attempts(retry, clock=clock or Clock(), jitter=lambda: jitter)


def test_delays_double_up_to_a_bound_and_end() -> None:
    tries = attempts(Retry(tries=6, first_delay_s=0.5, max_delay_s=3))
    assert [tries.after_break() for _ in range(6)] == [0.5, 1, 2, 3, 3, None]


def test_jitter_never_takes_away_more_than_half() -> None:
    assert attempts(Retry(first_delay_s=1), jitter=0.0).after_break() == 0.5


def test_progress_starts_the_count_anew() -> None:
    tries = attempts(Retry(tries=2, first_delay_s=1))
    assert tries.after_break() == 1
    tries.progress()
    assert tries.after_break() == 1
    assert tries.after_break() is None


@pytest.mark.parametrize("status", [400, 401, 404, 408, 409, 410, 413, 422, 500, 501])
def test_statuses_that_repeating_does_not_change_are_final(status: int) -> None:
    assert attempts(Retry()).after_answer(status, {"retry-after": "1"}) is None


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_passing_troubles_are_retried(status: int) -> None:
    assert attempts(Retry()).after_answer(status, {}) == 0.5


@pytest.mark.parametrize(("status", "retried"), [(429, True), (502, False), (503, False), (504, False)])
def test_with_a_call_at_stake_only_proof_that_nothing_ran_counts(status: int, retried: bool) -> None:
    delay = attempts(Retry()).after_answer(status, {}, only_unexecuted=True)
    assert (delay is not None) == retried


def test_a_starting_environment_is_proof_that_nothing_ran() -> None:
    assert attempts(Retry(), jitter=0).after_answer(503, STARTING, only_unexecuted=True) == 2


def test_retry_after_is_a_lower_bound() -> None:
    delay = attempts(Retry(), jitter=0.5).after_answer(429, {"retry-after": "7"})
    assert delay is not None and 7 <= delay <= 7 * 1.25


def test_a_server_that_asks_for_too_much_is_believed_at_once() -> None:
    assert attempts(Retry(max_retry_after_s=60)).after_answer(503, {"retry-after": "3600"}) is None


def test_a_starting_environment_is_waited_for_until_the_ride_out_is_over() -> None:
    clock = Clock()
    tries = attempts(Retry(tries=2, starting_ride_out_s=600), clock=clock, jitter=0)
    for _ in range(299):
        assert tries.after_answer(503, STARTING) == 2
        clock.now += 2
    clock.now += 1
    assert tries.after_answer(503, STARTING) == 1  # no longer than what is left
    clock.now += 1
    assert tries.after_answer(503, STARTING) is None


def test_retry_after_as_a_date() -> None:
    when = datetime.now(UTC) + timedelta(seconds=30)
    seconds = retry_after_s({"retry-after": format_datetime(when, usegmt=True)})
    assert seconds is not None and 25 < seconds <= 30
    assert retry_after_s({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}) == 0


@pytest.mark.parametrize("value", ["", "soon", "nan", "inf", "99 99", "-"])
def test_a_useless_retry_after_counts_as_none(value: str) -> None:
    assert retry_after_s({"retry-after": value}) is None


def test_a_policy_without_any_try_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Retry(tries=0)


def test_retries_leave_the_random_numbers_of_the_program_as_they_are() -> None:
    before = random.getstate()
    assert Attempts(Retry()).after_break() is not None
    assert random.getstate() == before
