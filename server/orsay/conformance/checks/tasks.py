"""Tasks by list, count, index and range, and the task of a session that is created by index."""

from __future__ import annotations

from typing import Any

import httpx

from orsay.conformance.check import standard
from orsay.conformance.failures import NotSupported, expect
from orsay.conformance.strict import json_of
from orsay.conformance.target import Target, TargetSession

_SPLITS_PLAYED = 8


async def _tasks(target: Target) -> list[dict[str, Any]]:
    target.need_tasks()
    if target.count > 5_000:
        raise NotSupported(f"the split {target.split} has {target.count} tasks, too many to list")
    answer = await target.post(target.path("/tasks"), {"split": target.split})
    if answer.status_code == 400:
        raise NotSupported(f"the environment cannot list its tasks: {answer.text[:200]}")
    expect(answer.status_code == 200, f"/tasks answered {answer.status_code}: {answer.text[:200]}")
    return list(json_of(answer)["tasks"])


@standard("tasks", "3.1", "POST /{env}/tasks answers with every task of a split, as JSON objects.")
async def tasks(target: Target) -> None:
    listed = await _tasks(target)
    expect(all(isinstance(task, dict) for task in listed), "a task is no JSON object")
    expect(len(listed) == target.count, f"{len(listed)} tasks listed, num_tasks says {target.count}")


@standard("num-tasks", "3.1", "POST /{env}/num_tasks counts the tasks of a split.")
async def num_tasks(target: Target) -> None:
    for split in target.splits:
        answer = await target.post(target.path("/num_tasks"), {"split": split["name"]})
        expect(answer.status_code == 200, f"{split['name']}: answered {answer.status_code}")
        count = json_of(answer)["num_tasks"]
        expect(isinstance(count, int) and count >= 0, f"{split['name']}: counts {count!r}")


async def _task(target: Target, index: Any) -> httpx.Response:
    target.need_tasks()
    return await target.post(target.path("/task"), {"split": target.split, "index": index})


@standard("task", "3.1", "POST /{env}/task answers with the task at an index, the one /tasks lists there.")
async def task(target: Target) -> None:
    first = await _task(target, 0)
    expect(first.status_code == 200, f"index 0 answered {first.status_code}: {first.text[:200]}")
    expect(isinstance(json_of(first)["task"], dict), f"the task is {json_of(first)['task']!r}")
    listed = await _tasks(target)
    for index in {0, len(listed) // 2, len(listed) - 1}:
        got = json_of(await _task(target, index))["task"]
        expect(got == listed[index], f"index {index} gives {got!r}, the list has {listed[index]!r}")


@standard("task-env-name", "3.1", "Answers of /task and /task_range carry env_name.")
async def task_env_name(target: Target) -> None:
    one = json_of(await _task(target, 0))
    some = json_of(await _range(target, 0, 1))
    if "env_name" not in one and "env_name" not in some:
        raise NotSupported("servers before openreward 0.1.100 and ors-sdk leave env_name out")
    for answer in (one, some):
        expect(answer.get("env_name") == target.env, f"env_name is {answer.get('env_name')!r}")


@standard("index-beyond", "7", "An index past the last task answers 400 Invalid index.")
async def index_beyond(target: Target) -> None:
    answer = await _task(target, target.count)
    expect(answer.status_code == 400, f"answered {answer.status_code}: {answer.text[:200]}")
    expect("nvalid index" in json_of(answer)["detail"], f"the detail is {json_of(answer)['detail']!r}")


@standard(
    "index-negative",
    "7",
    "A negative index counts from the end, as in Python, where the class does not refuse.",
)
async def index_negative(target: Target) -> None:
    answer = await _task(target, -1)
    if answer.status_code == 400:
        raise NotSupported("this environment refuses negative indexes, which it may")
    if json_of(answer)["task"] == {"split": target.split, "index": -1}:
        raise NotSupported("this server serves tasks by index only: it repeats what it was asked for")
    last = json_of(await _task(target, target.count - 1))["task"]
    expect(json_of(answer)["task"] == last, "index -1 is not the last task")
    before = await _task(target, -target.count - 1)
    expect(before.status_code == 400, f"index -{target.count + 1} answered {before.status_code}")


@standard("index-numbers", "4", 'An index may be "0", 0.0 or false; 0.5, null and no index answer 422.')
async def index_numbers(target: Target) -> None:
    for good in ("0", 0.0, False):
        answer = await _task(target, good)
        expect(answer.status_code == 200, f"index {good!r} answered {answer.status_code}")
    wrong: tuple[Any, ...] = (0.5, None, "first", [0], {})
    for bad in wrong:
        answer = await _task(target, bad)
        expect(answer.status_code == 422, f"index {bad!r} answered {answer.status_code}")
    answer = await target.post(target.path("/task"), {"split": target.split})
    expect(answer.status_code == 422, f"no index answered {answer.status_code}")


async def _range(target: Target, start: Any, stop: Any) -> httpx.Response:
    target.need_tasks()
    body = {"split": target.split, "start": start, "stop": stop}
    return await target.post(target.path("/task_range"), body)


@standard("task-range", "7", "POST /{env}/task_range is half open and clamps as a Python slice does.")
async def task_range(target: Target) -> None:
    count = target.count
    plan: list[tuple[int | None, int | None]] = [(0, 2), (0, 0), (1, 1), (2, 1), (count - 1, count + 10)]
    plan += [(count, None), (count + 5, count + 9), (-2, None), (-1, -2), (-1, count)]
    if count <= 200:
        plan += [(None, None), (0, None), (None, 2), (None, -1), (-count - 5, 1), (-count - 5, None)]
    for start, stop in plan:
        answer = await _range(target, start, stop)
        if answer.status_code in (307, 308, 404):
            raise NotSupported("servers before openreward 0.1.62 have no /task_range")
        expect(
            answer.status_code == 200, f"[{start}:{stop}] answered {answer.status_code}: {answer.text[:200]}"
        )
        got = json_of(answer)["tasks"]
        wanted = [json_of(await _task(target, i))["task"] for i in range(count)[start:stop][:4]]
        size = len(range(count)[start:stop])
        expect(len(got) == size, f"[{start}:{stop}] of {count} tasks gives {len(got)}, not {size}")
        expect(got[:4] == wanted, f"[{start}:{stop}] gives other tasks than /task does")


@standard(
    "task-range-defaults", "7", "In /task_range a missing start is 0 and a missing stop the number of tasks."
)
async def task_range_defaults(target: Target) -> None:
    target.need_tasks()
    if target.count > 5_000:
        raise NotSupported(f"the split {target.split} has {target.count} tasks, too many to ask for")
    answer = await target.post(target.path("/task_range"), {"split": target.split})
    if answer.status_code in (307, 308, 404):
        raise NotSupported("servers before openreward 0.1.62 have no /task_range")
    expect(answer.status_code == 200, f"answered {answer.status_code}: {answer.text[:200]}")
    given = len(json_of(answer)["tasks"])
    expect(given == target.count, f"gives {given} of {target.count}")


@standard("empty-split", "7", "A split without tasks counts 0 and lists nothing; it is no error.")
async def empty_split(target: Target) -> None:
    for split in target.splits:
        body = {"split": split["name"]}
        if json_of(await target.post(target.path("/num_tasks"), body))["num_tasks"] == 0:
            listed = await target.post(target.path("/tasks"), body)
            expect(listed.status_code == 200, f"/tasks answered {listed.status_code}")
            expect(json_of(listed)["tasks"] == [], f"/tasks answered {listed.text[:200]}")
            ranged = await target.post(target.path("/task_range"), body)
            expect(ranged.status_code == 200, f"/task_range answered {ranged.status_code}")
            expect(json_of(ranged)["tasks"] == [], f"/task_range answered {ranged.text[:200]}")
            return
    raise NotSupported("every split of this environment has tasks")


@standard("create-same-task", "3.2", "POST /create by split and index opens the task that /task shows there.")
async def create_same_task(target: Target) -> None:
    target.need_tasks()
    judged, unlike = 0, ""
    for split in target.splits[:_SPLITS_PLAYED]:
        name = split["name"]
        count = json_of(await target.post(target.path("/num_tasks"), {"split": name}))["num_tasks"]
        if not count:
            continue
        # The last task: finds a server that always plays the first one.
        source = {"split": name, "index": count - 1}
        asked = await target.post(target.path("/task"), source)
        by_index = {**source, "env_name": target.env}
        by_task = {"task_spec": json_of(asked)["task"], "env_name": target.env}
        shown, wanted = await _prompt(target, by_index), await _prompt(target, by_task)
        if shown != wanted and (shown, wanted) != (
            await _prompt(target, by_index),
            await _prompt(target, by_task),
        ):
            unlike = unlike or f"the prompt of a task of {name} is another one in each session"
            continue
        where = f"task {count - 1} of {name}"
        expect(shown == wanted, f"{where}: by index its prompt is {shown!r:.200}, by task {wanted!r:.200}")
        judged += 1
    if not judged:
        raise NotSupported(unlike or f"none of the first {_SPLITS_PLAYED} splits has a task")


async def _prompt(target: Target, body: dict[str, Any]) -> Any:
    session = TargetSession(target, await target.new_sid())
    answer = await session.post("/create", body)
    if "task_spec" in body and answer.status_code in (400, 403) and "index" in answer.text:
        raise NotSupported(f"this server serves tasks by index only: {answer.text[:200]}")
    expect(answer.status_code == 200, f"/create answered {answer.status_code}: {answer.text[:200]}")
    prompt = json_of(await session.get(target.path("/prompt")))
    await session.post("/delete")
    return prompt
