"""Git: history, branches, tags. The grader reads copies of a repository, without its settings and hooks."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Mapping, Sequence

from ..checks import Check, Content, Printed
from ..draw import Draw
from ..problem import Problem, templates

__all__ = ["TEMPLATES"]

_START = """\
export GIT_CONFIG_GLOBAL=/dev/null
git init -q -b main --template= {repo}
cd {repo}
git config user.name Worker
git config user.email worker@example.org
at={begin}
commit() {{
    at=$((at + 60))
    git add -A
    GIT_AUTHOR_DATE="@$at +0000" GIT_COMMITTER_DATE="@$at +0000" git commit -q --allow-empty -m "$1"
}}
"""

_SAFELY = """\
set -eo pipefail
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_NO_REPLACE_OBJECTS=1 GIT_PAGER=cat
cd {repo}
cd .git
rm -rf hooks info config.worktree commondir shallow objects/info
mkdir -p refs objects
printf '[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tfileMode = false\\n' > config
cd ..
git fsck --no-dangling --no-progress >/dev/null 2>&1
"""
"""Settings and hooks can run programs; replacements, grafts and commit graphs can show another history."""

Commit = tuple[str, Mapping[str, str | None]]
"""A subject, and contents of files by path; None: the file goes."""


def _begin(repo: str, draw: Draw) -> str:
    return _START.format(repo=repo, begin=draw.number(1_600_000_000, 1_700_000_000))


def _commits(*commits: Commit) -> str:
    lines = []
    for subject, changes in commits:
        for path, content in changes.items():
            if content is None:
                lines.append(f"rm {path}")
                continue
            if folder := posixpath.dirname(path):
                lines.append(f"mkdir -p {folder}")
            lines.append(f"printf %s {shlex.quote(content)} > {path}")
        lines.append(f"commit {shlex.quote(subject)}")
    return "\n".join(lines) + "\n"


def _repository(repo: str, output: Mapping[str, str], *, untouched: Sequence[str] = ()) -> Check:
    """These git commands print these lines. ``untouched``: files of the work tree that come along."""
    command = "\n".join(f"echo '--'; git {each} | sed -e '$a\\'" for each in output)
    return Printed(
        _SAFELY.format(repo=repo) + command,
        "".join(f"--\n{lines}\n" if lines else "--\n" for lines in output.values()),
        artifacts=(f"{repo}/.git", *untouched),
    )


def _history(draw: Draw, count: int, paths: Sequence[str]) -> list[Commit]:
    """Commits that write to these files in turn; the first one writes all."""
    commits: list[Commit] = [(f"Begin {draw.name()}", {path: draw.text(2) for path in paths})]
    for at in range(count):
        commits.append((f"Change {draw.name()}", {paths[at % len(paths)]: draw.text(2)}))
    return commits


def _after(commits: Sequence[Commit]) -> dict[str, str]:
    """Files after these commits."""
    files: dict[str, str] = {}
    for _, changes in commits:
        for path, content in changes.items():
            if content is None:
                files.pop(path)
            else:
                files[path] = content
    return files


def _subjects(commits: Sequence[Commit]) -> str:
    """As ``git log`` prints them."""
    return "\n".join(subject for subject, _ in reversed(commits))


def commit_with_ignored(draw: Draw) -> Problem:
    repo, subject = draw.word(), f"Add {draw.name()}"
    suffix = draw.choice(("log", "tmp", "bak", "cache"))
    commits = _history(draw, draw.level, [f"{word}.txt" for word in draw.words(2)])
    new = {f"{draw.word()}/{draw.word()}.txt": draw.text(2) for _ in range(draw.size(1, 2))}
    noise = {f"{draw.word()}.{suffix}": draw.text(1) for _ in range(2)}
    noise |= {f"{posixpath.dirname(next(iter(new)))}/{draw.word()}.{suffix}": draw.text(1)}
    tracked = sorted([*_after(commits), *new, ".gitignore"])
    return Problem(
        prompt=f"In the git repository {repo}, have git ignore files whose names end in .{suffix}, by a"
        f" .gitignore that says `*.{suffix}` and nothing else. Then commit it with all other new files, in"
        f" one commit with the message '{subject}' on the branch main. The ignored files stay where they"
        " are.",
        setup=_begin(repo, draw)
        + _commits(*commits)
        + "".join(
            f"mkdir -p ./{posixpath.dirname(path)}; printf %s {shlex.quote(text)} > {path}\n"
            for path, text in (new | noise).items()
        ),
        checks=(
            Content(f"{repo}/.gitignore", f"*.{suffix}"),
            *(Content(f"{repo}/{path}", text) for path, text in noise.items()),
            _repository(
                repo,
                {
                    "log --format=%s main": f"{subject}\n{_subjects(commits)}",
                    "ls-tree -r --name-only main": "\n".join(tracked),
                    "cat-file blob main:.gitignore": f"*.{suffix}",
                    **{f"cat-file blob main:{path}": text.rstrip("\n") for path, text in new.items()},
                },
            ),
        ),
        solution=f"cd {repo}; echo '*.{suffix}' > .gitignore; git add -A; git commit -qm '{subject}'",
    )


def restore_deleted(draw: Draw) -> Problem:
    repo, lost = draw.word(), f"{draw.word()}.txt"
    subject = f"Restore {draw.name()}"
    paths = [f"{word}.txt" for word in draw.words(2)]
    versions = [draw.text(2) for _ in range(1 + draw.level)]
    commits = _history(draw, draw.level, paths)
    commits += [(f"Write {draw.name()}", {lost: text}) for text in versions]
    commits.append((f"Clean up {draw.name()}", {lost: None, paths[0]: draw.text(1)}))
    commits += [(f"Change {draw.name()}", {paths[1]: draw.text(1)}) for _ in range(draw.level)]
    after = _after(commits) | {lost: versions[-1]}
    return Problem(
        prompt=f"In the git repository {repo}, the file {lost} was once removed. Bring it back as it was"
        f" last, in a new commit on main with the message '{subject}', which changes nothing else.",
        setup=_begin(repo, draw) + _commits(*commits),
        checks=(
            Content(f"{repo}/{lost}", versions[-1]),
            _repository(
                repo,
                {
                    "log --format=%s main": f"{subject}\n{_subjects(commits)}",
                    "ls-tree -r --name-only main": "\n".join(sorted(after)),
                    **{f"cat-file blob main:{path}": text.rstrip("\n") for path, text in after.items()},
                },
            ),
        ),
        solution=f"cd {repo}; git checkout -q $(git rev-list -n 1 HEAD -- {lost})^ -- {lost};"
        f" git commit -qm '{subject}'",
    )


def who_wrote_it(draw: Draw) -> Problem:
    repo, answer, path = draw.word(), f"{draw.word()}.txt", f"{draw.word()}.txt"
    line = draw.line()
    lines = [draw.line() for _ in range(3)]
    commits: list[Commit] = [(f"Begin {draw.name()}", {path: "".join(f"{each}\n" for each in lines)})]
    added = draw.number(2, 3 + 3 * draw.level)
    for at in range(6 + 3 * draw.level):
        if at == added:
            lines.insert(draw.number(0, 2), line)
        else:
            lines[-1] = draw.line()
        commits.append((f"Change {draw.name()}", {path: "".join(f"{each}\n" for each in lines)}))
    found = commits[1 + added][0]
    return Problem(
        prompt=f"Write the subject of the commit in the git repository {repo} that added the line '{line}'"
        f" to {path} to the file {answer} (in /work, not in the repository).",
        setup=_begin(repo, draw) + _commits(*commits),
        checks=(Content(answer, found),),
        solution=f"git -C {repo} log --reverse --format=%s -S'{line}' -- {path} | head -1 > {answer}",
    )


def resolve_conflict(draw: Draw) -> Problem:
    repo, path, branch = draw.word(), f"{draw.word()}.txt", draw.name()
    shared = [draw.line() for _ in range(4 + draw.level)]
    at = draw.number(1, 3)
    ours, theirs = draw.line(), draw.line()
    both = draw.choice((True, False))

    def text(*middle: str) -> str:
        return "".join(f"{line}\n" for line in [*shared[:at], *middle, *shared[at + 1 :]])

    other = f"{draw.word()}.txt"
    extra = draw.text(2)
    start = (f"Begin {draw.name()}", {path: text(shared[at])})
    on_main = (f"Change {draw.name()}", {path: text(ours)})
    on_branch = (f"Change {draw.name()}", {path: text(theirs), other: extra})
    rule = (
        "keep both lines, that of main first" if both else f"take the line of {branch}, without that of main"
    )
    merged = text(ours, theirs) if both else text(theirs)
    return Problem(
        prompt=f"In the git repository {repo}, merge the branch {branch} into main by a merge commit. Where"
        f" they disagree, {rule}.",
        setup=_begin(repo, draw)
        + _commits(start)
        + f"git checkout -q -b {branch}\n"
        + _commits(on_branch)
        + "git checkout -q main\n"
        + _commits(on_main),
        checks=(
            Content(f"{repo}/{path}", merged),
            _repository(
                repo,
                {
                    "log --format=%s main^1": _subjects([start, on_main]),
                    "log --format=%s main^2": _subjects([start, on_branch]),
                    f"log --format=%s {branch}": _subjects([start, on_branch]),
                    "ls-tree -r --name-only main": "\n".join(sorted([path, other])),
                    f"cat-file blob main:{path}": merged.rstrip("\n"),
                    f"cat-file blob main:{other}": extra.rstrip("\n"),
                },
            ),
        ),
        solution=f"cd {repo}; git merge -q {branch} >/dev/null; sed -i "
        + (
            "-e '/^<<<<<<</d; /^=======/d; /^>>>>>>>/d'"
            if both
            else "-e '/^<<<<<<</,/^=======/d; /^>>>>>>>/d'"
        )
        + f" {path}; git commit -qam 'Merge {branch}'",
    )


def revert_commit(draw: Draw) -> Problem:
    repo = draw.word()
    paths = [f"{word}.txt" for word in draw.words(2 + draw.level)]
    commits = _history(draw, len(paths), paths)  # each file is changed once, so that nothing conflicts
    bad = draw.number(1, len(paths) - 1)
    subject, (path,) = commits[bad][0], commits[bad][1]
    after = _after(commits) | {path: str(commits[0][1][path])}
    return Problem(
        prompt=f"In the git repository {repo}, undo the commit '{subject}' by a new commit on main. The"
        " history must stay as it is, with the new commit on top of it.",
        setup=_begin(repo, draw) + _commits(*commits),
        checks=(
            Content(f"{repo}/{path}", after[path]),
            _repository(
                repo,
                {
                    "log --format=%s main^": _subjects(commits),
                    "ls-tree -r --name-only main": "\n".join(sorted(after)),
                    **{f"cat-file blob main:{each}": text.rstrip("\n") for each, text in after.items()},
                },
            ),
        ),
        solution=f"cd {repo}; git revert --no-edit $(git log --format=%H --grep='{subject}') >/dev/null",
    )


def tag_commit(draw: Draw) -> Problem:
    repo, branch = draw.word(), draw.name()
    tag = f"v{draw.number(1, 9)}.{draw.number(0, 20)}.{draw.number(0, 20)}"
    message = f"Release {draw.name()}"
    commits = _history(draw, 3 + 2 * draw.level, [f"{word}.txt" for word in draw.words(3)])
    at = draw.number(1, len(commits) - 2)
    return Problem(
        prompt=f"In the git repository {repo}, give the commit '{commits[at][0]}' an annotated tag {tag}"
        f" with the message '{message}', and make a branch {branch} that points to it. main stays checked"
        " out.",
        setup=_begin(repo, draw) + _commits(*commits),
        checks=(
            Content(f"{repo}/.git/HEAD", "ref: refs/heads/main"),
            _repository(
                repo,
                {
                    f"cat-file -t {tag}": "tag",
                    f"for-each-ref --format='%(contents:subject)' refs/tags/{tag}": message,
                    f"log --format=%s {tag}": _subjects(commits[: at + 1]),
                    f"log --format=%s refs/heads/{branch}": _subjects(commits[: at + 1]),
                    "log --format=%s main": _subjects(commits),
                },
            ),
        ),
        solution=f"cd {repo}; c=$(git log --format=%H --grep='{commits[at][0]}'); git tag -a {tag} -m"
        f" '{message}' $c;"
        f" git branch {branch} $c",
    )


def squash(draw: Draw) -> Problem:
    repo, subject = draw.word(), f"Rework {draw.name()}"
    commits = _history(draw, 4 + 2 * draw.level, [f"{word}.txt" for word in draw.words(3)])
    count = draw.number(2, 2 + draw.level)
    after = _after(commits)
    return Problem(
        prompt=f"In the git repository {repo}, make one commit of the last {count} commits of main, with"
        f" the message '{subject}'. The files and the commits before stay as they are.",
        setup=_begin(repo, draw) + _commits(*commits),
        checks=(
            _repository(
                repo,
                {
                    "log --format=%s main": f"{subject}\n{_subjects(commits[:-count])}",
                    "ls-tree -r --name-only main": "\n".join(sorted(after)),
                    **{f"cat-file blob main:{path}": text.rstrip("\n") for path, text in after.items()},
                },
            ),
        ),
        solution=f"cd {repo}; git reset -q --soft HEAD~{count}; git commit -qm '{subject}'",
    )


def pick_commit(draw: Draw) -> Problem:
    repo, branch = draw.word(), draw.name()
    paths = [f"{word}.txt" for word in draw.words(2)]
    commits = _history(draw, draw.level, paths)
    others: list[Commit] = [
        (f"Try {draw.name()}", {f"{draw.word()}.txt": draw.text(2)}) for _ in range(2 + draw.level)
    ]
    picked = draw.choice(others[:-1])
    after = _after([*commits, picked])
    return Problem(
        prompt=f"In the git repository {repo}, the branch {branch} has several commits that main lacks."
        f" Bring the one with the subject '{picked[0]}' to main, with its subject and none of the others."
        f" The branch {branch} stays as it is.",
        setup=_begin(repo, draw)
        + _commits(*commits)
        + f"git checkout -q -b {branch}\n"
        + _commits(*others)
        + "git checkout -q main\n",
        checks=(
            _repository(
                repo,
                {
                    "log --format=%s main": _subjects([*commits, picked]),
                    f"log --format=%s {branch}": _subjects([*commits, *others]),
                    "ls-tree -r --name-only main": "\n".join(sorted(after)),
                    **{f"cat-file blob main:{path}": text.rstrip("\n") for path, text in after.items()},
                },
            ),
        ),
        solution=f"cd {repo}; git cherry-pick $(git log --format=%H --grep='{picked[0]}' {branch})"
        " >/dev/null",
    )


TEMPLATES = templates(
    "git",
    commit_with_ignored,
    restore_deleted,
    who_wrote_it,
    resolve_conflict,
    revert_commit,
    tag_commit,
    squash,
    pick_commit,
)
