"""Reports of attacks for other programs: JSON, and JUnit XML."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import get_args
from xml.etree import ElementTree

from .attack import GROUPS, Result, Status

__all__ = ["to_json", "to_junit"]


def to_json(url: str, env: str, results: Sequence[Result]) -> str:
    """One JSON object: the server, a count for each status, and every attack."""
    counts = {status: sum(result.status == status for result in results) for status in get_args(Status)}
    attacks = [
        {
            "id": result.attack.id,
            "group": result.attack.group,
            "tried": result.attack.tried,
            "status": result.status,
            "happened": result.happened,
            "matters": result.attack.matters,
            "change": result.attack.change,
            "duration_s": round(result.duration_s, 4),
        }
        for result in results
    ]
    document = {"url": url, "environment": env, "counts": counts, "attacks": attacks}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def to_junit(url: str, env: str, results: Sequence[Result]) -> str:
    """A test suite for each group; a warning is a case that passed, with its text as output."""
    root = ElementTree.Element("testsuites", name=f"{url} {env}")
    for group in GROUPS:
        mine = [result for result in results if result.attack.group == group]
        if not mine:
            continue
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=group,
            tests=str(len(mine)),
            failures=str(sum(result.status == "failed" for result in mine)),
            skipped=str(sum(result.status == "not tried" for result in mine)),
            time=f"{sum(result.duration_s for result in mine):.3f}",
        )
        for result in mine:
            case = ElementTree.SubElement(
                suite,
                "testcase",
                classname=f"orsay.attack.{group}",
                name=f"{result.attack.id}: {result.attack.tried}",
                time=f"{result.duration_s:.3f}",
            )
            text = _printable(f"{result.happened}. {result.attack.matters} {result.attack.change}")
            if result.status == "failed":
                ElementTree.SubElement(case, "failure", message=text)
            elif result.status == "not tried":
                ElementTree.SubElement(case, "skipped", message=_printable(result.happened))
            elif result.status == "warning":
                ElementTree.SubElement(case, "system-out").text = text
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str) -> str:
    """The text without the control characters that XML cannot represent."""
    return "".join(char if char.isprintable() or char in "\n\t" else "?" for char in text)
