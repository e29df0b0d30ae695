"""Permissions: modes, owners and groups of files."""

from __future__ import annotations

import posixpath

from ..checks import Content, Modes, Owners, Tree
from ..draw import Draw
from ..problem import Problem, templates

__all__ = ["TEMPLATES"]


def _files(draw: Draw, folders: int, suffixes: tuple[str, ...]) -> dict[str, str]:
    """Files of each suffix in each of these folders, and in none."""
    return {
        posixpath.join(folder, f"{draw.word()}{suffix}"): draw.text(1)
        for folder in ["", *draw.words(folders)]
        for suffix in suffixes
    }


def _placed(top: str, files: dict[str, str]) -> dict[str, str | bytes]:
    return {f"{top}/{name}": text for name, text in files.items()}


def _folders(files: dict[str, str]) -> list[str]:
    return sorted({posixpath.dirname(name) for name in files} - {""})


def _modes(top: str, modes: dict[str, int]) -> str:
    return "\n".join(f"chmod {mode:o} '{top}/{name}'" for name, mode in modes.items())


def set_modes(draw: Draw) -> Problem:
    top = draw.word()
    files = _files(draw, draw.size(1, 2), (".sh", ".txt", ".key"))
    programs, others, folders = draw.choice(
        ((0o755, 0o644, 0o755), (0o750, 0o640, 0o750), (0o700, 0o600, 0o711), (0o555, 0o444, 0o755))
    )
    before = {name: draw.choice((0o600, 0o664, 0o777)) for name in files}
    after = {name: programs if name.endswith(".sh") else others for name in files}
    return Problem(
        prompt=f"Set the permissions of everything in {top}: files whose names end in .sh get {programs:o},"
        f" all other files {others:o}, and all folders, {top} too, {folders:o}.",
        files=_placed(top, files),
        setup=_modes(top, before),
        checks=(
            Modes(top, after | dict.fromkeys(["", *_folders(files)], folders)),
            Tree(top, files),
        ),
        solution=f"find {top} -type f -name '*.sh' -exec chmod {programs:o} {{}} +\n"
        f"find {top} -type f ! -name '*.sh' -exec chmod {others:o} {{}} +\n"
        f"find {top} -type d -exec chmod {folders:o} {{}} +",
    )


def close_to_others(draw: Draw) -> Problem:
    top, answer = draw.word(), f"{draw.word()}.txt"
    files = _files(draw, draw.size(2, 3), (".txt", ".dat"))
    before = {name: draw.choice((0o644, 0o640, 0o755, 0o444)) for name in files}
    open_ones = draw.sample(sorted(files), 2 + draw.level)
    before |= {name: draw.choice((0o666, 0o777, 0o602, 0o646)) for name in open_ones}
    return Problem(
        prompt=f"Some files in {top} may be written by everybody. Take that permission from others, and no"
        f" other permission from anybody, and write the paths of these files to {answer}, one a line,"
        f" relative to {top}, in byte order (LC_ALL=C).",
        files=_placed(top, files),
        setup=_modes(top, before),
        checks=(
            Content(answer, "\n".join(sorted(open_ones))),
            Modes(top, {name: mode & ~0o002 for name, mode in before.items()}),
            Tree(top, files),
        ),
        solution=f"find {top} -type f -perm -o+w -printf '%P\\n' | LC_ALL=C sort > {answer}\n"
        f"find {top} -type f -perm -o+w -exec chmod o-w {{}} +",
    )


def hand_over(draw: Draw) -> Problem:
    top = draw.word()
    people = draw.words(3)
    numbers = draw.sample(range(1500, 1900), 3)
    old, new, other = numbers
    files = _files(draw, draw.size(2, 2), (".txt", ".csv", ".md"))
    owners = {name: draw.choice((old, other, 0)) for name in files}
    owners |= dict(zip(draw.sample(sorted(files), 3), numbers, strict=True))
    groups = dict(zip([*numbers, 0], [*numbers, 0], strict=True))
    return Problem(
        prompt=f"The user {people[0]} leaves: all files in {top} that belong to {people[0]} must belong to"
        f" {people[1]}, and to the group {people[1]}. Files of others stay as they are, and so do contents"
        " and permissions.",
        files=_placed(top, files),
        setup="\n".join(
            [
                *(
                    f"groupadd -g {number} {name}; useradd -M -u {number} -g {number} {name}"
                    for name, number in zip(people, numbers, strict=True)
                ),
                *(f"chown {owner}:{groups[owner]} '{top}/{name}'" for name, owner in owners.items()),
                f"chmod 640 {' '.join(f'{top}/{name}' for name in files)}",
            ]
        ),
        checks=(
            Owners(
                top,
                {
                    name: (new, new) if owner == old else (owner, groups[owner])
                    for name, owner in owners.items()
                },
            ),
            Modes(top, dict.fromkeys(files, 0o640)),
            Tree(top, files),
        ),
        solution=f"find {top} -type f -user {people[0]} -exec chown {people[1]}:{people[1]} {{}} +",
    )


def share_folder(draw: Draw) -> Problem:
    top, group = draw.words(2)
    number = draw.number(2000, 2900)
    files = _files(draw, draw.size(1, 2), (".txt", ".md"))
    folders = ["", *_folders(files)]
    return Problem(
        prompt=f"The members of the group {group} share the folder {top}: it and everything in it must"
        " belong to that group (its user stays). Folders: all permissions for user and group, none for"
        " others, and new files in them must get the group of the folder. Files: user and group may read"
        " and write, others nothing.",
        files=_placed(top, files),
        setup=f"groupadd -g {number} {group}",
        checks=(
            Owners(top, dict.fromkeys([*folders, *files], (0, number))),
            Modes(top, dict.fromkeys(folders, 0o2770) | dict.fromkeys(files, 0o660)),
            Tree(top, files),
        ),
        solution=f"chgrp -R {group} {top}; find {top} -type d -exec chmod 2770 {{}} +;"
        f" find {top} -type f -exec chmod 660 {{}} +",
    )


def protect_keys(draw: Draw) -> Problem:
    top = draw.word()
    kinds = ("RSA", "EC", "OPENSSH")
    secret: dict[str, str] = {}
    public: dict[str, str] = {}
    for folder in draw.words(draw.size(2, 2)):
        for name in draw.names(2):
            kind = draw.choice(kinds)
            body = f"{draw.code()}{draw.code()}"
            secret[f"{folder}/{name}"] = (
                f"-----BEGIN {kind} PRIVATE KEY-----\n{body}\n-----END {kind} PRIVATE KEY-----\n"
            )
            if draw.choice((True, False)):
                public[f"{folder}/{name}.pub"] = f"ssh-rsa {draw.code()} {name}\n"
        public[f"{folder}/{draw.name()}"] = f"The PRIVATE KEY is elsewhere: {draw.line(2)}\n"
    files = secret | public
    before = {name: draw.choice((0o644, 0o664, 0o640)) for name in files}
    return Problem(
        prompt=f"{top} has private keys among other files: a private key is a file whose first line is"
        " `-----BEGIN ... PRIVATE KEY-----`, whatever its name is. Only their user may read and write"
        " private keys (600). The permissions of all other files stay as they are.",
        files=_placed(top, files),
        setup=_modes(top, before),
        checks=(Modes(top, before | dict.fromkeys(secret, 0o600)), Tree(top, files)),
        solution=f"find {top} -type f | while read -r f; do head -1 $f | grep -qE '^-----BEGIN .*PRIVATE"
        " KEY-----$'"
        " && chmod 600 $f; done; true",
    )


def clear_setuid(draw: Draw) -> Problem:
    top, answer = draw.word(), f"{draw.word()}.txt"
    files = _files(draw, draw.size(2, 3), ("", ".bin"))
    before = {name: draw.choice((0o755, 0o750, 0o711)) for name in files}
    special = draw.sample(sorted(files), 2 + draw.level)
    before |= {
        name: mode | draw.choice((0o4000, 0o2000, 0o6000)) for name, mode in before.items() if name in special
    }
    keep = special[0]
    before[keep] = 0o4755
    found = [name for name in special if name != keep]
    return Problem(
        prompt=f"Files in {top} have the setuid or the setgid bit, or both. Remove these bits from all of"
        f" them but {top}/{keep}, and write the paths of those that you changed to {answer}, one a line,"
        f" relative to {top}, in byte order (LC_ALL=C). All other permissions stay as they are.",
        files=_placed(top, files),
        setup=_modes(top, before),
        checks=(
            Content(answer, "\n".join(sorted(found))),
            Modes(top, {name: mode if name == keep else mode & 0o777 for name, mode in before.items()}),
            Tree(top, files),
        ),
        solution=f"cd {top}; find . -type f -perm /6000 ! -path ./{keep} -printf '%P\\n' | LC_ALL=C sort >"
        f" ../{answer};"
        f" xargs chmod u-s,g-s < ../{answer}",
    )


TEMPLATES = templates(
    "permissions",
    set_modes,
    close_to_others,
    hand_over,
    share_folder,
    protect_keys,
    clear_setuid,
)
