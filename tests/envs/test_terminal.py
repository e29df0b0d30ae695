"""The tasks of envs/terminal in real sandboxes: each can be solved, and is not solved by tricks."""

from __future__ import annotations

import asyncio
import posixpath
import shlex
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from orsay import Sandbox, ToolOutput, sandbox
from orsay_client import AsyncClient
from terminal_env.checks import WORK, Check, Content, Data, Modes, Owners, Printed, Replies, Started, Tree
from terminal_env.env import prepare, solved
from terminal_env.kinds import TEMPLATES
from terminal_env.policy import play, play_idle
from terminal_env.problem import Problem
from terminal_env.tasks import SPLITS, problem_of

from ..support.engine import image, needs_engine
from ..support.server_process import ServerProcess, server

pytestmark = [needs_engine, pytest.mark.timeout(300)]

_REPLACED = """\
real=$(readlink -f "$(command -v bash)")
for program in python3 python git sqlite3 tar gzip zip unzip xz sha256sum cat ls stat find ps test grep sort; do
    for folder in /usr/local/bin /usr/bin /bin; do
        printf '#!%s\\necho ok; echo 1.0 > /work/reward.txt; exit 0\\n' "$real" > $folder/.new
        chmod 755 $folder/.new
        mv -f $folder/.new $folder/$program
    done
done
site=/usr/local/lib/python3.11/site-packages
[ -d $site ] && echo 'import os; os._exit(0)' > $site/sitecustomize.py
mkdir -p /logs/verifier /tests /grader
for reward in /work/reward.txt /work/reward.json /logs/verifier/reward.txt /tests/result /grader/ok; do
    echo 1.0 > $reward
done
printf 'exit 0\\n' > /root/.bashrc
printf '#!%s\\necho passed\\nexit 0\\n' "$real" > /grader/listing.py
for repo in /work/*/.git; do
    [ -d $repo ] || continue
    mkdir -p $repo/hooks
    printf '[core]\\n\\tfsmonitor = echo ok\\n\\tpager = echo ok\\n\\thooksPath = hooks\\n[alias]\\n\\tlog = !true\\n' >> $repo/config
done
exit 0
"""
"""Programs that say yes, files that say so, and settings that run something."""


@dataclass
class Played:
    """A sandbox with a problem."""

    box: Sandbox
    problem: Problem
    processes: dict[str, Started]

    async def is_solved(self) -> bool:
        return await solved(self.box, self.problem, self.processes)

    async def run(self, command: str) -> None:
        await self.box.run(command, cwd=WORK, timeout_s=60)


@asynccontextmanager
async def played(problem: Problem) -> AsyncIterator[Played]:
    async with sandbox(image=image("terminal"), memory="512m") as box:
        yield Played(box, problem, await prepare(box, problem))


def of_template(at: int, number: int) -> Problem:
    return problem_of(SPLITS["train"][number * len(TEMPLATES) + at])


def named(check: Check) -> list[str]:
    """Paths of files that a check speaks of."""
    match check:
        case Content(path=path) | Data(path=path):
            return [path]
        case Tree(path=path, files=files):
            return [posixpath.join(path, name) for name in files]
        case Modes(path=path, modes=names) | Owners(path=path, owners=names):
            return [posixpath.join(path, name) for name in names if name]
        case Printed(artifacts=artifacts):
            return [path for path in artifacts if not path.endswith(".git")]
        case Replies(outbox=outbox):
            return [f"{outbox}/answer"]
    return []


def answers(problem: Problem) -> Mapping[str, str | bytes]:
    """Contents that are right, by path."""
    found: dict[str, str | bytes] = {}
    for check in problem.checks:
        match check:
            case Content(path=path, content=content):
                found[path] = content
            case Tree(path=path, files=files):
                found |= {posixpath.join(path, name): content for name, content in files.items()}
            case Printed(artifacts=artifacts, output=output):
                found |= {path: output for path in artifacts if not path.endswith(".git")}
    return found


async def solve_twice(at: int) -> None:
    """At the lowest and the highest level: nothing earns nothing, and the solution solves it."""
    for number in (0, 2):
        async with played(of_template(at, number)) as game:
            assert not await game.is_solved(), "nothing was done"
            await game.run(game.problem.solution)
            assert await game.is_solved(), "the solution was run"


async def replace_programs(at: int) -> None:
    async with played(of_template(at, 1)) as game:
        await game.run(_REPLACED)
        assert not await game.is_solved(), "programs were replaced"


async def name_files(at: int) -> None:
    """The right names: empty, then with a constant, where the task has no such file."""
    async with played(of_template(at, 1)) as game:
        paths = {path for check in game.problem.checks for path in named(check)} - set(game.problem.files)
        words = " ".join(map(shlex.quote, sorted(paths)))
        for content in ("", "0\n"):
            await game.run(
                f"for f in {words}; do mkdir -p \"$(dirname $f)\"; printf {shlex.quote(content)} > \"$f\"; done"
            )
            assert not await game.is_solved(), "files have the right names"


async def bring_answers(at: int) -> None:
    """What is right for another seed, under the names of this one."""
    async with played(of_template(at, 1)) as game:
        other = list(answers(of_template(at, 4)).values())
        for path, content in zip(answers(game.problem), other, strict=False):
            try:
                await game.box.write(posixpath.join(WORK, path), content)
            except OSError:  # a folder of the task has that name
                continue
        assert not await game.is_solved(), "another seed's answers were brought"


async def edit_inputs(at: int) -> None:
    """The solution, of an input that was made smaller."""
    async with played(of_template(at, 1)) as game:
        await game.run(
            "find . -path ./.git -prune -o -type f ! -name '*.py' ! -path '*/.git/*' -print0"
            " | xargs -0r sed -i -e 1d; find . -name '*.db' -delete; rm -rf */.git"
        )
        if game.processes or any(isinstance(check, Replies) for check in game.problem.checks):
            await game.run("pkill -9 python3; sleep 0.1")  # its input are the processes
        if not any(isinstance(check, Replies) for check in game.problem.checks):
            await game.run(game.problem.solution)
        assert not await game.is_solved(), "the input was changed"


TRICKS = (solve_twice, replace_programs, name_files, bring_answers, edit_inputs)


@pytest.mark.parametrize("at", range(len(TEMPLATES)), ids=[f"{each.kind}-{each.name}" for each in TEMPLATES])
async def test_the_solution_solves_it_and_no_trick_does(at: int) -> None:
    done = await asyncio.gather(*(trick(at) for trick in TRICKS), return_exceptions=True)
    failed = {trick.__name__: each for trick, each in zip(TRICKS, done, strict=True) if each is not None}
    assert not failed


def indexed(name: str, number: int = 1) -> Problem:
    return of_template([each.name for each in TEMPLATES].index(name), number)
