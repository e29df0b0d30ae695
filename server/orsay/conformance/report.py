"""Reports for other programs: JSON, and JUnit XML for continuous integration."""

from __future__ import annotations

import json
from collections.abc import Sequence
from xml.etree import ElementTree

from .check import Outcome

__all__ = ["to_json", "to_junit"]


def to_json(url: str, env: str, outcomes: Sequence[Outcome]) -> str:
    """One JSON object: the server, a count for each status, and every check."""
    counts = dict.fromkeys(("passed", "failed", "not supported"), 0)
    for outcome in outcomes:
        counts[outcome.status] += 1
    checks = [
        {
            "id": outcome.check.id,
            "group": outcome.check.group,
            "source": outcome.check.source,
            "sentence": outcome.check.sentence,
            "status": outcome.status,
            "reason": outcome.reason,
            "duration_s": round(outcome.duration_s, 4),
        }
        for outcome in outcomes
    ]
    document = {"url": url, "environment": env, "counts": counts, "checks": checks}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def to_junit(url: str, env: str, outcomes: Sequence[Outcome]) -> str:
    """A test suite for each group; checks of unsupported features are skipped."""
    root = ElementTree.Element("testsuites", name=f"{url} {env}")
    for group in ("standard", "orsay"):
        mine = [outcome for outcome in outcomes if outcome.check.group == group]
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=group,
            tests=str(len(mine)),
            failures=str(sum(outcome.status == "failed" for outcome in mine)),
            skipped=str(sum(outcome.status == "not supported" for outcome in mine)),
            time=f"{sum(outcome.duration_s for outcome in mine):.3f}",
        )
        for outcome in mine:
            case = ElementTree.SubElement(
                suite,
                "testcase",
                classname=f"orsay.contract.{group}",
                name=f"{outcome.check.id}: {outcome.check.sentence}",
                time=f"{outcome.duration_s:.3f}",
            )
            tag = {"failed": "failure", "not supported": "skipped"}.get(outcome.status)
            if tag:
                ElementTree.SubElement(case, tag, message=_printable(outcome.reason))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str) -> str:
    """The text without the control characters that XML cannot represent."""
    return "".join(char if char.isprintable() or char in "\n\t" else "?" for char in text)
