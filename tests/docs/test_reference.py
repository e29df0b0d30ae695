"""Every setting, verb, option, endpoint, header, fault class and public name is documented, and no other."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
from pathlib import Path
from typing import get_args

import orsay
import orsay_client
import pytest
from orsay.cli import _VERBS
from orsay.settings import Settings
from orsay_client.errors import fault
from orsay_protocol import FAULT_CLASSES, RETRYABLE, RunToolErrorReason, headers

from tests.interop.servers import serve
from tests.support.documentation import ROOT, anchors, blocks, cells, texts

pytestmark = pytest.mark.process

PROTOCOL = (ROOT / "docs" / "protocol.md").read_text()
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def code(cell: str) -> str:
    """The text between the first backquotes of a cell."""
    return cell.split("`")[1] if "`" in cell else cell


def parser_of(verb: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="orsay")
    verbs = parser.add_subparsers(dest="verb")
    importlib.import_module(f"orsay.cli.{verb}").add_parser(verbs)
    return parser


def options_of(verb: str) -> set[str]:
    (verbs,) = (a for a in parser_of(verb)._actions if isinstance(a, argparse._SubParsersAction))
    found = {option for action in verbs.choices[verb]._actions for option in action.option_strings}
    return found - {"-h", "--help"}


def test_every_setting_is_documented_with_its_default() -> None:
    documented = {code(row[0]): row[1].strip("`") for row in cells("serving.md", "## Settings")}
    words = {"none": (None, ()), "empty": ("",), "true": (True,), "false": (False,)}
    assert sorted(documented) == sorted(f"ORSAY_{name.upper()}" for name in Settings.model_fields)
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=False)
        text = documented[f"ORSAY_{name.upper()}"]
        if field.default_factory is not None:
            assert text == "cores"
        elif text in words:
            assert default in words[text], name
        else:
            assert text == f"{default:g}" if isinstance(default, float) else text == str(default), name


@pytest.mark.parametrize("verb", _VERBS)
def test_every_option_of_a_verb_is_documented(verb: str) -> None:
    documented = {code(row[0]).partition(" ")[0] for row in cells("cli.md", f"## orsay {verb}")}
    assert documented == options_of(verb)


def test_every_verb_has_a_chapter() -> None:
    chapters = re.findall(r"^## orsay (\w+)$", (ROOT / "docs" / "cli.md").read_text(), re.MULTILINE)
    assert sorted(chapters) == sorted(_VERBS)


@pytest.mark.parametrize("block", [b for b in blocks() if b.language == "bash"], ids=str)
def test_commands_in_the_documentation_are_commands_that_exist(block: object) -> None:
    for line in getattr(block, "code").splitlines():  # noqa: B009  # mypy: parametrized as object
        words = shlex.split(line, comments=True)
        while words and re.match(r"[A-Z_]+=", words[0]):
            words = words[1:]
        words = words[: words.index("|")] if "|" in words else words
        if words[:1] == ["orsay"]:
            assert parser_of(words[1]).parse_args(words[1:])
        elif words and words[0].startswith("./scripts/"):
            assert (ROOT / words[0]).is_file()


def test_every_fault_class_is_documented() -> None:
    rows = {code(row[0]): row for row in cells("faults.md")}
    assert list(rows) == list(FAULT_CLASSES)
    for name, (_, retryable, exception, status, cause, remedy) in rows.items():
        assert retryable == ("yes" if name in RETRYABLE else "no"), name
        assert code(exception) == type(fault(name, "")).__name__
        assert status and cause and remedy


def test_every_exception_of_the_client_is_documented() -> None:
    documented = (ROOT / "docs" / "client.md").read_text() + (ROOT / "docs" / "faults.md").read_text()
    for name in orsay_client.__all__:
        if isinstance(found := getattr(orsay_client, name), type) and issubclass(found, Exception):
            assert f"`{name}`" in documented, name


def test_every_name_of_the_authoring_package_is_documented() -> None:
    documented = cells("authoring.md", "## Names to import from `orsay`")
    names = [name for row in documented for name in re.findall(r"`(\w+)`", row[1])]
    assert sorted(names) == sorted(orsay.__all__)


def test_every_header_is_documented() -> None:
    for name in (value for key in headers.__all__ if isinstance(value := getattr(headers, key), str)):
        assert f"| `{name}` |" in PROTOCOL, name


def test_every_reason_of_a_refusal_is_documented() -> None:
    for reason in get_args(RunToolErrorReason):
        assert f"`{reason}`" in PROTOCOL


def test_every_endpoint_is_documented() -> None:
    import httpx  # only this test speaks to a server by hand

    with serve(str(ROOT / "docs/examples/environments/reverse.py"), options=["--workers", "1"]) as server:
        paths = httpx.get(f"{server.url}/openapi.json").json()["paths"]
    published = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    documented = {
        code(row[0])
        for page, heading in (
            ("protocol.md", "## Without a session"),
            ("protocol.md", "## A session"),
            ("console.md", "## API"),
        )
        for row in cells(page, heading)
    }
    assert documented == published


def test_every_status_of_an_error_is_documented() -> None:
    from orsay.http.errors import _FAULT_STATUS, _STATUS  # the one place that decides

    documented = {int(row[0]) for row in cells("protocol.md", "## Status codes")}
    assert {*_STATUS.values(), *_FAULT_STATUS.values(), 422} <= documented


@pytest.mark.parametrize("page", texts(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in _LINK.findall(page.read_text()):
        if "://" in link:
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def test_every_page_can_be_reached_from_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert {page for page in pages if f"]({page})" not in index} == set()


def test_numbers_of_the_comparison_are_those_of_the_benchmark() -> None:
    header = (ROOT / "benchmarks" / "results" / "serve.md").read_text().splitlines()[0]
    columns = [name.strip() for name in header.strip("|").split("|")]
    measured = {
        row[0]: dict(zip(columns, row, strict=True)) for row in cells("../benchmarks/results/serve.md")
    }
    compared = [row for row in cells("../README.md", "## Why Orsay") if row[0] in measured]
    assert len(compared) >= 5
    for label, *shown in compared:
        of_servers = [measured[label][name] for name in ("orsay-process", "openreward", "openenv-async")]
        expected = [cell.partition(" ")[0] or "not measured" for cell in of_servers]
        assert [cell.strip("*") for cell in shown] == expected, label
