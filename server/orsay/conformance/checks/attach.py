"""Reading a call again by its task id."""

from __future__ import annotations

from orsay.conformance.check import standard
from orsay.conformance.concurrent import at_once
from orsay.conformance.failures import expect
from orsay.conformance.target import Target

from .running import expect_one_run


@standard(
    "attach-done",
    "10",
    "A call sent again with its task_id gives the same result, as often as asked, and runs once.",
)
async def attach_done(target: Target) -> None:
    name, value = await target.probe.working()
    async with target.session() as session:
        first = await session.call(name, value)
        for _ in range(3):
            again = await session.call(name, value, task_id=first.task_id)
            expect(again.task_id == first.task_id, "the stream names another task id")
            expect(again.result == first.result, f"the result is {again.result}, it was {first.result}")
    await _attached_runs_once(target)


async def _attached_runs_once(target: Target) -> None:
    counter = await target.probe.counter_if_any()
    if counter is None:
        return
    async with target.session() as session:
        first = await session.call(counter.tool, counter.value)
        readers = (session.call(counter.tool, counter.value, task_id=first.task_id) for _ in range(3))
        for again in await at_once(*readers):
            counter.expect_runs(again, 1, "when its call is read again")
        after = await session.call(counter.tool, counter.value)
        counter.expect_runs(after, 2, "after a call, its reading again and another call")


@standard(
    "attach-running", "10", "A request with the task_id of a running call waits for its result; it runs once."
)
async def attach_running(target: Target) -> None:
    await expect_one_run(target, None, attach=True)


@standard("attach-ignores", "10", "With a task_id, name and input are ignored.")
async def attach_ignores(target: Target) -> None:
    name, value = await target.probe.working()
    async with target.session() as session:
        first = await session.call(name, value)
        again = await session.call("no such tool", {"other": 1}, task_id=first.task_id)
        expect(again.result == first.result, f"the result is {again.result}, it was {first.result}")


@standard("attach-together", "10", "Several readers may attach to one call at once.")
async def attach_together(target: Target) -> None:
    name, value = await target.probe.working()
    async with target.session() as session:
        first = await session.call(name, value)
        again = await at_once(*(session.call(name, value, task_id=first.task_id) for _ in range(4)))
        expect(all(reply.result == first.result for reply in again), "a reader got another result")


@standard(
    "attach-unknown",
    "10",
    "An unknown or empty task_id answers 200 with a single error event: unknown task_id.",
)
async def attach_unknown(target: Target) -> None:
    name, value = await target.probe.working()
    async with target.session() as session:
        for task_id in ("0" * 32, "no such task", ""):
            reply = await session.call(name, value, task_id=task_id)
            expect(reply.status == 200, f"{task_id!r} answered {reply.status}")
            expect(reply.kinds == ["error"], f"{task_id!r} gives the events {reply.kinds}")
            detail = next(event.data for event in reply.events if event.event == "error")
            expect("unknown task_id" in detail, f"the error is {detail!r}")


@standard("attach-after-delete", "10", "After /delete a task_id can no longer be read through its session.")
async def attach_after_delete(target: Target) -> None:
    name, value = await target.probe.working()
    async with target.session() as session:
        first = await session.call(name, value)
        await session.post("/delete")
        reply = await session.call(name, value, task_id=first.task_id)
        expect(reply.status in (404, 410), f"answered {reply.status}")
