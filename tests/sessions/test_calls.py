"""Calls of a session, computed, durable and published, on objects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from orsay.errors import Faulted, KeyConflict, Overloaded, Starting
from orsay.journal.records import CallEnded, CallStarted, Prompted, Row, SessionEnded, SessionOpened
from orsay.runtimes.outcome import Outcome
from orsay.sessions.call import Call
from orsay.sessions.recorder import Recorder
from orsay.sessions.registry import Sessions
from orsay.sessions.session import Session
from orsay.sessions.timers import Delay
from orsay_protocol.faults import FaultClass

from tests.support.sessions import (
    ScriptedRuntime,
    ended,
    environment_info,
    make_sessions,
    request_of,
    run_ready,
)

BODY = b'{"name":"play","input":{}}'


class Rows:
    """A journal's writer that commits when the test says so."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._waiting: list[Callable[[bool], None]] = []
        self.at_once = False

    def add(self, row: Row, on_durable: Callable[[bool], None] | None = None) -> None:
        self.rows.append(row)
        if on_durable is not None:
            self._waiting.append(on_durable)
        if self.at_once:
            self.commit()

    def commit(self, committed: bool = True) -> None:
        waiting, self._waiting = self._waiting, []
        for on_durable in waiting:
            on_durable(committed)

    def recorder(self) -> Recorder:
        return Recorder(cast(Any, self), "a-server")

    def of(self, kind: type[Any]) -> list[Any]:
        return [row for row in self.rows if isinstance(row, kind)]


class Playing:
    """One session that is ready, or several, on a scripted runtime."""

    def __init__(self, runtime: ScriptedRuntime, sessions: Sessions, session: Session) -> None:
        self.runtime = runtime
        self.sessions = sessions
        self.session = session

    def start(self, body: bytes = BODY, key: str | None = None) -> Call:
        assert self.session.handle is not None
        return self.session.start_call(self.session.handle, "call", "play", body, key)

    def end(self, number: int = -1, value: str = "{}", **more: Any) -> None:
        self.runtime.last.started[number].on_result(ended(value, **more), None)

    async def beside(self, sid: str) -> Playing:
        """Another session of the server."""
        info = self.runtime.info
        creating = asyncio.ensure_future(self.sessions.create(sid, "", info, request_of(info)))
        await run_ready()
        return Playing(self.runtime, self.sessions, await creating)

    def vanish(self, call: Call) -> None:
        """Its one connection breaks."""
        call.join(_reader)
        self.session.leave(call, _reader, complete=False)


def published(call: Call) -> Outcome | None:
    """The outcome, read anew."""
    return call.outcome


def _reader() -> bool:
    return False


async def playing(rows: Rows | None = None, **limits: Any) -> Playing:
    runtime = ScriptedRuntime(limits.pop("info", None))
    recorder = None if rows is None else rows.recorder()
    sessions = make_sessions(runtime, recorder=recorder, **limits)
    creating = asyncio.ensure_future(sessions.create("a", "", runtime.info, request_of(runtime.info)))
    await run_ready()
    if rows is not None:
        rows.commit()
    return Playing(runtime, sessions, await creating)


def is_stored(playing: Playing, call: Call) -> bool:
    try:
        return playing.session.attach(call.task_id, "call") is call
    except Faulted:
        return False


# computed, durable, published


@pytest.mark.conformance("D6")
async def test_an_outcome_is_published_when_the_journal_has_it() -> None:
    rows = Rows()
    play = await playing(rows)
    call = play.start()
    waiting = asyncio.ensure_future(call.wait(Delay(5.0)))
    play.end(value='"done"', reward=0.5)
    await run_ready()
    assert call.computed is not None and published(call) is None and not waiting.done()
    rows.commit()
    assert await waiting
    assert call.outcome is call.computed and b"done" in call.outcome.wire
    (row,) = rows.of(CallEnded)
    assert (row.number, row.task_id, row.reward, row.wire) == (1, call.task_id, 0.5, call.outcome.wire)
    assert play.session.reward == 0.5
    rows.at_once = True
    await play.sessions.close_all()
    (over,) = rows.of(SessionEnded)
    assert (over.calls, over.faults, over.reward, over.reward_sum) == (1, 0, 0.5, 0.5)


async def test_without_a_journal_an_outcome_is_published_at_once() -> None:
    play = await playing()
    call = play.start()
    play.end()
    assert call.outcome is call.computed is not None


@pytest.mark.conformance("D6")
@pytest.mark.parametrize("needs_journal", [False, True])
async def test_an_outcome_that_the_journal_gave_up(needs_journal: bool) -> None:
    rows = Rows()
    play = await playing(rows, needs_journal=needs_journal)
    call = play.start()
    play.end(value='"done"')
    rows.commit(committed=False)
    assert call.outcome is not None
    if needs_journal:
        assert call.outcome.fault is not None and not call.outcome.wire
        assert call.outcome.fault.message == "the journal could not take the result"
    else:
        assert b"done" in call.outcome.wire


async def test_a_runtime_may_end_a_call_within_its_start() -> None:
    play = await playing()
    play.runtime.last.answers.append(ended('"at once"'))
    call = play.start()
    assert call.outcome is not None and call.stop is None


async def test_a_call_ends_once() -> None:
    play = await playing()
    call = play.start()
    play.end(value='"first"')
    play.end(value='"second"')
    assert call.outcome is not None and b"first" in call.outcome.wire
    assert play.sessions.totals.in_flight == 0


async def test_chunks_come_before_the_outcome_and_are_its_beginning() -> None:
    play = await playing()
    call = play.start()
    progress = play.runtime.last.started[0].progress
    assert progress is not None and not call.has_chunks(0)
    waiting = asyncio.ensure_future(call.wait(Delay(5.0)))
    await run_ready()
    progress(b"event: chunk\r\n\r\n")
    assert not await waiting
    assert call.has_chunks(0) and call.chunks(7) == b"chunk\r\n\r\n"
    play.end()
    progress(b"too late")
    assert call.outcome is not None and call.outcome.wire.startswith(b"event: chunk\r\n\r\n")
    assert b"too late" not in call.outcome.wire


@pytest.mark.conformance("D2")
async def test_a_call_that_was_refused_did_not_run_and_is_not_stored() -> None:
    rows = Rows()
    play = await playing(rows)
    call = play.start(key="k")
    play.runtime.last.started[0].on_result(None, Overloaded("no thread is free"))
    assert call.refused is not None and not rows.of(CallEnded)
    assert play.start(key="k") is not call


# the session ends meanwhile


@pytest.mark.conformance("L2")
async def test_the_end_of_the_session_ends_its_calls() -> None:
    play = await playing()
    call = play.start()
    await play.sessions.delete("a", "")
    assert call.outcome is not None and call.outcome.fault is not None
    assert call.outcome.fault.fault == "cancelled"
    play.end()
    assert call.outcome.fault is not None
    assert (play.sessions.totals.in_flight, play.sessions.totals.stored_bytes) == (0, 0)


@pytest.mark.conformance("D6", "L2")
async def test_a_computed_call_is_published_after_the_end_of_its_session() -> None:
    rows = Rows()
    play = await playing(rows)
    call = play.start()
    play.end(value='"done"')
    deleting = asyncio.ensure_future(play.sessions.delete("a", ""))
    await run_ready()
    assert published(call) is None
    rows.commit()
    await deleting
    assert call.outcome is not None and b"done" in call.outcome.wire
    assert (play.sessions.totals.in_flight, play.sessions.totals.stored_bytes) == (0, 0)


# streams


@pytest.mark.conformance("L7")
async def test_the_start_of_a_stream_is_durable_where_the_session_may_be_rebuilt() -> None:
    rows = Rows()
    play = await playing(rows, info=environment_info(replayable=True))
    call = play.start()
    streams = [asyncio.ensure_future(play.session.begin_stream(call)) for _ in range(2)]
    await run_ready()
    (started,) = rows.of(CallStarted)
    assert started.task_id == call.task_id and not any(each.done() for each in streams)
    rows.commit()
    await asyncio.gather(*streams)
    play.end()
    rows.commit()
    (over,) = rows.of(CallEnded)
    assert over.id == started.id and over.stream_s is not None


@pytest.mark.parametrize("secrets", [{}, {"KEY": "a secret value"}])
async def test_the_start_of_a_stream_is_not_written_for_others(secrets: dict[str, str]) -> None:
    rows, info = Rows(), environment_info(replayable=bool(secrets))
    runtime = ScriptedRuntime(info)
    rows.at_once = True
    sessions = make_sessions(runtime, recorder=rows.recorder())
    session = await sessions.create("a", "", info, request_of(info, secrets=secrets))
    call = session.start_call(await session.ready(), "call", "play", BODY, None)
    await session.begin_stream(call)
    assert not rows.of(CallStarted)
    await sessions.close_all()


# found again


@pytest.mark.conformance("D2")
async def test_a_key_finds_its_call_running_and_stored() -> None:
    play = await playing()
    call = play.start(key="k")
    assert play.start(key="k") is call
    play.end()
    assert play.start(key="k") is call
    assert play.start(b'{"input":{}, "name":"play"}', key="k") is call, "spelled otherwise"
    with pytest.raises(KeyConflict, match="another request"):
        play.start(b'{"name":"play","input":{"x":1}}', key="k")
    assert len(play.runtime.last.started) == 1


@pytest.mark.conformance("D2")
async def test_the_same_body_finds_an_abandoned_call_only() -> None:
    play = await playing()
    call = play.start()
    assert play.start() is not call, "made twice on purpose"
    play.vanish(call)
    assert play.start(b'{"name":"other","input":{}}') is not call
    assert play.start() is call
    assert play.sessions.totals.abandoned == 0
    assert play.start() is not call, "a client has come back for it"


@pytest.mark.conformance("D2")
async def test_a_call_whose_connection_broke_unnoticed_is_abandoned() -> None:
    play = await playing()
    call, broken = play.start(), False
    call.join(lambda: broken)
    assert play.start() is not call
    broken = True
    assert play.start() is call


@pytest.mark.conformance("D2")
async def test_a_delivered_call_is_not_repeated_however_late_its_broken_connection_leaves() -> None:
    play = await playing()
    call = play.start()
    call.join(broken := lambda: True)
    assert play.start() is call
    call.join(_reader)
    play.end()
    play.session.leave(call, _reader, complete=True)
    play.session.leave(call, broken, complete=False)
    assert play.start() is not call


@pytest.mark.conformance("D2")
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_request_repeats_an_abandoned_call_while_its_result_is_kept(elsewhere: bool) -> None:
    """After the grace too, and whether or not another session has an abandoned call."""
    now = 1000.0
    play = await playing(now=lambda: now, client_grace_s=10, age_s=100)
    done, stopped = play.start(), play.start(b'{"name":"play","input":{"x":1}}')
    play.end(0)
    play.vanish(done)
    play.vanish(stopped)
    now += 11
    play.sessions.expire()
    play.runtime.last.started[1].on_result(None, Faulted("cancelled", "stopped"))
    if elsewhere:
        other = await play.beside("b")
        other.vanish(other.start())
    assert play.start() is done
    assert play.start() is not done, "a client has come back for it"
    now += 101
    play.sessions.expire()
    assert play.start(b'{"name":"play","input":{"x":1}}') is not stopped, "its result has expired"


# abandoned calls


@pytest.mark.conformance("L5")
@pytest.mark.parametrize("detached", [False, True])
async def test_an_abandoned_call_is_stopped_after_the_grace_unless_it_is_detached(detached: bool) -> None:
    now = 1000.0
    info = environment_info(detached_tools=frozenset({"play"} if detached else ()))
    play = await playing(info=info, now=lambda: now, client_grace_s=10)
    call = play.start()
    play.vanish(call)
    now += 10
    play.sessions.expire()
    assert play.runtime.last.started[0].stopped == 0
    now += 1
    play.sessions.expire()
    assert play.runtime.last.started[0].stopped == (0 if detached else 1)
    assert (call.outcome is None) is detached
    assert play.sessions.totals.abandoned == 0


@pytest.mark.conformance("L5")
async def test_a_call_is_not_abandoned_while_anybody_reads_it_or_comes_back_for_it() -> None:
    now = 1000.0
    play = await playing(now=lambda: now, client_grace_s=10)
    read, attached, repeated = play.start(), play.start(b"1"), play.start(b"2")
    read.join(_reader)
    play.vanish(attached)
    play.vanish(repeated)
    read.join(other := lambda: False)
    play.session.leave(read, other, complete=False)
    now += 5
    assert play.session.attach(attached.task_id, "call") is attached
    assert play.start(b"2") is repeated
    now += 50
    play.sessions.expire()
    assert [each.stopped for each in play.runtime.last.started] == [0, 0, 0]


# bounds


@pytest.mark.conformance("D5", "I6")
async def test_results_of_a_session_are_bounded_by_number_size_and_age() -> None:
    now = 1000.0
    play = await playing(now=lambda: now, results_per_session=3, bytes_per_session=5000, age_s=10)

    def made(value: str) -> Call:
        call = play.start()
        play.end(value=value)
        return call

    calls = [made(f'"{number}"') for number in range(5)]
    assert [is_stored(play, call) for call in calls] == [False, False, True, True, True]
    calls = [made(f'"{"x" * 2000}"') for _ in range(3)]
    assert [is_stored(play, call) for call in calls] == [False, True, True]
    running = play.start()
    now += 11
    play.sessions.expire()
    assert [is_stored(play, call) for call in (*calls, running)] == [False, False, False, True]


@pytest.mark.conformance("D5", "I6")
async def test_stored_bytes_count_the_bodies_of_requests() -> None:
    play = await playing(bytes_per_session=5000)
    bodies = [b'{"name":"play","input":{"text":"%s"}}' % (b"x" * 2000), BODY]
    calls = []
    for body in bodies:
        calls.append(play.start(body))
        play.end()
    wires = [call.outcome.wire for call in calls if call.outcome is not None]
    assert play.sessions.totals.stored_bytes == sum(map(len, bodies)) + sum(map(len, wires))
    calls += [play.start(bodies[0]), play.start(bodies[0] + b" ")]
    play.end(-2)
    play.end()
    assert [is_stored(play, call) for call in calls] == [False, True, True, True]
    assert play.sessions.totals.stored_bytes < 5000


@pytest.mark.conformance("D5", "I6")
async def test_results_of_all_sessions_together_stay_within_their_bound() -> None:
    runtime = ScriptedRuntime()
    sessions = make_sessions(runtime, bytes_in_all=20_000)
    for number in range(20):
        session = await sessions.create(str(number), "", runtime.info, request_of(runtime.info))
        session.start_call(await session.ready(), "call", "fill", BODY, None)
        runtime.last.started[0].on_result(ended(f'"{"x" * 3000}"'), None)
        assert sessions.totals.stored_bytes <= 20_000
    assert sessions.totals.stored_bytes > 5_000
    await sessions.close_all()
    assert sessions.totals.stored_bytes == 0


@pytest.mark.conformance("D5", "I6")
async def test_an_owner_who_stores_much_loses_results_before_one_who_stores_little() -> None:
    runtime = ScriptedRuntime()
    sessions = make_sessions(runtime, bytes_in_all=20_000)
    calls: dict[str, list[Call]] = {"little": [], "much": []}
    for number, owner in enumerate(["little", *["much"] * 12]):
        session = await sessions.create(str(number), owner, runtime.info, request_of(runtime.info))
        calls[owner].append(session.start_call(await session.ready(), "call", "fill", BODY, None))
        runtime.last.started[0].on_result(ended(f'"{"x" * 3000}"'), None)
    little = sessions.get("0", "little")
    assert little.attach(calls["little"][0].task_id, "call") is calls["little"][0]
    await sessions.close_all()


@pytest.mark.conformance("I6")
async def test_running_calls_are_bounded_for_the_server_and_for_each_key() -> None:
    play = await playing(max_calls=3, max_calls_per_owner=2)
    other = await play.sessions.create("b", "other", play.runtime.info, request_of(play.runtime.info))
    first = play.start()
    play.start()
    with pytest.raises(Overloaded, match="this key is at maximum capacity: 2 calls"):
        play.start()
    handle = await other.ready()
    other.start_call(handle, "call", "play", BODY, None)
    with pytest.raises(Overloaded, match="maximum capacity: 3 calls"):
        other.start_call(handle, "call", "play", BODY, None)
    play.runtime.handles[0].started[0].on_result(ended(), None)
    assert first.outcome is not None
    play.start()
    await play.sessions.close_all()
    assert play.sessions.totals.in_flight == 0


# the journal's rows of a session


async def test_a_constructor_that_failed_is_in_the_journal_and_a_refused_session_is_not() -> None:
    rows, runtime = Rows(), ScriptedRuntime()
    rows.at_once = True
    sessions = make_sessions(runtime, recorder=rows.recorder())
    runtime.open_error = Overloaded("full")
    with pytest.raises(Overloaded):
        await sessions.create("a", "", runtime.info, request_of(runtime.info))
    assert not rows.rows
    runtime.open_error = Faulted("setup_error", "no room")
    with pytest.raises(Faulted):
        await sessions.create("a", "", runtime.info, request_of(runtime.info))
    (opened,), (over,) = rows.of(SessionOpened), rows.of(SessionEnded)
    assert (opened.id, over.end_reason, over.fault) == (over.id, "no room", "setup_error")


async def test_a_server_that_needs_its_journal_plays_no_session_without_it() -> None:
    rows, runtime = Rows(), ScriptedRuntime()
    sessions = make_sessions(runtime, recorder=rows.recorder(), needs_journal=True)
    creating = asyncio.ensure_future(sessions.create("a", "", runtime.info, request_of(runtime.info)))
    await run_ready()
    rows.commit(committed=False)
    with pytest.raises(Overloaded, match="plays none without it"):
        await creating
    assert runtime.last.closed == 1 and len(sessions) == 0


# prompt, messages, tools


@pytest.mark.conformance("D6", "L7")
async def test_a_prompt_is_durable_before_it_is_shown_where_the_session_may_be_rebuilt() -> None:
    rows = Rows()
    play = await playing(rows, info=environment_info(replayable=True))
    asking = asyncio.ensure_future(play.session.ask(await play.session.ready(), "prompt"))
    await run_ready()
    play.runtime.last.started[0].on_result(b"[]", None)
    await run_ready()
    assert (asking.done(), play.session.busy) == (False, True)
    rows.commit()
    assert await asking == b"[]"
    assert not play.session.busy
    (row,) = rows.of(Prompted)
    assert (row.kind, row.data, row.number, row.after) == ("prompt", b"[]", 1, 0)


@pytest.mark.conformance("L7")
@pytest.mark.parametrize(("fault", "rebuildable"), [("prompt_error", True), ("time_limit", False)])
async def test_a_prompt_that_was_stopped_half_way_leaves_an_unknown_state(
    fault: FaultClass, rebuildable: bool
) -> None:
    rows = Rows()
    play = await playing(rows, info=environment_info(replayable=True))
    play.runtime.last.answers = [Faulted(fault, "no prompt")]
    with pytest.raises(Faulted, match="no prompt"):
        await play.session.ask(await play.session.ready(), "prompt")
    assert play.session.rebuildable is rebuildable and not play.session.busy
    assert [row.fault for row in rows.of(Prompted)] == [fault]


@pytest.mark.conformance("L7")
@pytest.mark.parametrize("replayable", [False, True])
async def test_tools_are_listed_during_setup_where_the_order_does_not_matter(
    replayable: bool,
) -> None:
    rows = Rows()
    rows.at_once = True
    runtime = ScriptedRuntime(environment_info(replayable=replayable))
    runtime.ends_setup = False
    sessions = make_sessions(runtime, recorder=rows.recorder(), setup_wait_s=0.01)
    session = await sessions.create("a", "", runtime.info, request_of(runtime.info))
    if replayable:
        with pytest.raises(Starting):
            await session.ready_to_list()
    else:
        assert await session.ready_to_list() is session.handle
    await sessions.close_all()
