"""Sandboxes that are made ahead of demand, on each back end."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import pytest
from orsay.errors import Starting, UnknownSession
from orsay.runtimes.docker.engine import Engine
from orsay.sandboxes.base import Sandboxes, SandboxSpec
from orsay.sandboxes.docker import SANDBOX_LABEL
from orsay.sandboxes.service import HostedSandbox, SandboxLimits, SandboxService

from ..support.backends import KINDS, Backend, open_kind, tiny_image
from ..support.sandboxes import comes_true

SPEC = SandboxSpec(image="")
Served: TypeAlias = Callable[..., AbstractAsyncContextManager[tuple[SandboxService, Backend]]]


@asynccontextmanager
async def service_of(
    kind: str, state: Path, **limits: float
) -> AsyncIterator[tuple[SandboxService, Backend]]:
    async with open_kind(kind, state) as backend:

        async def connect() -> Sandboxes:
            return backend.sandboxes

        made = SandboxService(connect, SandboxLimits(**limits))  # type: ignore[arg-type]  # of several types
        try:
            yield made, backend
        finally:
            await made.close()


@pytest.fixture(params=KINDS)
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Served:
    def served(**limits: float) -> AbstractAsyncContextManager[tuple[SandboxService, Backend]]:
        return service_of(request.param, tmp_path, **limits)

    return served


async def count_is(sandboxes: SandboxService, backend: Backend, count: int) -> None:
    """Wait until there are so many sandboxes, and none is being made."""

    async def is_so() -> bool:
        spares = sandboxes._spares
        if spares is not None and spares._filling is not None and not spares._filling.done():
            return False
        found = await backend.living()
        return len(found) == count and not any(" " in each for each in found)

    await comes_true(is_so)


async def said(hosted: HostedSandbox, command: str) -> str:
    return (await (await hosted.sandbox()).run(command)).output.decode()


async def test_the_second_of_a_kind_is_ready_and_clean(service: Served) -> None:
    async with service(warm=1) as (sandboxes, backend):
        first = sandboxes.create(SandboxSpec(image="", variables={"A": "first"}), "one")
        assert await said(first, "echo $A | tee /left") == "first\n"
        await count_is(sandboxes, backend, 2)
        (spare,) = await backend.living() - {first.id}
        second = sandboxes.create(SandboxSpec(image="", variables={"B": "second"}), "two")
        assert second.id == spare
        looked = await said(second, "echo $A$B; ls /left 2>&1; id -u")
        assert looked.startswith("second\n") and "No such file" in looked and looked.endswith("\n0\n")
        await count_is(sandboxes, backend, 3)
        await sandboxes.delete(second.id, "two")
        third = sandboxes.create(SPEC, "one")
        assert third.id not in (first.id, second.id)
        assert "No such file" in await said(third, "ls /left 2>&1")


async def test_another_kind_is_made_when_it_is_asked_for(service: Served) -> None:
    others = (
        SandboxSpec(image="", memory_bytes=64 << 20),
        SandboxSpec(image="", cpus=1),
        SandboxSpec(image="", processes=50),
        SandboxSpec(image="", network="open"),
        SandboxSpec(image="", folders={"/data": "/tmp"}),
    )
    async with service(warm=1) as (sandboxes, backend):
        await sandboxes.create(SPEC, "").sandbox()
        await count_is(sandboxes, backend, 2)
        ready = await backend.living()
        for spec in others:
            made = sandboxes.create(spec, "")
            await made.sandbox()
            assert made.id not in ready
            await sandboxes.delete(made.id, "")


@pytest.mark.process
async def test_a_spare_of_an_image_that_was_unpacked_anew_is_not_given(tmp_path: Path) -> None:
    image, newer, state = tmp_path / "image", tmp_path / "newer", tmp_path / "state"
    for folder, version in ((image, "old"), (newer, "new")):
        folder.mkdir()
        (Path(tiny_image(folder)) / "version").write_text(version)
    async with service_of("bubblewrap", state, warm=1) as (sandboxes, backend):
        spec = SandboxSpec(image=str(image))
        assert await said(sandboxes.create(spec, ""), "cat /version") == "old"
        await count_is(sandboxes, backend, 2)
        ready = await backend.living()
        image.rename(tmp_path / "older")
        newer.rename(image)
        made = sandboxes.create(spec, "")
        assert made.id in ready  # the id is told before the folder is looked at
        assert await said(made, "cat /version") == "new"
        await sandboxes.close()


@pytest.mark.engine
async def test_a_spare_of_an_image_that_was_built_anew_is_not_given(tmp_path: Path) -> None:
    name = f"orsay-test-spares:{uuid.uuid4().hex}"
    async with (
        service_of("docker", tmp_path, warm=1) as (sandboxes, backend),
        await Engine.connect() as engine,
    ):
        base = sandboxes.create(SPEC, "")
        await base.sandbox()
        containers = await engine.containers({SANDBOX_LABEL: base.id})
        try:
            await engine.commit(containers[0]["Id"], name, labels={})
            spec = SandboxSpec(image=name)
            await sandboxes.create(spec, "").sandbox()
            await count_is(sandboxes, backend, 4)
            ready = await backend.living()
            await said(base, "echo new > /version")
            await engine.commit(containers[0]["Id"], name, labels={})
            made = sandboxes.create(spec, "")
            assert made.id in ready  # the id is told before the engine is asked
            assert await said(made, "cat /version") == "new\n"
            assert len(await engine.containers({SANDBOX_LABEL: made.id})) == 1
            await sandboxes.close()
        finally:
            await engine.remove_images(await engine.images({SANDBOX_LABEL: base.id}))


async def test_spares_give_way_on_a_full_machine(service: Served) -> None:
    async with service(warm=2, sandboxes=4) as (sandboxes, backend):
        for _ in range(2):
            await sandboxes.create(SPEC, "").sandbox()
        await count_is(sandboxes, backend, 4)
        other = SandboxSpec(image="", processes=50)
        for _ in range(2):
            await sandboxes.create(other, "").sandbox()
        await count_is(sandboxes, backend, 4)
        assert sandboxes._spares is not None and sandboxes._spares.count == 0


async def test_a_spare_that_was_killed_is_not_given(service: Served) -> None:
    async with service(warm=1) as (sandboxes, backend):
        first = sandboxes.create(SPEC, "")
        await first.sandbox()
        await count_is(sandboxes, backend, 2)
        (spare,) = await backend.living() - {first.id}
        await backend.kill(spare)
        await count_is(sandboxes, backend, 1)
        assert await said(sandboxes.create(SPEC, ""), "echo alive") == "alive\n"


async def test_spares_that_nobody_asks_for_end(service: Served) -> None:
    async with service(warm=2, warm_s=1) as (sandboxes, backend):
        await sandboxes.create(SPEC, "").sandbox()
        await count_is(sandboxes, backend, 2)
        await count_is(sandboxes, backend, 1)


async def test_what_is_ended_before_it_was_made_is_no_spare_any_more(service: Served) -> None:
    async with service(warm=1) as (sandboxes, backend):
        await sandboxes.create(SPEC, "").sandbox()
        await count_is(sandboxes, backend, 2)
        made = sandboxes.create(SPEC, "")
        await sandboxes.delete(made.id, "")  # before its task has begun

        async def is_gone() -> bool:
            return made.id not in await backend.living()

        await comes_true(is_gone)


async def test_spares_are_of_no_owner_and_end_with_the_service(service: Served) -> None:
    async with service(warm=2, sandboxes_per_owner=2) as (sandboxes, backend):
        made = [sandboxes.create(SPEC, "one") for _ in range(2)]
        await asyncio.gather(*(each.sandbox() for each in made))
        await count_is(sandboxes, backend, 4)
        await sandboxes.end_owner("one")
        await count_is(sandboxes, backend, 2)
        again = [sandboxes.create(SPEC, "one") for _ in range(2)]
        await asyncio.gather(*(each.sandbox() for each in again))


async def test_one_beside_each_on_a_full_server(service: Served) -> None:
    async with service(sandboxes=1) as (sandboxes, _):
        box = sandboxes.create(SPEC, "owner")
        with pytest.raises(Starting):
            sandboxes.create(SPEC, "owner")
        with pytest.raises(UnknownSession):
            sandboxes.create(SPEC, "other", beside=box.id)
        grader = sandboxes.create(SPEC, "owner", beside=box.id)
        assert await said(grader, "echo graded") == "graded\n"
        for beside in (box, grader):
            with pytest.raises(Starting):
                sandboxes.create(SPEC, "owner", beside=beside.id)
        await sandboxes.delete(grader.id, "owner")
        again = sandboxes.create(SPEC, "owner", beside=box.id)
        await sandboxes.delete(box.id, "owner")
        with pytest.raises(Starting):  # it has the place now
            sandboxes.create(SPEC, "owner")
        await sandboxes.delete(again.id, "owner")
