"""Page of environments and what they need from their host, read from their sources.

Without folders it is docs/catalog.md, with the environments of this repository. With folders, each child of
which is an environment (a folder, or a Python file), their page is printed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from orsay.errors import LoadError
from orsay.packaging.classes import find_targets
from orsay.packaging.needs.needs import Need, needs_of
from orsay.packaging.needs.project import sources_of

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "catalog.md"
OWN = ("envs", "docs/examples/environments", "docs/examples/sandboxes", "docs/examples/tutorial")
COLUMNS = ("data", "model", "sandbox", "web")
_COLUMN = {
    "data": "data",
    "bucket": "data",
    "model": "model",
    "sandbox": "sandbox",
    "image": "sandbox",
    "web": "web",
}

HEAD = Path(__file__).with_name("catalog.md")
"""What stands above the tables of this repository."""


def environments(folder: Path) -> Iterator[tuple[str, list[Need]]]:
    """Names and needs of the environments that are children of ``folder``. Raises LoadError."""
    if not folder.is_dir():
        raise LoadError(f"no folder {folder}")
    for child in sorted(folder.iterdir()):
        if child.name.startswith((".", "_")):
            continue
        if child.is_dir() and find_targets(child):
            yield child.name, needs_of(sources_of(str(child)))
    files = {target.partition(":")[0] for target in find_targets(folder)}
    for name in sorted(each for each in files if each.endswith(".py")):
        yield name, needs_of(sources_of(str(folder / name)))


def table(found: Sequence[tuple[str, list[Need]]]) -> Iterator[str]:
    """Rows of the matrix, and below them the number of environments of each group."""
    yield "| environment | " + " | ".join(COLUMNS) + " | secrets |"
    yield "|---|" + "---|" * len(COLUMNS) + "---|"
    groups: Counter[str] = Counter()
    for name, needs in found:
        cells = {column: _cell(needs, column) for column in COLUMNS}
        secrets = ", ".join(f"`{need.what}`" for need in needs if need.kind == "secret")
        yield f"| {name} | " + " | ".join(cells.values()) + f" | {secrets} |"
        groups[" and ".join(column for column in COLUMNS if cells[column]) or "nothing"] += 1
    yield ""
    yield "By need: " + ", ".join(f"{group} {count}" for group, count in groups.most_common()) + "."


def _cell(needs: Sequence[Need], column: str) -> str:
    own = [need for need in needs if _COLUMN.get(need.kind) == column]
    named = dict.fromkeys(_what(need) for need in own)
    if column == "sandbox":
        named = {
            text: None for text in named if text not in ("`sandboxes`", "`self.sandbox`")
        } or dict.fromkeys(["yes"] if own else [])
    return ", ".join(named)


def _what(need: Need) -> str:
    return f"`{need.what}` ({need.owner})" if need.owner else f"`{need.what}`"


def page(folders: Sequence[tuple[str, Path]], head: str) -> str:
    """The page for folders with their titles."""
    parts = [head] if head else []
    for title, folder in folders:
        found = list(environments(folder))
        parts.append("\n".join([f"## {title}", "", *(table(found) if found else ["No environments."]), ""]))
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/catalog", description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="folders of environments")
    parser.add_argument("--check", action="store_true", help="fail if docs/catalog.md is another page")
    args = parser.parse_args()
    try:
        if args.folders:
            print(page([(each.name or str(each), each) for each in args.folders], ""), end="")
            return 0
        text = page(
            [(f"Of this repository: {name}", ROOT / name) for name in OWN], HEAD.read_text(encoding="utf-8")
        )
    except LoadError as exc:
        print(f"scripts/catalog: {exc}", file=sys.stderr)
        return 2
    if args.check:
        return int(PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
