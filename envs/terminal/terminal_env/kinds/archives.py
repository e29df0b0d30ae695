"""Archives: pack, unpack, convert, check."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import tarfile
import zipfile
from collections.abc import Mapping
from itertools import pairwise

from ..checks import Absent, Content, Printed, Tree
from ..draw import Draw
from ..problem import Problem, templates

__all__ = ["TEMPLATES"]

_LISTING = """\
import hashlib, sys, tarfile, zipfile
path, form = sys.argv[1:]
found = []
if form == "zip":
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if not entry.is_dir():
                found.append((entry.filename, archive.open(entry).read(1 << 20)))
else:
    with tarfile.open(path, "r:" + form) as archive:
        for entry in archive:
            if not entry.isdir():
                content = archive.extractfile(entry).read(1 << 20) if entry.isreg() else b"no plain file"
                found.append((entry.name, content))
for name, content in sorted(found):
    print(name.removeprefix("./"), hashlib.sha256(content).hexdigest())
"""
"""Prints names and digests. It unpacks nothing, and reads a bounded part of each entry."""

_DATE = (2024, 1, 2, 3, 4, 6)


def _tar(files: Mapping[str, str | bytes], form: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            raw = content if isinstance(content, bytes) else content.encode()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(raw), 1_704_164_646, 0o644
            archive.addfile(entry, io.BytesIO(raw))
    return _compressed(packed.getvalue(), form)


def _compressed(content: bytes, form: str) -> bytes:
    match form:
        case "gz":
            return gzip.compress(content, mtime=0)
        case "bz2":
            return bz2.compress(content)
        case "xz":
            return lzma.compress(content)
    return content


def _zip(files: Mapping[str, str | bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, _DATE), content)
    return packed.getvalue()


def _holds(archive: str, form: str, files: Mapping[str, str]) -> Printed:
    return Printed(
        f"python3 -I /grader/listing.py {archive} {form}",
        "\n".join(
            f"{name} {hashlib.sha256(text.encode()).hexdigest()}" for name, text in sorted(files.items())
        ),
        artifacts=(archive,),
        files={"/grader/listing.py": _LISTING},
    )


def _folder(draw: Draw, files: int) -> dict[str, str]:
    folders = ["", *(f"{word}/" for word in draw.words(2))]
    return {f"{draw.choice(folders)}{draw.word()}.txt": draw.text(2) for _ in range(files)}


def pack(draw: Draw) -> Problem:
    top, form = draw.word(), draw.choice(("gz", "bz2", "xz"))
    suffix = draw.choice(("tmp", "log", "swp"))
    archive = f"{draw.word()}.tar.{form}"
    files = _folder(draw, draw.size(4, 5))
    noise = {f"{name}.{suffix}": draw.text(1) for name in draw.sample(sorted(files), 2)}
    flags = {"gz": "z", "bz2": "j", "xz": "J"}
    everything = files | noise
    return Problem(
        prompt=f"Pack the folder {top} into {archive} (tar, compressed as its name says), without files"
        f" whose names end in .{suffix}. Names in the archive begin with {top}/. Leave {top} as it is.",
        files={f"{top}/{name}": text for name, text in everything.items()},
        checks=(
            Tree(top, everything),
            _holds(archive, form, {f"{top}/{name}": text for name, text in files.items()}),
        ),
        solution=f"tar -c{flags[form]}f {archive} --exclude='*.{suffix}' {top}",
    )


def unpack_nested(draw: Draw) -> Problem:
    answer, wanted = f"{draw.word()}.txt", f"{draw.word()}.txt"
    text = draw.text(2)
    forms = [draw.choice(("zip", "gz", "bz2", "xz")) for _ in range(1 + draw.level)]
    content: str | bytes = text
    name = wanted
    for form in forms:
        others = {f"{draw.word()}.txt": draw.text(1) for _ in range(2)}
        folder = draw.word()
        files: dict[str, str | bytes] = {f"{folder}/{name}": content} | dict(others)
        content = _zip(files) if form == "zip" else _tar(files, form)
        name = f"{draw.word()}.{'zip' if form == 'zip' else f'tar.{form}'}"
    return Problem(
        prompt=f"The archive {name} holds an archive, and so on; the innermost holds a file {wanted}. Write"
        f" the content of that file to {answer}.",
        files={name: content},
        checks=(Content(answer, text),),
        solution="mkdir .deep && cd .deep && cp ../" + name + " .\n"
        "for _ in 1 2 3 4 5; do\n"
        "  find . -name '*.zip' -exec python3 -m zipfile -e {} . \\; -delete\n"
        "  find . -name '*.tar.*' -exec tar -xf {} \\; -delete\ndone\n"
        f"cd ..; cp $(find .deep -name {wanted}) {answer}; rm -r .deep",
    )


def extract_one(draw: Draw) -> Problem:
    top, target = draw.words(2)
    wanted = f"{draw.name()}.cfg"
    text = draw.text(2)
    folders = draw.words(3)
    archives: dict[str, str | bytes] = {}
    holders = draw.size(3, 4)
    right = draw.number(0, holders - 1)
    for at in range(holders):
        files: dict[str, str | bytes] = {
            f"{draw.choice(folders)}/{name}.cfg": draw.text(1) for name in draw.names(4)
        }
        files[f"{wanted}/{draw.word()}.txt"] = draw.text(1)  # a folder of that name
        if at == right:
            files[f"{draw.choice(folders)}/{wanted}"] = text
        archives[f"{draw.name()}.tar.gz"] = _tar(files, "gz")
    return Problem(
        prompt=f"One of the archives in {top} has a file (not a folder) with the name {wanted}. Put that"
        f" file, and nothing else, into a new folder {target}, as {target}/{wanted}.",
        files={f"{top}/{name}": content for name, content in archives.items()},
        checks=(Tree(target, {wanted: text}),),
        solution=f"mkdir {target}; for a in {top}/*; do m=$(tar -tzf $a | grep '/{wanted}$');"
        f' [ -n "$m" ] && tar -xzOf $a "$m" > {target}/{wanted}; done; true',
    )


def convert(draw: Draw) -> Problem:
    source = draw.word()
    form = draw.choice(("gz", "bz2", "xz"))
    target = f"{draw.word()}.tar.{form}"
    files = _folder(draw, draw.size(3, 5))
    to_zip = draw.choice((True, False))
    packed = dict(files)
    old, new = f"{source}.zip", target
    if to_zip:
        old, new = target, f"{source}.zip"
    pack = (
        'python3 -c \'import os, sys, zipfile; z = zipfile.ZipFile(sys.argv[1], "w"); '
        '[z.write(os.path.join(p, n)) for p, _, ns in os.walk(".") for n in ns]; z.close()\' ../' + new
        if to_zip
        else f"tar -c{ {'gz': 'z', 'bz2': 'j', 'xz': 'J'}[form] }f ../{new} *"
    )
    return Problem(
        prompt=f"Convert the archive {old} to {new} (its name says how it is packed): the same files, with"
        f" the same paths and contents, and no others. Remove {old} afterwards.",
        files={old: _tar(packed, form) if to_zip else _zip(packed)},
        checks=(Absent((old,)), _holds(new, "zip" if to_zip else form, files)),
        solution="mkdir .all && cd .all &&"
        f" {f'tar -xf ../{old}' if to_zip else f'python3 -m zipfile -e ../{old} .'}"
        f" && {pack} && cd .. && rm -r .all {old}",
    )


def find_damaged(draw: Draw) -> Problem:
    top, answer = draw.word(), f"{draw.word()}.txt"
    names = [f"{name}.gz" for name in draw.names(draw.size(4, 5))]
    damaged = sorted(draw.sample(names, 1 + draw.level))
    files: dict[str, str | bytes] = {}
    for name in names:
        content = bytearray(gzip.compress(draw.text(8).encode(), mtime=0))
        if name in damaged:
            if draw.choice((True, False)):
                content[-8] ^= 1 + draw.number(0, 200)  # its checksum
            else:
                del content[-draw.number(9, 40) :]
        files[f"{top}/{name}"] = bytes(content)
    return Problem(
        prompt=f"Some of the gzip files in {top} are damaged. Move them, as they are, to a new folder"
        f" {top}/damaged, and write their names to {answer}, one a line, in byte order (LC_ALL=C).",
        files=files,
        checks=(
            Content(answer, "\n".join(damaged)),
            Tree(
                top,
                {f"damaged/{name}" if name in damaged else name: files[f"{top}/{name}"] for name in names},
            ),
        ),
        solution=f"cd {top}; mkdir damaged; for f in *.gz; do gzip -t $f 2>/dev/null || mv $f damaged/; done;"
        f" (cd damaged; ls | LC_ALL=C sort) > ../{answer}",
    )


def join_parts(draw: Draw) -> Problem:
    top, answer = draw.word(), f"{draw.word()}.bin"
    whole = draw.random.randbytes(draw.size(2000, 3000))
    count = draw.number(4, 6)
    cuts = [0, *sorted(draw.sample(range(1, len(whole)), count - 1)), len(whole)]
    parts = [whole[begin:end] for begin, end in pairwise(cuts)]
    names = [f"{name}.part" for name in draw.names(count)]
    order = "".join(
        f"{hashlib.sha256(part).hexdigest()}  part {at}\n" for at, part in enumerate(parts, start=1)
    )
    wrong = {f"{name}.part": draw.random.randbytes(len(parts[0])) for name in draw.names(draw.level)}
    files: dict[str, str | bytes] = {f"{top}/ORDER": order}
    mixed = draw.shuffled([*zip(names, parts, strict=True), *wrong.items()])
    files |= {f"{top}/{name}": content for name, content in mixed}
    return Problem(
        prompt=f"{top} has the parts of a file, and parts that do not belong to it. {top}/ORDER lists the"
        f" SHA-256 of each part in the order of the file. Put the file together as {answer}.",
        files=files,
        checks=(Content(answer, whole),),
        solution=f"while read -r sum _; do cat $(sha256sum {top}/*.part | awk -v s=$sum '$1 == s {{print"
        f" $2}}');"
        f" done < {top}/ORDER > {answer}",
    )


def verify_sums(draw: Draw) -> Problem:
    top, answer = draw.word(), f"{draw.word()}.txt"
    files = _folder(draw, draw.size(5, 6))
    names = sorted(files)
    changed, missing = draw.sample(names, 2)
    added = f"{draw.word()}.txt"
    sums = "".join(
        f"{hashlib.sha256(files[name].encode()).hexdigest()}  {name}\n" for name in draw.shuffled(names)
    )
    after = {name: text for name, text in files.items() if name != missing}
    after |= {changed: draw.text(2), added: draw.text(2)}
    archive = f"{draw.word()}.tar.gz"
    return Problem(
        prompt=f"{archive} should hold the files that SHA256SUMS lists. Write three lines to {answer}:"
        " `changed NAME` for the file with another content, `missing NAME` for the one that the archive"
        " lacks, `added NAME` for the one that is not in the list; names are those in the archive.",
        files={archive: _tar(after, "gz"), "SHA256SUMS": sums},
        checks=(Content(answer, f"changed {changed}\nmissing {missing}\nadded {added}"),),
        solution=f"mkdir {top}; tar -xzf {archive} -C {top}; cd {top}\n"
        "sha256sum -c ../SHA256SUMS 2>/dev/null | sed -n 's/\\(.*\\): FAILED$/changed \\1/p' > ../out\n"
        "(find . -type f -printf '%P\\n' | sort) > ../have; (cut -c67- ../SHA256SUMS | sort) > ../want; cd"
        " ..\n"
        "comm -13 have want | sed 's/^/missing /' >> out; comm -23 have want | sed 's/^/added /' >> out\n"
        f"mv out {answer}; rm -r {top} have want",
    )


TEMPLATES = templates(
    "archives",
    pack,
    unpack_nested,
    extract_one,
    convert,
    find_damaged,
    join_parts,
    verify_sums,
)
