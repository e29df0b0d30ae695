"""What is installed as orsay inside an image."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from orsay.errors import ConfigError
from orsay.packaging.wheel import Requirement, requirement

from tests.support.engine import ROOT

pytestmark = pytest.mark.process

ASK = (
    "from orsay.packaging.wheel import requirement; found = requirement(); print(found.pip, len(found.files))"
)


@pytest.fixture(scope="module")
def packed() -> Requirement:
    return requirement()


def test_a_checkout_becomes_a_wheel(packed: Requirement) -> None:
    (name,) = packed.files
    assert packed.pip == f"./{name}" and name.startswith("orsay-") and name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(io.BytesIO(packed.files[name])).namelist()
    assert {
        "orsay/cli/__init__.py",
        "orsay/py.typed",
        "orsay/templates/environment/Dockerfile.tmpl",
        "orsay_protocol/__init__.py",
        "orsay_client/__init__.py",
        "orsay_trl/__init__.py",
    } <= set(names)
    assert [each for each in names if "__pycache__" in each or each.endswith(".pyc") or "tests/" in each] == [
        each for each in names if each.startswith("orsay/templates/") and "tests/" in each
    ]


def test_its_record_lists_every_file_as_it_is(packed: Requirement) -> None:
    (data,) = packed.files.values()
    archive = zipfile.ZipFile(io.BytesIO(data))
    (record,) = (name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
    rows = {name: digest for name, digest, _ in csv.reader(io.StringIO(archive.read(record).decode()))}
    assert set(rows) == set(archive.namelist())
    for name, digest in rows.items():
        if name != record:
            found = base64.urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest()).rstrip(b"=")
            assert digest == f"sha256={found.decode()}"


def test_the_same_code_makes_the_same_wheel(packed: Requirement) -> None:
    (data,) = packed.files.values()
    entries = zipfile.ZipFile(io.BytesIO(data)).infolist()
    assert len({entry.date_time for entry in entries}) == len({entry.external_attr for entry in entries}) == 1
    modules = [entry.filename for entry in entries if entry.filename.startswith("orsay/")]
    assert modules == sorted(modules)


def installed(packed: Requirement, folder: Path, *how: str) -> str:
    """What ``requirement`` says where pip installed the wheel ``how``."""
    (folder / "wheels").mkdir()
    for name, data in packed.files.items():
        (folder / "wheels" / name).write_bytes(data)
    target = folder / "installed"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(target),
    ]
    subprocess.run([*pip, *how], cwd=folder, check=True, timeout=120)
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env={**os.environ, "PYTHONPATH": str(target)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


def test_what_came_from_an_index_is_asked_for_by_its_version(packed: Requirement, tmp_path: Path) -> None:
    version = next(iter(packed.files)).split("-")[1]
    assert installed(packed, tmp_path, "--find-links", "wheels", "orsay") == f"orsay=={version} 0"


def test_what_came_from_a_file_is_packed_again(packed: Requirement, tmp_path: Path) -> None:
    (name,) = packed.files
    assert installed(packed, tmp_path, f"wheels/{name}") == f"./{name} 1"


def test_a_requirement_and_a_wheel_may_be_asked_for(tmp_path: Path) -> None:
    assert requirement("orsay[docker]>=0.1,<1") == Requirement("orsay[docker]>=0.1,<1")
    for asked in ("orsay @ https://example.org/x.whl", "https://example.org/orsay-1-py3-none-any.whl"):
        assert requirement(asked) == Requirement(asked)
    (tmp_path / "orsay-9-py3-none-any.whl").write_bytes(b"zip")
    assert requirement(tmp_path / "orsay-9-py3-none-any.whl") == Requirement(
        "./orsay-9-py3-none-any.whl", {"orsay-9-py3-none-any.whl": b"zip"}
    )


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("nowhere/orsay-1-py3-none-any.whl", "cannot read the wheel"),
        (str(ROOT), "is a folder: build a wheel of it"),
        ("--index-url https://example.org", "is no wheel and no requirement"),
        ("orsay; rm -rf /\nRUN x", "is no wheel and no requirement"),
        ("", "is no wheel and no requirement"),
    ],
)
def test_anything_else_is_refused(asked: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        requirement(asked)
