from orsay_bench.profile import place, shares, table

STACKS = [
    "main (app.py:1);serve (/x/y/orsay/http/app.py:10) 6",
    "main (app.py:1);serve (/x/y/orsay/http/app.py:12);write (/x/uvicorn/h.py:3) 2",
    "run (threading.py:1);Queue.get (queue.py:171);Condition.wait (threading.py:327) 90",
    "run (threading.py:1);_worker (concurrent/futures/thread.py:81) 90",
    "",
]


def test_time_is_divided_among_what_was_running_and_waiting_does_not_count() -> None:
    assert shares(STACKS, "file") == {"orsay/http/app.py": 0.75, "x/uvicorn/h.py": 0.25}


def test_inclusive_shares_count_the_callers_too() -> None:
    assert shares(STACKS, "function", inclusive=True)["app.py main"] == 1.0


def test_a_frame_is_named_by_file_function_or_line() -> None:
    frame = "Calls._evict.<locals>.<genexpr> (/long/way/to/orsay/calls.py:187)"
    assert place(frame, "file") == "to/orsay/calls.py"
    assert place(frame, "line") == "to/orsay/calls.py Calls._evict.<locals>.<genexpr>:187"
    assert place("write (libc.so.6)", "function") == "libc.so.6 write"


def test_the_table_turns_shares_into_microseconds() -> None:
    assert table("gateway", 50.0, {"a.py": 0.5, "b.py": 0.3, "c.py": 0.2}, top=2) == [
        ["gateway", "share", "us"],
        ["a.py", "50.0%", "25"],
        ["b.py", "30.0%", "15"],
    ]
