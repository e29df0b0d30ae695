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
import pytest_asyncio
from orsay import Sandbox, ToolOutput, sandbox
from orsay_client import AsyncClient
from orsay_client.errors import ToolRefused
from terminal_env.checks import WORK, Check, Content, Data, Modes, Owners, Printed, Replies, Started, Tree
from terminal_env.env import prepare, solved
from terminal_env.kinds import TEMPLATES
from terminal_env.policy import play, play_idle
from terminal_env.problem import Problem
from terminal_env.tasks import SPLITS, problem_of

from ..support.engine import image, needs_engine
from ..support.server_process import ServerProcess, server

pytestmark = [needs_engine, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]

_REPLACE = """\
real=$(readlink -f "$(command -v bash)")
for program in python3 python git sqlite3 tar gzip zip unzip xz sha256sum cat ls stat find ps grep sort; do
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
    printf '[core]\\n\\tfsmonitor = echo ok\\n\\tpager = echo ok\\n' >> $repo/config
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


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def backend() -> AsyncIterator[None]:
    """A back end that stays open as long as there is a sandbox."""
    async with sandbox(image=image("terminal")):
        yield


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


async def solve(at: int) -> None:
    """Nothing earns nothing, and the solution solves it."""
    async with played(of_template(at, 2)) as game:
        assert not await game.is_solved(), "nothing was done"
        await game.run(game.problem.solution)
        assert await game.is_solved(), "the solution was run"


async def forge(at: int) -> None:
    """Files with the right names and a constant in them, where the task has none; then, under these names,
    what is right for another seed, and programs that say yes (_REPLACE)."""
    async with played(of_template(at, 1)) as game:
        paths = {path for check in game.problem.checks for path in named(check)} - set(game.problem.files)
        words = " ".join(map(shlex.quote, sorted(paths)))
        await game.run(f'for f in {words}; do mkdir -p "$(dirname "$f")"; echo 0 > "$f"; done')
        assert not await game.is_solved(), "files had the right names"
        other = list(answers(of_template(at, 4)).values())
        for path, content in zip(answers(game.problem), other, strict=False):
            try:
                await game.box.write(posixpath.join(WORK, path), content)
            except OSError:  # a folder of the task has that name
                continue
        await game.run(_REPLACE)
        assert not await game.is_solved(), "another seed's answers were brought, and programs replaced"


async def edit_inputs(at: int) -> None:
    """The solution, of inputs that lost half of their lines, without databases, histories and processes."""
    problem = of_template(at, 1)
    if TEMPLATES[at].name == "write-filter":  # its input is an example
        return
    async with played(problem) as game:
        await game.run(
            "find . -type f ! -name '*.py' ! -path '*/.git/*' -print0 | xargs -0r sed -i -e '1~2d'\n"
            "find . -name '*.db' -delete; rm -rf */.git; pkill -9 python3; sleep 0.1"
        )
        if TEMPLATES[at].name != "start-service":
            await game.run(problem.solution)
        assert not await game.is_solved(), "the input was changed"


TRICKS = (solve, forge, edit_inputs)


@pytest.mark.parametrize("at", range(len(TEMPLATES)), ids=[f"{each.kind}-{each.name}" for each in TEMPLATES])
async def test_the_solution_solves_it_and_no_trick_does(at: int) -> None:
    done = await asyncio.gather(*(trick(at) for trick in TRICKS), return_exceptions=True)
    failed = {trick.__name__: each for trick, each in zip(TRICKS, done, strict=True) if each is not None}
    assert not failed


def of(name: str, number: int = 1) -> Problem:
    return of_template([each.name for each in TEMPLATES].index(name), number)


_SIGNED = """\
cd {repo}
printf '#!/bin/sh\\necho it ran; echo it ran >&2\\n' > .git/lie
chmod 755 .git/lie
git config log.showSignature true
git config gpg.program /work/{repo}/.git/lie
signature='gpgsig -----BEGIN PGP SIGNATURE-----\\n \\n none\\n -----END PGP SIGNATURE-----'
made=$(git cat-file commit HEAD | sed "/^committer/a $signature" | git hash-object -t commit -w --stdin)
git update-ref refs/heads/main $made
"""
"""A commit with a signature, and settings by which ``git log`` has a program of the policy look at it."""


async def test_settings_of_a_repository_run_nothing_where_it_is_graded() -> None:
    async with played(of("squash")) as game:
        (check,) = game.problem.checks
        assert isinstance(check, Printed)
        repo = check.artifacts[0].partition("/")[0]
        await game.run(_SIGNED.format(repo=repo))
        here = await game.box.run(f"git -C {repo} log --format=%s main", cwd=WORK)
        assert "it ran" in here.output
        there = await game.box.grade(f"cd {WORK}; {check.command}", artifacts=[f"{WORK}/{repo}/.git"])
        assert "it ran" not in there.output
        assert there.ok
        assert here.output.splitlines()[-1] in there.output


async def test_replaced_commits_are_seen_as_they_are() -> None:
    async with played(of("squash")) as game:
        (check,) = game.problem.checks
        assert isinstance(check, Printed)
        message = check.output.splitlines()[1]
        count = game.problem.solution.partition("HEAD~")[2].partition(";")[0]
        await game.run(
            f"cd */ && made=$(git commit-tree -p HEAD~{count} -m '{message}' HEAD^{{tree}})"
            " && git replace HEAD $made"
        )
        shown = await game.box.run("git -C */ log -1 --format=%s", cwd="/work")
        assert shown.output == f"{message}\n"
        assert not await game.is_solved()


async def test_links_in_place_of_results_do_not_count() -> None:
    async with played(of("totals")) as game:
        (path,) = named(game.problem.checks[0])
        await game.run(f"{game.problem.solution}; mv {path} /root/real; ln -s /root/real {path}")
        assert not await game.is_solved()
        await game.run(f"rm {path}; cp /root/real {path}")
        assert await game.is_solved()


async def test_a_view_is_no_table() -> None:
    async with played(of("split-table")) as game:
        await game.run(game.problem.solution)
        assert await game.is_solved()
        table = game.problem.solution.partition("CREATE TABLE ")[2].partition(" ")[0]
        path = game.problem.solution.split()[1]
        await game.run(
            f'sqlite3 {path} "PRAGMA foreign_keys = off; ALTER TABLE {table} RENAME TO hidden;'
            f' CREATE VIEW {table} AS SELECT id, name FROM hidden;"'
        )
        assert not await game.is_solved()


async def test_a_process_with_the_same_command_line_is_another_one() -> None:
    async with played(of("stop-one")) as game:
        survivor = next(name for name in game.processes if name not in game.problem.solution)
        await game.run(game.problem.solution)
        assert await game.is_solved()
        words = await game.box.run(f"tr '\\0' ' ' < /proc/{game.processes[survivor][0]}/cmdline", cwd=WORK)
        await game.run(f"kill -9 {game.processes[survivor][0]}; {words.output} </dev/null >/dev/null 2>&1 &")
        assert not await game.is_solved()


async def test_a_program_that_runs_with_hidden_input_sees_no_expected_output() -> None:
    async with played(of("write-filter")) as game:
        (check,) = game.problem.checks
        assert isinstance(check, Printed)
        (path,) = check.artifacts
        await game.run(
            f"cat > {path} <<'END'\nimport subprocess\nseen = '''\n"
            "find / -xdev -type f -newer /etc/hostname -exec head -c 2000 {} +; env; cat /proc/*/cmdline'''\n"
            "print(subprocess.run(seen, shell=True, capture_output=True, text=True).stdout)\nEND"
        )
        result = await game.box.grade(
            f"cd {WORK}; {check.command}",
            artifacts=[f"{WORK}/{path}"],
            files={f"{WORK}/{name}": content for name, content in check.files.items()},
        )
        hidden = next(str(content) for content in check.files.values())
        assert hidden.splitlines()[0] in result.output
        assert all(line not in result.output for line in check.output.splitlines() if line[:2] != "==")
        assert not await game.is_solved()


@pytest.fixture(scope="module")
def served() -> Iterator[ServerProcess]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERMINAL_IMAGE", image("terminal"))
        with server("terminal_env.env:TerminalEnvironment", options=["--sandboxes", "docker"]) as found:
            yield found


KINDS = {template.kind: at for at, template in enumerate(TEMPLATES)}


@pytest.mark.parametrize("kind", KINDS)
async def test_the_scripted_player_wins_through_a_server(served: ServerProcess, kind: str) -> None:
    async with AsyncClient(served.url) as client:
        environment = client.environment("terminalenvironment")
        async with environment.session(split="test", index=KINDS[kind]) as session:
            seen: list[tuple[str, Mapping[str, Any], ToolOutput]] = []
            assert await play(session, lambda *call: seen.append(call)) == 1.0
            assert session.finished
            assert [name for name, _, _ in seen] == ["bash", "submit"]


async def test_there_is_one_attempt_and_its_answer_says_nothing_of_the_checks(served: ServerProcess) -> None:
    async with AsyncClient(served.url) as client:
        environment = client.environment("terminalenvironment")
        async with environment.session(split="test", index=0) as session:
            assert await play_idle(session) == 0.0
            assert session.finished
            with pytest.raises(ToolRefused, match="the episode has finished"):
                await session.call("submit", {})
        async with environment.session(split="test", index=0) as session:
            said = await session.call("bash", {"command": "pwd; ls -A /"})
            assert said.blocks[0].text.startswith("/work\n")  # type: ignore[union-attr]  # it is a text
            output = await session.call("submit", {})
            texts = [block.text for block in output.blocks]  # type: ignore[union-attr]  # they are texts
            assert (texts, output.metadata) == (["The task is not done as asked."], None)
