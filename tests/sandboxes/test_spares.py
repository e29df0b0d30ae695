"""Sandboxes that are made ahead of demand, on a real engine."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from orsay.runtimes.docker.engine import Engine
from orsay.sandboxes.base import Sandboxes, SandboxSpec
from orsay.sandboxes.docker import SANDBOX_LABEL
from orsay.sandboxes.service import HostedSandbox, SandboxLimits, SandboxService

from ..support.engine import BASE, needs_engine
from ..support.sandboxes import comes_true, docker_sandboxes

pytestmark = needs_engine

SPEC = SandboxSpec(image=BASE)


@asynccontextmanager
async def service(**limits: float) -> AsyncIterator[tuple[SandboxService, Engine, Mapping[str, str]]]:
    async with docker_sandboxes() as (sandboxes, labels), await Engine.connect() as engine:

        async def connect() -> Sandboxes:
            return sandboxes

        made = SandboxService(connect, SandboxLimits(**limits))  # type: ignore[arg-type]  # of several types
        try:
            yield made, engine, labels
        finally:
            await made.close()
            assert await engine.containers(labels) == []


async def ids(engine: Engine, labels: Mapping[str, str]) -> set[str]:
    """Sandboxes of which there are running containers."""
    found = await engine.containers(labels)
    return {each["Labels"][SANDBOX_LABEL] for each in found if each["State"] == "running"}


async def count_is(sandboxes: SandboxService, engine: Engine, labels: Mapping[str, str], count: int) -> None:
    """Wait until there are so many containers, and none is being made."""

    async def is_so() -> bool:
        spares = sandboxes._spares
        busy = spares is None or spares._filling is None or not spares._filling.done()
        return not busy and len(await ids(engine, labels)) == count == len(await engine.containers(labels))

    await comes_true(is_so)


async def said(hosted: HostedSandbox, command: str) -> str:
    return (await (await hosted.sandbox()).run(command)).output.decode()


async def test_the_second_of_a_kind_is_ready_and_clean() -> None:
    async with service(warm=1) as (sandboxes, engine, labels):
        first = sandboxes.create(SandboxSpec(image=BASE, variables={"A": "first"}), "one")
        assert await said(first, "echo $A | tee /left") == "first\n"
        await count_is(sandboxes, engine, labels, 2)
        (spare,) = await ids(engine, labels) - {first.id}
        second = sandboxes.create(SandboxSpec(image=BASE, variables={"B": "second"}), "two")
        assert second.id == spare
        looked = await said(second, "echo $A$B; ls /left 2>&1; id -u")
        assert looked.startswith("second\n") and "No such file" in looked and looked.endswith("\n0\n")
        await count_is(sandboxes, engine, labels, 3)
        await sandboxes.delete(second.id, "two")
        third = sandboxes.create(SPEC, "one")
        assert third.id not in (first.id, second.id)
        assert "No such file" in await said(third, "ls /left 2>&1")


async def test_another_kind_is_made_when_it_is_asked_for() -> None:
    others = (
        SandboxSpec(image=BASE, memory_bytes=64 << 20),
        SandboxSpec(image=BASE, cpus=1),
        SandboxSpec(image=BASE, processes=50),
        SandboxSpec(image=BASE, network="open"),
        SandboxSpec(image=BASE, folders={"/data": "/tmp"}),
    )
    async with service(warm=1) as (sandboxes, engine, labels):
        await sandboxes.create(SPEC, "").sandbox()
        await count_is(sandboxes, engine, labels, 2)
        ready = await ids(engine, labels)
        for spec in others:
            made = sandboxes.create(spec, "")
            await made.sandbox()
            assert made.id not in ready
            await sandboxes.delete(made.id, "")


async def test_a_spare_of_an_image_that_was_built_anew_is_not_given() -> None:
    name = f"orsay-test-spares:{uuid.uuid4().hex}"
    async with service(warm=1) as (sandboxes, engine, labels):
        base = sandboxes.create(SPEC, "")
        await base.sandbox()
        containers = await engine.containers({SANDBOX_LABEL: base.id})
        try:
            await engine.commit(containers[0]["Id"], name, labels={})
            spec = SandboxSpec(image=name)
            await sandboxes.create(spec, "").sandbox()
            await count_is(sandboxes, engine, labels, 4)
            ready = await ids(engine, labels)
            await said(base, "echo new > /version")
            await engine.commit(containers[0]["Id"], name, labels={})
            made = sandboxes.create(spec, "")
            assert made.id in ready  # the id is told before the engine is asked
            assert await said(made, "cat /version") == "new\n"
            assert len(await engine.containers({SANDBOX_LABEL: made.id})) == 1
            await sandboxes.close()
        finally:
            await engine.remove_images(await engine.images({SANDBOX_LABEL: base.id}))


async def test_spares_give_way_on_a_full_machine() -> None:
    async with service(warm=2, sandboxes=4) as (sandboxes, engine, labels):
        for _ in range(2):
            await sandboxes.create(SPEC, "").sandbox()
        await count_is(sandboxes, engine, labels, 4)
        other = SandboxSpec(image=BASE, processes=50)
        for _ in range(2):
            await sandboxes.create(other, "").sandbox()
        await count_is(sandboxes, engine, labels, 4)
        assert sandboxes._spares is not None and sandboxes._spares.count == 0


async def test_a_spare_that_was_killed_is_not_given() -> None:
    async with service(warm=1) as (sandboxes, engine, labels):
        first = sandboxes.create(SPEC, "")
        await first.sandbox()
        await count_is(sandboxes, engine, labels, 2)
        for each in await engine.containers(labels):
            if each["Labels"][SANDBOX_LABEL] != first.id:
                await engine.kill(each["Id"])
        await count_is(sandboxes, engine, labels, 1)
        assert await said(sandboxes.create(SPEC, ""), "echo alive") == "alive\n"


async def test_spares_that_nobody_asks_for_end() -> None:
    async with service(warm=2, warm_s=1) as (sandboxes, engine, labels):
        await sandboxes.create(SPEC, "").sandbox()
        await count_is(sandboxes, engine, labels, 2)
        await count_is(sandboxes, engine, labels, 1)


async def test_what_is_ended_before_it_was_made_is_no_spare_any_more() -> None:
    async with service(warm=1) as (sandboxes, engine, labels):
        await sandboxes.create(SPEC, "").sandbox()
        await count_is(sandboxes, engine, labels, 2)
        made = sandboxes.create(SPEC, "")
        await sandboxes.delete(made.id, "")  # before its task has begun

        async def is_gone() -> bool:
            return made.id not in await ids(engine, labels)

        await comes_true(is_gone)


async def test_spares_are_of_no_owner_and_end_with_the_service() -> None:
    async with service(warm=2, sandboxes_per_owner=2) as (sandboxes, engine, labels):
        made = [sandboxes.create(SPEC, "one") for _ in range(2)]
        await asyncio.gather(*(each.sandbox() for each in made))
        await count_is(sandboxes, engine, labels, 4)
        await sandboxes.end_owner("one")
        await count_is(sandboxes, engine, labels, 2)
        again = [sandboxes.create(SPEC, "one") for _ in range(2)]
        await asyncio.gather(*(each.sandbox() for each in again))
