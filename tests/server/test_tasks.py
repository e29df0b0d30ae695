"""Counting, getting and listing tasks."""

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from orsay import Environment, tool
from orsay.authoring.environment import Splits
from orsay.authoring.hosted import host
from orsay.authoring.tasks import LISTING_LIMIT, TaskSource
from orsay.errors import InvalidIndex, InvalidSplit, ListingUnsupported

TASKS = [{"n": number} for number in range(5)]


class Base(Environment):
    splits: ClassVar[Splits] = {"train": TASKS, "empty": []}

    def prompt(self) -> str:
        return ""

    @tool
    def act(self) -> str:
        return ""


class Squares(Sequence[Any]):
    """Computes its tasks, and would never end if it were listed."""

    def __len__(self) -> int:
        return 10**12

    def __getitem__(self, index: Any) -> Any:
        assert isinstance(index, int)
        assert 0 <= index < len(self)
        return {"square": index * index}

    def __iter__(self) -> Any:
        raise AssertionError("nobody should list this")


class Procedural(Base):
    splits: ClassVar[Splits] = {"train": Squares()}


class Lists(Base):
    """Tasks by ``list_tasks`` alone."""

    splits: ClassVar[Splits] = ["train"]
    listings = 0

    @classmethod
    async def list_tasks(cls, split: str) -> Any:
        cls.listings += 1
        await asyncio.sleep(0)
        return list(TASKS)


class Counts(Base):
    """Tasks by ``num_tasks`` and ``get_task`` alone."""

    splits: ClassVar[Splits] = ["train"]
    got: ClassVar[list[int]] = []

    @classmethod
    def list_tasks(cls, split: str) -> Any:
        raise NotImplementedError

    @classmethod
    def num_tasks(cls, split: str) -> int:
        return 10**9

    @classmethod
    def get_task(cls, split: str, index: int) -> Any:
        cls.got.append(index)
        if index < 0:
            raise IndexError("no negatives here")
        return {"n": index}


def source(cls: type) -> TaskSource:
    return host(cls).tasks


async def test_a_list_is_counted_and_indexed_as_python_does() -> None:
    tasks = source(Base)
    assert await tasks.num_tasks("train") == 5
    assert await tasks.num_tasks("empty") == 0
    assert await tasks.list_tasks("train") == TASKS
    assert await tasks.list_tasks("empty") == []
    assert [await tasks.get_task("train", index) for index in (0, 4, -1, -5)] == [
        TASKS[at] for at in (0, 4, 4, 0)
    ]
    for index in (5, -6, 10**30, -(10**30)):
        with pytest.raises(InvalidIndex, match=r"Invalid index .*'train' has 5 tasks \(0 to 4\)"):
            await tasks.get_task("train", index)
    with pytest.raises(InvalidIndex, match="none"):
        await tasks.get_task("empty", 0)


@pytest.mark.parametrize(
    ("start", "stop"),
    [(None, None), (1, 3), (None, -1), (-2, None), (-99, 99), (3, 1), (10**30, None), (0, 0), (-1, -3)],
)
@pytest.mark.parametrize("cls", [Base, Lists])
async def test_a_range_is_a_slice(cls: type, start: int | None, stop: int | None) -> None:
    assert await source(cls).get_task_range("train", start, stop) == TASKS[start:stop]


async def test_an_unknown_split_is_refused_everywhere() -> None:
    tasks = source(Base)
    calls = [tasks.num_tasks("x"), tasks.get_task("x", 0), tasks.get_task_range("x"), tasks.list_tasks("x")]
    for call in calls:
        with pytest.raises(InvalidSplit, match=r"Invalid split 'x': environment 'Base' has 'train', 'empty'"):
            await call


async def test_computed_tasks_are_never_listed_to_count_or_get() -> None:
    tasks = source(Procedural)
    assert await tasks.num_tasks("train") == 10**12
    assert await tasks.get_task("train", 7) == {"square": 49}
    assert await tasks.get_task("train", -1) == {"square": (10**12 - 1) ** 2}
    assert await tasks.get_task_range("train", 2, 4) == [{"square": 4}, {"square": 9}]
    assert await tasks.get_task_range("train", -1) == [{"square": (10**12 - 1) ** 2}]
    with pytest.raises(InvalidIndex):
        await tasks.get_task("train", 10**12)


async def test_too_many_computed_tasks_are_not_listed() -> None:
    with pytest.raises(ListingUnsupported, match="use num_tasks, task and task_range"):
        await source(Procedural).list_tasks("train")
    assert len(Squares()) > LISTING_LIMIT


async def test_a_few_computed_tasks_are_listed() -> None:
    class Few(Squares):
        def __len__(self) -> int:
            return 3

    class Env(Base):
        splits: ClassVar[Splits] = {"train": Few()}

    assert await source(Env).list_tasks("train") == [{"square": 0}, {"square": 1}, {"square": 4}]


async def test_a_class_that_counts_and_gets_is_never_listed() -> None:
    tasks = source(Counts)
    assert await tasks.num_tasks("train") == 10**9
    assert await tasks.get_task("train", 5) == {"n": 5}
    assert await tasks.get_task_range("train", -2) == [{"n": 10**9 - 2}, {"n": 10**9 - 1}]
    with pytest.raises(ListingUnsupported, match="Counts"):
        await tasks.list_tasks("train")


async def test_a_class_with_its_own_get_task_decides_on_negative_indexes() -> None:
    with pytest.raises(InvalidIndex, match="no negatives here"):
        await source(Counts).get_task("train", -1)
    assert Counts.got[-1] == -1


async def test_a_listing_is_made_once_per_split_also_for_many_at_once() -> None:
    Lists.listings = 0
    tasks = source(Lists)
    found = await asyncio.gather(*(tasks.get_task("train", 1) for _ in range(20)))
    assert found == [{"n": 1}] * 20
    assert await tasks.num_tasks("train") == 5
    assert await tasks.list_tasks("train") == TASKS
    assert Lists.listings == 1


async def test_a_listing_that_failed_is_made_again() -> None:
    class Flaky(Lists):
        failed = False

        @classmethod
        async def list_tasks(cls, split: str) -> Any:
            if not cls.failed:
                cls.failed = True
                raise OSError("disk")
            return TASKS

    tasks = source(Flaky)
    with pytest.raises(OSError, match="disk"):
        await tasks.num_tasks("train")
    assert await tasks.num_tasks("train") == 5


async def test_a_listing_may_be_any_iterable() -> None:
    class Generates(Lists):
        @classmethod
        def list_tasks(cls, split: str) -> Any:
            yield from TASKS

    assert await source(Generates).get_task("train", -1) == TASKS[-1]


async def test_async_methods_are_awaited_and_inherited_ones_work() -> None:
    class Async(Base):
        splits: ClassVar[Splits] = {"train": TASKS}

        @classmethod
        async def num_tasks(cls, split: str) -> int:
            return int(await super().num_tasks(split)) - 1

        @classmethod
        async def get_task(cls, split: str, index: int) -> Any:
            return {"got": await super().get_task(split, index)}

    tasks = source(Async)
    assert await tasks.num_tasks("train") == 4
    assert await tasks.get_task("train", -1) == {"got": {"n": 4}}
    assert await tasks.get_task_range("train", 2) == [{"got": {"n": 2}}, {"got": {"n": 3}}]


async def test_a_range_of_its_own_is_used() -> None:
    class Ranges(Base):
        @classmethod
        def get_task_range(cls, split: str, start: int | None = None, stop: int | None = None) -> Any:
            if start == 99:
                raise IndexError("too far")
            return [{"start": start, "stop": stop}]

    tasks = source(Ranges)
    assert await tasks.get_task_range("train", 3) == [{"start": 3, "stop": None}]
    with pytest.raises(InvalidIndex, match="Invalid index range"):
        await tasks.get_task_range("train", 99)


async def test_a_task_that_is_no_object_is_reported() -> None:
    class Odd(Base):
        splits: ClassVar[Splits] = {"train": ["a question"]}

    tasks = source(Odd)
    with pytest.raises(TypeError, match=r"task 0 of split 'train' of 'Odd' is a str"):
        await tasks.get_task("train", 0)
    with pytest.raises(TypeError, match="must be a JSON object"):
        await tasks.list_tasks("train")


async def test_author_code_runs_where_the_runtime_says() -> None:
    ran: list[Any] = []

    async def run(function: Any, *args: Any) -> Any:
        ran.append(getattr(function, "__name__", function))
        return function(*args)

    tasks = host(Counts, run=run).tasks
    await tasks.num_tasks("train")
    await tasks.get_task("train", 1)
    assert ran == ["num_tasks", "get_task"]
    procedural = host(Procedural).tasks
    procedural.run = run
    await procedural.get_task("train", 1)
    assert ran[2:] == ["__getitem__"]
    plain = host(Base, run=run).tasks
    await plain.get_task("train", 1)
    assert len(ran) == 3
