"""The page in the package: made of the source beside it, the same whenever it is made, with its licences."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.documentation import ROOT

pytestmark = pytest.mark.process

SOURCE = ROOT / "console"
BUILT = ROOT / "server" / "orsay" / "console" / "static"
PAGES = ROOT / "server" / "orsay" / "http" / "pages"
NODE = (20, 19)
UNREACHABLE = re.compile("ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|ENETUNREACH")
LICENCES = {"MIT", "ISC", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0", "0BSD", "Unlicense", "BlueOak-1.0.0"}


def files(folder: Path) -> dict[str, bytes]:
    """What a folder holds, by paths in it."""
    found = [each for each in folder.rglob("*") if each.is_file()]
    return {each.relative_to(folder).as_posix(): each.read_bytes() for each in found}


def node_problem() -> str | None:
    """Why the page cannot be built here; None when it can."""
    if not shutil.which("node") or not shutil.which("npm"):
        return "node and npm are not installed"
    printed = subprocess.check_output(["node", "--version"], text=True, timeout=60)
    version = tuple(int(each) for each in printed.strip().lstrip("v").split(".")[:2])
    return None if version >= NODE else f"node {printed.strip()} is older than {NODE[0]}.{NODE[1]}"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the console's source, with the packages of its lock file."""
    problem = node_problem()
    if problem is not None:
        pytest.skip(problem)
    copy = tmp_path_factory.mktemp("build") / "console"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("node_modules"))
    installed = subprocess.run(
        ["npm", "ci", "--prefer-offline", "--ignore-scripts", "--no-fund", "--no-audit"],
        cwd=copy,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    if installed.returncode and UNREACHABLE.search(installed.stderr):
        pytest.skip("the packages of the lock file cannot be fetched here")
    assert installed.returncode == 0, installed.stderr
    return copy


@pytest.mark.browser
@pytest.mark.timeout(600)
def test_building_again_from_the_lock_file_gives_the_same(project: Path) -> None:
    for script in ("check", "test", "build"):
        command = ["npm", "run", "--silent", script]
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    for folder in (BUILT, PAGES):
        made, kept = files(project.parent / folder.relative_to(ROOT)), files(folder)
        assert made.keys() == kept.keys(), "run scripts/console and commit what it builds"
        assert [name for name in made if made[name] != kept[name]] == []


@pytest.mark.browser
@pytest.mark.timeout(600)
def test_the_types_are_those_of_the_openapi_document(project: Path) -> None:
    document = subprocess.check_output(
        [sys.executable, str(ROOT / "scripts" / "console_types.py")], timeout=120
    )
    made = subprocess.check_output(["node", "types.mjs"], cwd=project, input=document, timeout=120)
    assert made.decode() == (SOURCE / "src" / "api" / "types.ts").read_text(), "run scripts/console-types"


def test_every_schema_of_the_openapi_document_has_one_form() -> None:
    document = subprocess.check_output(
        [sys.executable, str(ROOT / "scripts" / "console_types.py")], timeout=120
    )
    names = json.loads(document)["components"]["schemas"]
    assert "EvaluatedEpisode" in names
    assert [name for name in names if name.endswith(("-Input", "-Output"))] == []


def test_the_page_names_only_files_that_are_there_and_nothing_elsewhere() -> None:
    page = (BUILT / "index.html").read_text()
    named = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert named.count("/console/") == 1  # <base>
    assert len(named) >= 4
    for each in named:
        assert each == "/console/" or (each.startswith("./") and (BUILT / each).is_file()), each
    assert '<meta name="csp-nonce" content="__CSP_NONCE__"' in page
    inline = re.findall(r"<script(?![^>]*\bsrc=)[^>]*>|\bstyle=|<style|\bon[a-z]+=", page)
    assert inline == []


def test_nothing_in_the_page_makes_code_at_run_time() -> None:
    for name, content in files(BUILT).items():
        if name.endswith(".js"):
            assert not re.search(rb"\bnew Function\(|\beval\(", content), name


def test_styles_fetch_nothing_from_elsewhere() -> None:
    for name, content in files(BUILT).items():
        if name.endswith(".css"):
            assert not re.search(rb"@import|url\(\s*[\"']?(?:https?:)?//", content), name


def test_the_licences_of_all_bundled_packages_are_in_the_package() -> None:
    text = (BUILT / "licenses.md").read_text()
    wanted = json.loads((SOURCE / "package.json").read_text())["dependencies"]
    listed = dict(re.findall(r"^## (\S+) - (\S+) \(", text, re.MULTILINE))
    assert {name: listed.get(name) for name in wanted} == wanted
    kinds = set(re.findall(r"^## \S+ - \S+ \(([^)]+)\)", text, re.MULTILINE))
    assert kinds <= LICENCES


def test_the_licences_of_what_shows_the_document_are_in_the_package() -> None:
    text = (PAGES / "licenses.md").read_text()
    wanted = json.loads((SOURCE / "package.json").read_text())["devDependencies"]
    listed = dict(re.findall(r"^## (\S+) - (\S+) \(", text, re.MULTILINE))
    assert listed == {name: wanted[name] for name in ("swagger-ui-dist", "redoc")}
    assert "Apache License" in text and "The MIT License" in text


def test_the_lock_file_fixes_every_package_by_its_content() -> None:
    packages = json.loads((SOURCE / "package-lock.json").read_text())["packages"]
    assert [name for name, entry in packages.items() if name and "integrity" not in entry] == []
    given = json.loads((SOURCE / "package.json").read_text())
    for versions in (given["dependencies"], given["devDependencies"]):
        assert [name for name, version in versions.items() if not version[0].isdigit()] == []


def test_the_page_is_in_the_wheel(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-qq",
        "--no-deps",
        "--wheel-dir",
        str(tmp_path),
        str(ROOT),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode and "No matching distribution found for hatchling" in done.stderr:
        pytest.skip("what builds wheels cannot be fetched here")
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("orsay-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for folder in (BUILT, PAGES):
            prefix = f"{folder.relative_to(ROOT / 'server').as_posix()}/"
            packed = {each.removeprefix(prefix) for each in archive.namelist() if each.startswith(prefix)}
            assert packed == files(folder).keys()
