"""Files: rename, move, find, remove."""

from __future__ import annotations

import posixpath

from ..checks import Content, Links, Tree
from ..draw import Draw
from ..problem import Problem, templates

__all__ = ["TEMPLATES"]

_EXTENSIONS = ("txt", "csv", "json", "dat", "rec", "yml", "ini", "bak")


def _placed(root: str, files: dict[str, str]) -> dict[str, str]:
    return {posixpath.join(root, name): content for name, content in files.items()}


def change_extension(draw: Draw) -> Problem:
    top = draw.word()
    old, new, other = draw.sample(_EXTENSIONS, 3)
    files: dict[str, str] = {}
    for folder in ["", *draw.words(draw.size(1, 2))]:
        for _ in range(3):
            files[posixpath.join(folder, f"{draw.word()}.{old}")] = draw.text()
        files[posixpath.join(folder, f"{draw.word()}.{other}")] = draw.text()
        files[posixpath.join(folder, f"{draw.word()}.{old}.{other}")] = draw.text()
    after = {
        name.removesuffix(old) + new if name.endswith(f".{old}") else name: content
        for name, content in files.items()
    }
    return Problem(
        prompt=f"Rename every file below {top} whose name ends in .{old}, in all folders: it must end in"
        f" .{new} instead. Leave all other files and all contents as they are.",
        files=_placed(top, files),
        checks=(Tree(top, after),),
        solution=f"find {top} -type f -name '*.{old}' | while read -r f;"
        f' do mv "$f" "${{f%.{old}}}.{new}"; done',
    )


def sort_by_extension(draw: Draw) -> Problem:
    top = draw.word()
    files = {
        f"{draw.name().replace('-', ' ')}.{extension}": draw.text(2)
        for extension in draw.sample(_EXTENSIONS, 2 + draw.level)
        for _ in range(draw.number(2, 4))
    }
    return Problem(
        prompt=f"Sort the files in {top} into folders: each goes to a folder in {top} that is named after"
        f" its extension, so that {top}/x.csv becomes {top}/csv/x.csv. Some names have blanks.",
        files=_placed(top, files),
        checks=(Tree(top, {f"{name.rpartition('.')[2]}/{name}": text for name, text in files.items()}),),
        solution=f'cd {top}; for f in *.*; do mkdir -p "${{f##*.}}"; mv "$f" "${{f##*.}}/"; done',
    )


def largest_files(draw: Draw) -> Problem:
    top, answer = draw.word(), f"{draw.word()}.txt"
    count = draw.number(2, 3)
    names = [f"{draw.word()}/{name}.bin" for name in draw.names(draw.size(5, 7))]
    sizes = dict(zip(names, draw.sample(range(200, 9000), len(names)), strict=True))
    largest = sorted(sizes, key=lambda name: -sizes[name])[:count]
    return Problem(
        prompt=f"Find the {count} largest files below {top} (by their size in bytes), and write their paths"
        f" to {answer}, largest first, one a line, relative to {top}.",
        files=_placed(top, {name: "x" * size for name, size in sizes.items()}),
        checks=(Content(answer, "\n".join(largest)),),
        solution=f"find {top} -type f -printf '%s %P\\n' | sort -rn | head -{count} | cut -d' ' -f2 >"
        f" {answer}",
    )


def remove_duplicates(draw: Draw) -> Problem:
    top = draw.word()
    files: dict[str, str] = {}
    kept: dict[str, str] = {}
    for _ in range(draw.size(3, 4)):
        text = draw.text(2)
        copies = sorted(f"{draw.name()}.txt" for _ in range(draw.number(1, 3)))
        files |= dict.fromkeys(copies, text)
        kept[copies[0]] = text
    return Problem(
        prompt=f"Some files in {top} have the same content. Of each group of equal files keep the one whose"
        " name is the first in alphabetical order (as LC_ALL=C sorts), and remove the others.",
        files=_placed(top, {name: files[name] for name in draw.shuffled(sorted(files))}),
        checks=(Tree(top, kept),),
        solution=f"cd {top}; LC_ALL=C ls | LC_ALL=C sort | xargs md5sum | awk 'seen[$1]++ {{print $2}}' |"
        " xargs -r rm",
    )


def flatten(draw: Draw) -> Problem:
    top, target = draw.words(2)
    mark = draw.choice(("__", "--", "."))
    files: dict[str, str] = {}
    for _ in range(draw.size(3, 4)):
        folders = "/".join(draw.words(draw.number(1, 3)))
        files[f"{folders}/{draw.choice(('notes', 'data', 'index'))}.txt"] = draw.text(2)
    return Problem(
        prompt=f"Copy every file below {top} into the folder {target}, without folders in it: the name of a"
        f" copy is the path of the file in {top} with '{mark}' in place of each '/'. Leave {top} as it is.",
        files=_placed(top, files),
        checks=(
            Tree(target, {name.replace("/", mark): text for name, text in files.items()}),
            Tree(top, files),
        ),
        solution=f"mkdir -p {target}; (cd {top} && find . -type f -printf '%P\\n') | while read -r f;"
        f' do cp "{top}/$f" "{target}/${{f//\\//{mark}}}"; done',
    )


def prune_empty(draw: Draw) -> Problem:
    top = draw.word()
    full = {f"{draw.word()}/{draw.word()}.txt": draw.text(1) for _ in range(draw.size(2, 3))}
    full |= {f"{posixpath.dirname(name)}/{draw.word()}/{draw.word()}.md": draw.text(1) for name in full}
    empty = [f"{draw.choice(sorted(full)).partition('/')[0]}/{draw.word()}.txt" for _ in range(3)]
    empty += [f"{'/'.join(draw.words(2))}/{draw.word()}.log" for _ in range(2)]
    hollow = [f"{top}/{'/'.join(draw.words(draw.number(1, 3)))}" for _ in range(draw.size(1, 2))]
    return Problem(
        prompt=f"Remove all empty files below {top}, then all folders below it in which nothing is left,"
        " also those that hold only such folders. Keep everything else.",
        files=_placed(top, full | dict.fromkeys(empty, "")),
        setup=f"mkdir -p {' '.join(hollow)}",
        checks=(Tree(top, full),),
        solution=f"find {top} -type f -empty -delete; find {top} -mindepth 1 -type d -empty -delete",
    )


def remove_old(draw: Draw) -> Problem:
    top = draw.word()
    year, month, day = draw.number(2015, 2022), draw.number(1, 12), draw.number(1, 28)
    limit = f"{year}-{month:02}-{day:02}"
    files = {f"{draw.word()}/{name}.log": draw.text(1) for name in draw.names(draw.size(5, 6))}
    dates = {
        name: f"{year + draw.choice((-1, 0, 0, 1))}-{draw.number(1, 12):02}-{draw.number(1, 28):02}"
        for name in files
    }
    first, last = next(iter(files)), list(files)[-1]
    dates[first], dates[last] = f"{year - 1}-12-31", limit
    return Problem(
        prompt=f"Remove all files below {top} that were last changed before {limit} (the beginning of that"
        " day, UTC), and keep the others with their content. Folders may stay or go.",
        files=_placed(top, files),
        setup="\n".join(f"touch -d '{date} 00:00:01 UTC' {top}/{name}" for name, date in dates.items()),
        checks=(
            Tree(
                top,
                {name: text for name, text in files.items() if dates[name] >= limit},
                may_have=frozenset(posixpath.dirname(name) for name in files),
            ),
        ),
        solution=f"find {top} -type f ! -newermt '{limit} 00:00:00 UTC' -delete",
    )


def switch_release(draw: Draw) -> Problem:
    top, link = draw.word(), draw.choice(("current", "live", "active"))
    versions = [f"{draw.number(1, 9)}.{draw.number(0, 30)}.{at}" for at in range(4 + draw.size(2, 4))]
    marks = {version: draw.line() for version in versions}
    wanted, before = draw.sample(versions, 2)
    return Problem(
        prompt=f"{top}/releases has several releases, and the link {top}/{link} leads to one of them. Have"
        f" the link lead to the release whose file BUILD contains '{marks[wanted]}', with a target of the"
        " form releases/VERSION. Leave the releases as they are.",
        files={f"{top}/releases/{version}/BUILD": f"{mark}\n" for version, mark in marks.items()},
        setup=f"ln -s releases/{before} {top}/{link}",
        checks=(
            Links(f"{top}/{link}", f"releases/{wanted}", "BUILD", marks[wanted]),
            Tree(f"{top}/releases", {f"{version}/BUILD": mark for version, mark in marks.items()}),
        ),
        solution=f'cd {top}; ln -sfn "$(dirname "$(grep -lF \'{marks[wanted]}\' releases/*/BUILD)")" {link}',
    )


TEMPLATES = templates(
    "files",
    change_extension,
    sort_by_extension,
    largest_files,
    remove_duplicates,
    flatten,
    prune_empty,
    remove_old,
    switch_release,
)
