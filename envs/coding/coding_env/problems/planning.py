"""Functions about time and order: rankings, plans, queues, caches, calendars."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

from ..problem import Params, Problem, size

__all__ = ["PROBLEMS"]

_NAMES = ("ada", "bo", "cyd", "dan", "eve", "fay", "gus", "hal", "ivy", "jo", "kim", "lou")


# ranking

_STYLES = {
    "standard": "equal scores share a rank, and the ranks after them are skipped (1, 2, 2, 4)",
    "dense": "equal scores share a rank, and no rank is skipped (1, 2, 2, 3)",
    "last": "equal scores share the last of their ranks (1, 3, 3, 4)",
}


def _ranking_params(rng: Random) -> dict[str, Any]:
    style = rng.choice([*_STYLES])
    return {
        "best": rng.choice(("highest", "lowest")),
        "style": style,
        "shares": _STYLES[style],
        "names": rng.choice(("alphabetical", "reverse alphabetical")),
        "places": rng.randint(2, 8),
        "least": rng.randint(0, 15),
    }


def _ranked(params: Params, scores: list[list[Any]]) -> list[list[Any]]:
    sign = -1 if params["best"] == "highest" else 1
    kept = sorted(each for each in scores if each[1] >= params["least"])
    if params["names"] != "alphabetical":
        kept.reverse()
    kept.sort(key=lambda each: sign * each[1])
    values = [score for _, score in kept]
    ranks: dict[str, Callable[[int], int]] = {
        "standard": lambda score: values.index(score) + 1,
        "dense": lambda score: list(dict.fromkeys(values)).index(score) + 1,
        "last": lambda score: values.index(score) + values.count(score),
    }
    rank = ranks[params["style"]]
    ranked = [[rank(score), name] for name, score in kept]
    return [each for each in ranked if each[0] <= params["places"]]


_RANKING = Problem(
    name="ranking",
    signature="(scores: list[list]) -> list[list]",
    words={
        "function": ("ranking", "leaders", "podium", "standings"),
        "thing": ("chess tournament", "spelling contest", "race", "quiz"),
    },
    params=_ranking_params,
    statements=(
        "The results of a {thing} are pairs [name, score] with different names. Leave out scores below "
        "{least}. The {best} score is best and has rank 1; {shares}. Return pairs [rank, name] for all "
        "ranks up to {places}, the best first, and names of equal scores in {names} order.",
        "Make the ranking of a {thing} from pairs [name, score]; no name occurs twice. First, scores "
        "smaller than {least} are dropped. The best score, rank 1, is the {best}. Ties: {shares}. The "
        "result has a pair [rank, name] for everybody whose rank is {places} or better, sorted by rank, "
        "then by name ({names}).",
    ),
    draw=lambda rng, params: [
        [[name, rng.randint(0, 25)] for name in rng.sample(_NAMES, size(rng, len(_NAMES)))]
    ],
    reference=_ranked,
    solutions={
        "python": """
            def {{function}}(scores):
                players = [(name, score) for name, score in scores if score >= {{least}}]
                high = "{{best}}" == "highest"
                players.sort(key=lambda p: p[0], reverse="{{names}}" != "alphabetical")
                players.sort(key=lambda p: p[1], reverse=high)
                result = []
                for name, score in players:
                    better = [s for _, s in players if (s > score if high else s < score)]
                    equal = [s for _, s in players if s == score]
                    if "{{style}}" == "standard":
                        rank = len(better) + 1
                    elif "{{style}}" == "dense":
                        rank = len(set(better)) + 1
                    else:
                        rank = len(better) + len(equal)
                    if rank <= {{places}}:
                        result.append([rank, name])
                return result
        """
    },
)


# day-plan: any right answer


def _plan(params: Params, tasks: list[str], needs: list[list[str]]) -> list[list[str]] | None:
    done: dict[str, int] = {}
    days: list[list[str]] = []
    pairs = [_as_need(params, pair) for pair in needs]
    for day in count(1):
        left = [task for task in tasks if task not in done]
        if not left:
            return days
        if not any(all(before in done for before, after in pairs if after == task) for task in left):
            return None
        ready = [
            task
            for task in left
            if all(
                before in done and day - done[before] >= params["rest"]
                for before, after in pairs
                if after == task
            )
        ]
        today = [] if day % params["off"] == 0 else ready[: params["most"]]
        days.append(today)
        done |= dict.fromkeys(today, day)
    return None


def _as_need(params: Params, pair: list[str]) -> list[str]:
    return pair if params["pair"] == "[earlier, later]" else pair[::-1]


def _accepts_plan(params: Params, value: Any, output: Any) -> bool:
    tasks, needs = value
    if output is None:
        return _plan(params, tasks, needs) is None
    if not isinstance(output, list) or not all(isinstance(day, list) for day in output):
        return False
    flat = [task for day in output for task in day]
    if not all(isinstance(task, str) for task in flat) or sorted(flat) != sorted(tasks):
        return False
    at = {task: number for number, day in enumerate(output, 1) for task in day}
    pairs = [_as_need(params, pair) for pair in needs]
    return (
        all(len(day) <= params["most"] for day in output)
        and all(number % params["off"] for number in at.values())
        and all(at[after] - at[before] >= params["rest"] for before, after in pairs)
    )


def _draw_plan(rng: Random, params: Params) -> list[Any]:
    tasks = rng.sample(("dig", "saw", "mix", "pour", "bolt", "weld", "paint", "test", "ship"), size(rng, 8))
    pairs = [[a, b] for at, a in enumerate(tasks) for b in tasks[at + 1 :] if rng.random() < 0.3]
    if pairs and rng.random() < 0.3:
        pairs.append(rng.choice(pairs)[::-1])
    if params["pair"] != "[earlier, later]":
        pairs = [pair[::-1] for pair in pairs]
    return [rng.sample(tasks, len(tasks)), rng.sample(pairs, len(pairs))]


_DAY_PLAN = Problem(
    name="day-plan",
    signature="(tasks: list[str], needs: list[list[str]]) -> list[list[str]] | None",
    words={
        "function": ("plan_days", "schedule", "make_plan", "distribute"),
        "thing": ("workshop", "shipyard", "film crew", "laboratory"),
    },
    params=lambda rng: {
        "most": rng.randint(1, 4),
        "rest": rng.randint(1, 4),
        "off": rng.randint(2, 8),
        "pair": rng.choice(("[earlier, later]", "[later, earlier]")),
    },
    statements=(
        "A {thing} plans its days. Each task is done once, on one day, and {most} task(s) a day at most. A "
        "pair {pair} of needs says that its later task is done at least {rest} day(s) after the earlier "
        "one. Days are numbered from 1, and on each day whose number is divisible by {off} nothing is done. "
        "Return a list with the list of tasks of each day, from day 1; it may be empty for a day. Any plan "
        "that keeps to the rules is accepted. Return None if there is none.",
        "Distribute the tasks of a {thing} over days 1, 2, 3 and so on: the result is a list of days, each "
        "a list of tasks, possibly empty. Rules: every task occurs exactly once; no day has more than "
        "{most}; day {off} and its multiples are free; for each pair {pair} in needs the number of the "
        "later task's day is larger by {rest} or more. All plans without a broken rule are right. If the "
        "needs make a plan impossible, return None.",
    ),
    draw=_draw_plan,
    reference=_plan,
    accepts=_accepts_plan,
    solutions={
        "python": """
            def {{function}}(tasks, needs):
                if "{{pair}}" == "[later, earlier]":
                    needs = [[b, a] for a, b in needs]
                order, left = [], list(tasks)
                while left:
                    free = [t for t in left if not any(b == t and a in left for a, b in needs)]
                    if not free:
                        return None
                    order.append(free[0])
                    left.remove(free[0])
                day_of, load = {}, {}
                for task in order:
                    day = max([day_of[a] + {{rest}} for a, b in needs if b == task], default=1)
                    while day % {{off}} == 0 or load.get(day, 0) >= {{most}}:
                        day += 1
                    day_of[task] = day
                    load[day] = load.get(day, 0) + 1
                last = max(load, default=0)
                return [[t for t in order if day_of[t] == day] for day in range(1, last + 1)]
        """
    },
)


# counters


def _served(params: Params, arrivals: list[int], durations: list[int]) -> list[int]:
    free = [0] * params["counters"]
    served = [0] * params["counters"]
    ends = []
    for arrival, duration in zip(arrivals, durations, strict=True):
        at = min(range(len(free)), key=lambda each: (max(free[each], arrival), each))
        end = max(free[at], arrival) + params["setup"] + duration
        served[at] += 1
        free[at] = end + (params["pause"] if served[at] % params["every"] == 0 else 0)
        ends.append(end)
    return ends


def _customers(rng: Random, params: Params) -> list[Any]:
    arrivals = sorted(rng.randint(0, 40) for _ in range(size(rng, 16)))
    return [arrivals, [rng.randint(1, 12) for _ in arrivals]]


_COUNTERS = Problem(
    name="counters",
    signature="(arrivals: list[int], durations: list[int]) -> list[int]",
    words={
        "function": ("finish_times", "serve", "done_at", "queue"),
        "thing": ("post office", "bakery", "border crossing", "help desk"),
    },
    params=lambda rng: {
        "counters": rng.randint(1, 4),
        "setup": rng.randint(0, 5),
        "every": rng.randint(2, 5),
        "pause": rng.randint(1, 9),
    },
    statements=(
        "A {thing} has {counters} counter(s). Customers come at the given minutes (ascending) and are "
        "served in this order. Each goes to the counter where service can begin first, at once or after a "
        "wait; of several, to the one with the lowest number. Service takes {setup} minute(s) and then the "
        "duration of the customer. After every {every} customers a counter closes for {pause} minute(s). "
        "Return the minute at which each customer is done.",
        "Simulate the queue of a {thing} with {counters} counter(s), numbered from 0. Customer i arrives in "
        "minute arrivals[i] (the list is sorted) and needs {setup} + durations[i] minutes. In the order of "
        "arrival each takes the counter that lets it begin earliest, not before it has arrived; the lower "
        "number wins a tie. A counter that has served its {every}th, 2 * {every}th, 3 * {every}th ... "
        "customer is not free for the next {pause} minute(s). Return when each customer is finished, in the "
        "order given.",
    ),
    draw=_customers,
    reference=_served,
    solutions={
        "python": """
            def {{function}}(arrivals, durations):
                counters = [[0, 0] for _ in range({{counters}})]
                result = []
                for i in range(len(arrivals)):
                    begin, chosen = None, None
                    for counter in counters:
                        start = max(counter[0], arrivals[i])
                        if begin is None or start < begin:
                            begin, chosen = start, counter
                    finish = begin + {{setup}} + durations[i]
                    result.append(finish)
                    chosen[0] = finish
                    chosen[1] += 1
                    if chosen[1] == {{every}}:
                        chosen[0] += {{pause}}
                        chosen[1] = 0
                return result
        """
    },
)


# shelf (a cache)

_LEAVES = {
    "the one requested longest ago": "oldest request",
    "the one that was put there first": "first put",
    "the one requested last": "latest request",
}


def _shelf_params(rng: Random) -> dict[str, Any]:
    return {
        "room": rng.randint(2, 6),
        "leaves": rng.choice([*_LEAVES]),
        "age": rng.randint(4, 16),
        "answer": rng.choice(
            ("the number of requests that found their item there", "what is there at the end")
        ),
    }


def _shelf(params: Params, requests: list[str]) -> Any:
    hits = 0
    put: dict[str, int] = {}
    used: dict[str, int] = {}
    for now, item in enumerate(requests):
        for old in [each for each in put if now - used[each] > params["age"]]:
            del put[old]
        if item in put:
            hits += 1
        else:
            if len(put) == params["room"]:
                match _LEAVES[params["leaves"]]:
                    case "oldest request":
                        leaving = min(put, key=lambda each: used[each])
                    case "latest request":
                        leaving = max(put, key=lambda each: used[each])
                    case _:
                        leaving = min(put, key=lambda each: put[each])
                del put[leaving]
            put[item] = now
        used[item] = now
    return hits if params["answer"].startswith("the number") else sorted(put)


_SHELF = Problem(
    name="shelf",
    signature="(requests: list[str]) -> int | list[str]",
    words={
        "function": ("shelf", "simulate_cache", "requests_served", "storage"),
        "thing": ("book on a shelf", "page in a cache", "tool on a bench", "tape in a drive"),
    },
    params=_shelf_params,
    statements=(
        "There is room for {room} items (think of a {thing}). Requests come one after the other. If the "
        "item is there, it is found. If not, it is put there; where there is no room left, one item leaves "
        "before: {leaves}. Besides, before each request, every item whose last request is more than {age} "
        "requests ago leaves (it was request number i, and the one that comes now has a number above i + "
        "{age}). Return {answer}; items as a sorted list. At the end nothing more leaves.",
        "Simulate a store for {room} items, such as a {thing}. For each request i = 0, 1, 2, ...: first, "
        "items that were last requested before request i - {age} are removed. Then, if the requested item "
        "is in the store, that is a find; otherwise it is added, and if the store was full, {leaves} is "
        "removed before that. Return {answer} (items sorted).",
    ),
    draw=lambda rng, params: [
        [rng.choice("abcdefghijk"[: rng.choice((4, 7, 11))]) for _ in range(size(rng, 40))]
    ],
    reference=_shelf,
    solutions={
        "python": """
            def {{function}}(requests):
                store = []
                last = {}
                found = 0
                for i, item in enumerate(requests):
                    store = [each for each in store if last[each] >= i - {{age}}]
                    if item in store:
                        found += 1
                    else:
                        if len(store) >= {{room}}:
                            by_use = sorted(store, key=last.get)
                            if "{{leaves}}" == "the one requested longest ago":
                                store.remove(by_use[0])
                            elif "{{leaves}}" == "the one requested last":
                                store.remove(by_use[-1])
                            else:
                                store.pop(0)
                        store.append(item)
                    last[item] = i
                return found if "{{answer}}".startswith("the number") else sorted(store)
        """
    },
)


# calendar


def _calendar_params(rng: Random) -> dict[str, Any]:
    return {"months": [rng.randint(5, 40) for _ in range(rng.randint(3, 7))], "leap": rng.randint(2, 7)}


def _month_days(params: Params, year: int, month: int) -> int:
    longer = month == len(params["months"]) and year % params["leap"] == 0
    return int(params["months"][month - 1]) + longer


def _later(params: Params, year: int, month: int, day: int, days: int) -> list[int]:
    for _ in range(abs(days)):
        if days > 0:
            day += 1
            if day > _month_days(params, year, month):
                day, month = 1, month + 1
                if month > len(params["months"]):
                    month, year = 1, year + 1
        else:
            day -= 1
            if day == 0:
                month -= 1
                if month == 0:
                    month, year = len(params["months"]), year - 1
                day = _month_days(params, year, month)
    return [year, month, day]


def _date(rng: Random, params: Params) -> list[Any]:
    year, month = rng.randint(100, 130), rng.randint(1, len(params["months"]))
    day = rng.choice((1, _month_days(params, year, month), rng.randint(1, params["months"][month - 1])))
    return [year, month, day, rng.choice((rng.randint(-9, 9), rng.randint(-900, 900)))]


_CALENDAR = Problem(
    name="calendar",
    signature="(year: int, month: int, day: int, days: int) -> list[int]",
    words={
        "function": ("add_days", "date_after", "shift_date", "later"),
        "place": ("a colony on Mars", "an old monastery", "the elves", "a submarine crew"),
    },
    params=_calendar_params,
    statements=(
        "In the calendar of {place} the months of a year have {months} days, in this order; in years "
        "divisible by {leap} the last month has one day more. Months and days are counted from 1. Return "
        "[year, month, day] of the date that is the given number of days after the given one (before it, if "
        "the number is negative).",
        "Add days, which may be negative, to a date and return the new one as [year, month, day]. The "
        "calendar is that of {place}: a year is made of months with {months} days, and every year whose "
        "number is a multiple of {leap} has one day more, at the end of its last month. The first month is "
        "1, and so is the first day.",
    ),
    draw=_date,
    reference=_later,
    solutions={
        "python": """
            MONTHS = [{{months}}]

            def length(year):
                return sum(MONTHS) + (year % {{leap}} == 0)

            def {{function}}(year, month, day, days):
                number = sum(MONTHS[: month - 1]) + day - 1 + days
                while number < 0:
                    year -= 1
                    number += length(year)
                while number >= length(year):
                    number -= length(year)
                    year += 1
                month = 0
                while month < len(MONTHS) - 1 and number >= MONTHS[month]:
                    number -= MONTHS[month]
                    month += 1
                return [year, month + 1, number + 1]
        """
    },
)

PROBLEMS = (_RANKING, _DAY_PLAN, _COUNTERS, _SHELF, _CALENDAR)
