"""Which files go into an image, and how they are packed."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest
from docker.utils.build import exclude_paths
from orsay.errors import LoadError
from orsay.packaging.context import read, tar
from orsay.packaging.ignore import Patterns, line_for
from orsay.packaging.project import Project
from orsay.packaging.project import read as read_project

TREE = (
    *(
        "Dockerfile",
        "env.py",
        "README.md",
        "a/b.txt",
        "a/b/c.txt",
        "a/x/c.txt",
        "docs/a.md",
        "docs/deep/b.md",
    ),
    *("temp1", "tempa/f", "a/temp1", "[odd]", "sp ace.txt", "x.pyc.txt", "deep/er/est/file.md"),
)
IGNORED = (
    ["*.md"],
    ["**/*.md"],
    ["*.md", "!README.md"],
    ["**/*.md", "!docs/deep/*.md"],
    ["docs", "!docs/deep/b.md"],
    ["/a/b"],
    ["./a//b/"],
    ["a/*/c.txt"],
    ["temp?"],
    ["*/temp*"],
    ["**", "!env.py", "!a/**"],
    ["*", "!docs", "docs/deep"],
    ["temp[0-9]"],
    ["deep/**/file.md"],
    ["**/est"],
    ["", "   ", "# README.md", "a/b.txt   "],
    ["sp ace.txt"],
)


def project(folder: Path) -> Project:
    (folder / "Dockerfile").write_text("FROM scratch\n")
    return read_project(folder)


def write(folder: Path, *places: str) -> None:
    for place in places:
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(place)


@pytest.mark.parametrize("lines", IGNORED, ids=" ".join)
def test_dockerignore_is_read_as_docker_reads_it(tmp_path: Path, lines: list[str]) -> None:
    write(tmp_path, *TREE)
    patterns = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    kept = {path for path in exclude_paths(str(tmp_path), patterns) if (tmp_path / path).is_file()}
    (tmp_path / ".dockerignore").write_text("\n".join(lines))
    found = set(read(read_project(tmp_path)).files)
    always = {"Dockerfile", ".dockerignore"}  # the engine's client sends these whatever the patterns say
    assert found - always == kept - always


def test_a_class_of_letters_may_be_turned_round() -> None:
    patterns = Patterns(["temp[^0-9]"])
    assert (patterns.verdict("tempa/f"), patterns.verdict("temp1")) == (True, None)


def test_clutter_stays_out_without_a_word(tmp_path: Path) -> None:
    write(tmp_path, "env.py", ".git/config", "pkg/__pycache__/env.pyc", ".venv/bin/python", "a/.mypy_cache/x")
    write(tmp_path, "mine/pyvenv.cfg", "mine/lib/x.py", "x.egg-info/PKG-INFO")
    contents = read(project(tmp_path))
    assert set(contents.files) == {"Dockerfile", "env.py"}
    assert contents.left_out == () == contents.ignored


def test_secrets_stay_out_with_a_note_unless_a_line_lets_them_in(tmp_path: Path) -> None:
    secrets = (".env", "pkg/.env.local", "server.pem", "keys/id_rsa", ".ssh/config", "credentials.json")
    write(tmp_path, "env.py", ".env.example", "keys/id_rsa.pub", "keyboard.py", *secrets)
    contents = read(project(tmp_path))
    assert set(contents.files) == {"Dockerfile", "env.py", ".env.example", "keys/id_rsa.pub", "keyboard.py"}
    assert set(contents.secrets) == set(secrets)
    assert {each.reason for each in contents.left_out} == {"looks like a secret"}
    assert {each.line for each in contents.left_out} == {f"!{place}" for place in secrets}
    (tmp_path / ".dockerignore").write_text("!server.pem\nkeys\n")
    contents = read(read_project(tmp_path))
    assert "server.pem" in contents.files
    assert not {"server.pem", "keys/id_rsa"} & set(contents.secrets)


def test_links_that_lead_out_stay_out(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    write(tmp_path, "outside.txt", "project/env.py")
    (folder / "inside.py").symlink_to("env.py")
    (folder / "secret.txt").symlink_to(tmp_path / "outside.txt")
    (folder / "nowhere").symlink_to("not/there")
    (folder / "folder").symlink_to(tmp_path)
    contents = read(project(folder))
    assert set(contents.files) == {"Dockerfile", "env.py", "inside.py"}
    assert set(contents.links) == {"secret.txt", "nowhere", "folder"}
    assert {each.reason for each in contents.left_out} == {"links to no file of this folder"}
    assert all(each.line is None for each in contents.left_out), "no line lets one in"


def test_what_dockerignore_names_is_listed_folders_as_a_whole(tmp_path: Path) -> None:
    write(tmp_path, "env.py", "tests/a.py", "tests/b/c.py", "x/notes.md", "docs/a.md", "docs/deep/b.md")
    (tmp_path / ".dockerignore").write_text("tests\n**/*.md\ndocs\n!docs/deep/b.md\n")
    contents = read(project(tmp_path))
    assert contents.ignored == ("docs/a.md", "tests/", "x/notes.md")
    assert set(contents.files) == {"Dockerfile", ".dockerignore", "env.py", "docs/deep/b.md"}


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        (["!a/.env"], True),
        (["!/a//.env"], True),
        (["*", "!a/.env"], True),
        (["!a/.env", "!*"], True),
        (["!a"], False),
        (["!a/.e*"], False),
        (["!**/.env"], False),
        (["!a/?env"], False),
        (["!a/[.]env"], False),
        (["!a/.ENV"], False),
        (["!a/.env", "a/.env"], False),
        (["!a/.env", "**/.env", "!*"], False),
        (["!a/.env/more"], False),
        ([r"!a/\.env"], True),
    ],
)
def test_a_line_names_a_file_by_its_whole_path_alone(lines: list[str], named: bool) -> None:
    assert Patterns(lines).names("a/.env") is named


@pytest.mark.parametrize(
    "place", ["a/b.txt", "[odd]*?.txt", "back\\slash", "#hash", "!bang", "sp ace", "ünï"]
)
def test_the_line_for_a_file_names_it_and_nothing_else(place: str) -> None:
    line = line_for(place)
    assert line is not None
    assert Patterns([line]).names(place) and not Patterns([line]).names(place.replace("o", "x") + "y")


@pytest.mark.parametrize("place", [" begins", "ends ", "two\nlines", "\x9bred", "\udcff"])
def test_no_line_can_name_some_files(place: str) -> None:
    assert line_for(place) is None


def test_a_bad_pattern_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / ".dockerignore").write_text("*.md\nab[c\n")
    with pytest.raises(LoadError, match=r"\.dockerignore:2: 'ab\[c' is no pattern"):
        read(project(tmp_path))
    with pytest.raises(LoadError, match="needs a pattern"):
        Patterns(["!"], source="x")


def test_the_tar_holds_the_files_the_dockerfile_and_more(tmp_path: Path) -> None:
    write(tmp_path, "env.py", "run.sh", "a/b.txt")
    (tmp_path / "run.sh").chmod(0o750)
    found = project(tmp_path)
    with tar(found, read(found), dockerfile="FROM x\n", more={"orsay.whl": b"wheel"}) as packed:
        with tarfile.open(fileobj=packed) as archive:
            members = {member.name: member for member in archive.getmembers()}
            assert set(members) == {"Dockerfile", "a/b.txt", "env.py", "orsay.whl", "run.sh"}
            dockerfile = archive.extractfile("Dockerfile")
            assert dockerfile is not None and dockerfile.read() == b"FROM x\n"
        assert (members["run.sh"].mode, members["env.py"].mode) == (0o755, 0o644)
        assert {(member.uid, member.mtime) for member in members.values()} == {(0, 0)}


def test_the_same_files_make_the_same_tar(tmp_path: Path) -> None:
    write(tmp_path, "env.py", "b.txt")
    found = project(tmp_path)
    with tar(found, read(found), dockerfile="FROM x\n") as packed:
        first = packed.read()
    os.utime(tmp_path / "env.py", (1, 1))
    with tar(found, read(found), dockerfile="FROM x\n") as packed:
        assert packed.read() == first


def test_a_file_that_vanished_is_an_error_and_not_a_hole(tmp_path: Path) -> None:
    write(tmp_path, "env.py")
    found = project(tmp_path)
    contents = read(found)
    (tmp_path / "env.py").unlink()
    with pytest.raises(LoadError, match=r"cannot pack .*env\.py"):
        tar(found, contents, dockerfile="FROM x\n")


def test_a_pattern_ends_with_its_line_and_with_no_other_character(tmp_path: Path) -> None:
    names = ["notes\u2028private.txt", "keys\x0cold.txt", "private.txt"]
    for name in names:
        (tmp_path / name).write_text("x")
    (tmp_path / ".dockerignore").write_text("notes\u2028private.txt\r\nkeys\x0cold.txt\n", newline="")
    found = read(project(tmp_path)).files
    assert [name for name in names if name in found] == ["private.txt"]
