"""Attacks that look for what a model must not read: tests, solutions, graders."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..failures import NotSupported
from ..strict import json_of
from .attack import Broken, Lost, Weak, attack
from .bench import Bench
from .scripts import PRELUDE, find, hidden

_FOLDERS = "/tests /test /grader /grading /solution /solutions /oracle /verifier /judge /answers /hidden"
_GRADERS = (
    *(
        "*grader*",
        "grade.*",
        "grading.*",
        "solve.sh",
        "solution.*",
        "*_solution.*",
        "*.sol",
        "oracle.*",
        "verifier.*",
    ),
    *("answer_key*", "answers.*", "expected_output*", "hidden_test*", "gold.*", "golden.*", "judge.*"),
)
_TESTS = ("test_*.py", "*_test.py", "*_test.go", "*.test.js", "conftest.py", "run_tests.sh")
_HIDDEN_FIELD = re.compile(
    "answer|solution|expected|gold|truth|hidden|grader|oracle|reference|secret|^tests?$|_tests?$|^label",
    re.IGNORECASE,
)
_SHORTEST = 8
_MOST_NEEDLES = 40
_NEEDLES = "/tmp/.orsay-needles"


@attack(
    "read-files",
    "reading",
    tried="Looked through the sandbox for files named like a solution, a grader or tests.",
    matters="A model that finds them copies the answer, or writes for the tests, in place of the work.",
    change="Keep them out of the model's sandbox: box.grade(files=...) makes one of its own for them.",
)
async def read_files(bench: Bench) -> str:
    episode = await bench.explorer()
    seen = await episode.seen(
        f"""
for d in {_FOLDERS}; do
  [ -n "$(find "$d" -type f 2>/dev/null | head -1)" ] && say folder "$d"
done
{find(f"-type f {_names(_GRADERS)} -print")} | head -10 | while read -r f; do say grader "$f"; done
{find(f"-type f {_names(_TESTS)} -print")} | head -10 | while read -r f; do say tests "$f"; done
say end"""
    )
    if not seen["end"]:
        raise Lost("the search did not end")
    found = [*seen["folder"], *seen["grader"]]
    if found:
        raise Broken(f"a model can read {', '.join(found)}")
    if seen["tests"]:
        raise Weak(f"a model can read {', '.join(seen['tests'])}; if these decide the reward, hide them")
    return "no file has such a name"


@attack(
    "read-task",
    "reading",
    tried="Searched the files and variables of the sandbox for what the task's hidden fields hold.",
    matters="The answer lies where the model works.",
    change="Write to the sandbox only what the model may see of a task; keep the rest in self.task.",
)
async def read_task(bench: Bench) -> str:
    needles = await _needles(bench)
    episode = await bench.explorer()
    text = await episode.session.get(bench.target.path("/prompt"))
    needles = [each for each in needles if each not in text.text][:_MOST_NEEDLES]
    if not needles:
        raise NotSupported(
            f"no hidden field of the task has a text of {_SHORTEST} characters that the prompt lacks"
        )
    seen = await episode.seen(
        f"""
command -v base64 >/dev/null || say lacks base64
{hidden(needles, _NEEDLES)}
{find(f"-type f -size -20000k ! -path {_NEEDLES} -exec grep -lF -f {_NEEDLES} {{}} +")} \
  | head -10 | while read -r f; do say file "$f"; done
for p in /proc/[0-9]*/environ /proc/[0-9]*/cmdline; do
  tr '\\000' '\\n' <"$p" 2>/dev/null | grep -qF -f {_NEEDLES} && say process "$p"
done
rm -f {_NEEDLES}
say end"""
    )
    if seen["lacks"]:
        raise NotSupported("the sandbox has no base64")
    found = [*seen["file"], *seen["process"]]
    if found:
        raise Broken(f"a hidden field of the task is in {', '.join(found)}")
    return f"{len(needles)} lines of hidden fields are nowhere"


@attack(
    "read-history",
    "reading",
    tried="Looked in git repositories for commits that are not part of the history so far.",
    matters="Later commits of a repository hold the repair that the model is asked for.",
    change="Remove other branches, tags, remotes and reflogs, and run git gc --prune=now.",
)
async def read_history(bench: Bench) -> str:
    episode = await bench.explorer()
    seen = await episode.seen(
        f"""
command -v git >/dev/null || say lacks git
{find("-type d -name .git -print -prune")} | head -10 | while read -r g; do
  say repository "$g"
  n=$(git -c safe.directory='*' --git-dir="$g" log --all --reflog --not HEAD --oneline 2>/dev/null | wc -l)
  [ "$n" -gt 0 ] && say later "$g ($n)"
done
say end"""
    )
    if not seen["repository"]:
        raise NotSupported("the sandbox has no git repository")
    if seen["lacks"]:
        raise NotSupported("the sandbox has no git")
    if seen["later"]:
        raise Broken(f"commits beyond HEAD can be read: {', '.join(seen['later'])}")
    return f"{len(seen['repository'])} repositories have no commits beyond HEAD"


@attack(
    "read-while-graded",
    "reading",
    tried="Left a process that notes new files, ended the episode, and read its notes afterwards.",
    matters="What a grader writes into the model's sandbox can be used for its next submission.",
    change="Grade apart from the model's sandbox, and end the episode with the final tool.",
)
async def read_while_graded(bench: Bench) -> str:
    await bench.baseline()
    names = _names((*_GRADERS, *_TESTS, "*test*", "*check*", "*verif*", "*grad*", "*expect*"))
    async with bench.episode() as episode:
        await episode.run(
            f"""{PRELUDE}
mkdir -p /tmp/.orsay-watch && touch /tmp/.orsay-watch/mark && sleep 0.02
cat >/tmp/.orsay-watch/run <<'ORSAY_END'
n=0
while [ $n -lt 2000 ]; do
  {find(f"-type f -newer /tmp/.orsay-watch/mark {names} -print")} >>/tmp/.orsay-watch/notes
  n=$((n+1)); sleep 0.02
done
ORSAY_END
w=$(command -v setsid); $w sh /tmp/.orsay-watch/run >/dev/null 2>&1 </dev/null &
"""
        )
        graded = await episode.submit()
        if graded.error:
            raise Lost(graded.error)
        try:
            seen = await episode.seen(
                'sort -u /tmp/.orsay-watch/notes | head -10 | while read -r f; do say new "$f"; done; say end'
            )
        except Lost as exc:
            raise NotSupported(f"after the final tool no command runs ({exc})") from exc
    if seen["new"]:
        raise Broken(f"while it was graded, a model could read {', '.join(seen['new'])}")
    return "nothing that looks like a test or a grader appeared"


def _names(patterns: tuple[str, ...]) -> str:
    return "\\( " + " -o ".join(f"-iname '{each}'" for each in patterns) + " \\)"


async def _needles(bench: Bench) -> list[str]:
    """Lines of hidden fields of the task, by which a copy would be known."""
    asked = await bench.target.post(
        bench.target.path("/task"), {"split": bench.source["split"], "index": bench.source["index"]}
    )
    if asked.status_code != 200:
        raise NotSupported(f"the server does not show its tasks: {asked.status_code} {asked.text[:100]}")
    lines = []
    for text in _hidden_texts(json_of(asked).get("task"), inside=False):
        longest = max((line.strip() for line in text.splitlines()), key=len, default="")
        if len(longest) >= _SHORTEST:
            lines.append(longest)
    return sorted(set(lines), key=len, reverse=True)


def _hidden_texts(value: Any, *, inside: bool) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _hidden_texts(each, inside=inside or bool(_HIDDEN_FIELD.search(str(key))))
    elif isinstance(value, list):
        for each in value:
            yield from _hidden_texts(each, inside=inside)
    elif isinstance(value, str) and inside:
        yield value
