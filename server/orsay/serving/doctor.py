"""What an environment needs against what a configuration gives it, without running either."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal, TypeAlias

from ..config.entries import Entry
from ..packaging.needs.needs import Need
from ..settings import Settings
from .data import data_of

__all__ = ["Finding", "State", "additions", "examine"]

State: TypeAlias = Literal["there", "lacks", "note"]
_SIZE = re.compile(r"\d+(\.\d+)?:\d+(\.\d+)?")
_KEY = "api_key"
_OWN = "self.sandbox"
_NOT_FOR_OPENREWARD = ("off", "auto")
"""Back ends with which code written for openreward goes on using its own platform."""
_MODEL_VARIABLES = {
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_KEY"),
    "anthropic": ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
    "google": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "litellm": ("OPENAI_BASE_URL", "OPENAI_API_KEY"),
    "openreward.chat_backends": ("CHAT_BASE_URL", "CHAT_API_KEY"),
}
_WEB_VARIABLES = ("OPENREWARD_WEB_FETCH_URL", "OPENREWARD_WEB_SEARCH_URL", "OPENREWARD_WEB_DOMAIN_INFO_URL")
_IN_IMAGES = {
    "CLIToolset": "bash, coreutils, find, grep, sed",
    "ClaudeCodeToolset": "bash, coreutils, find, grep, sed",
    "CodexToolset": "bash, coreutils, find, grep, sed",
    "GeminiCliToolset": "bash, coreutils, find, grep, sed",
    "HermesToolset": "bash, coreutils, find, grep, sed, patch",
    "OpenClawToolset": "bash, coreutils, find, grep, sed, patch, ps",
    "ExcelToolset": "python3 with openpyxl",
    "WordToolset": "python3 with python-docx",
    "PowerPointToolset": "python3 with python-pptx",
    "PDFToolset": "python3 with pypdf, pdfplumber, reportlab, pdf2image, and poppler",
}


@dataclass(frozen=True)
class Finding:
    """A need with its state. ``says`` is what there is, or what to do."""

    need: Need
    state: State
    says: str
    table: str = ""
    """Table of ``orsay.toml`` that lacks ``line``."""
    line: str = field(default="", compare=False)


def examine(
    needs: Sequence[Need],
    entry: Entry,
    settings: Settings,
    *,
    secrets: Collection[str] = (),
    variable: Callable[[str], str | None],
) -> list[Finding]:
    """Findings, in the order of the needs.

    ``secrets`` are names of what trainers send; ``variable`` reads a variable of this process.
    """
    return list(_Examination(needs, entry, settings, frozenset(map(str.lower, secrets)), variable).findings())


def additions(findings: Sequence[Finding]) -> str:
    """Lines for ``orsay.toml`` that give what lacks; ``FOLDER``, ``IMAGE`` stand for what only you know."""
    tables: dict[str, dict[str, None]] = {}
    for each in findings:
        if each.line:
            tables.setdefault(each.table, {})[each.line] = None
    return "\n\n".join("\n".join([f"[{table}]", *lines]) for table, lines in sorted(tables.items()))


@dataclass(frozen=True)
class _Examination:
    needs: Sequence[Need]
    entry: Entry
    settings: Settings
    secrets: frozenset[str]
    variable: Callable[[str], str | None]

    def findings(self) -> Iterator[Finding]:
        for need in self.needs:
            match need.kind:
                case "data":
                    yield self._data(need)
                case "bucket":
                    yield from self._bucket(need)
                case "sandbox":
                    yield self._sandbox(need)
                case "image":
                    yield self._image(need)
                case "size" if not _SIZE.fullmatch(need.what):
                    yield Finding(
                        need, "lacks", "no such size here: CPUs and GB, such as 1:2; there are no GPUs"
                    )
                case "size":
                    yield Finding(need, "there", "CPUs and GB, as limits")
                case "feature":
                    yield Finding(need, "lacks", "not supported: sandboxes that ask for it are refused")
                case "toolset":
                    yield Finding(
                        need, "note", f"needs in the image: {_IN_IMAGES.get(need.what, 'see its code')}"
                    )
                case "secret":
                    yield self._secret(need)
                case "model":
                    yield self._model(need)
                case "web":
                    yield self._web(need)
                case "environment":
                    continue

    def _names(self) -> list[str]:
        """Names by which its code asks for data."""
        return [each.what for each in self.needs if each.kind == "environment" and "*" not in each.what]

    def _data(self, need: Need) -> Finding:
        found = data_of(self.entry, self.settings.sandboxes_data)
        if not found.folder:
            return self._no_data(need, found.note)
        rest = need.what[len(self.settings.sandboxes_data_path) :].strip("/")
        if rest and not _exists(Path(found.folder), rest):
            return Finding(need, "lacks", f"{found.folder} has no {rest}")
        return Finding(need, "there", f"in {found.folder}")

    def _no_data(self, need: Need, note: str) -> Finding:
        named = [each for each in self._names() if each in self.settings.sandboxes_data]
        if named or note:
            name = named[0] if named else "Owner/Name"
            why = note or f"{named[0]!r} has a folder, but not for its own code"
            line = f'data = "{name}"'
            return Finding(need, "lacks", why, f"environments.{_label(self.entry)}", line)
        name = next(iter(self._names()), f"Owner/{_label(self.entry)}")
        return Finding(need, "lacks", "no folder is given", "sandboxes.data", f'"{name}" = "FOLDER"')

    def _bucket(self, need: Need) -> Iterator[Finding]:
        names = [need.owner] if need.owner else self._names()
        if not names or any("*" in name for name in names):
            yield Finding(need, "note", "which data is decided while it runs")
            return
        for name in names:
            folder = self.settings.sandboxes_data.get(name)
            if folder is None:
                line = f'"{name}" = "FOLDER"'
                yield Finding(need, "lacks", f"no folder for {name!r}", "sandboxes.data", line)
            elif not folder.is_dir():
                yield Finding(need, "lacks", f"there is no folder {folder}")
            elif need.folder and not _exists(folder, need.folder):
                yield Finding(need, "lacks", f"{folder} has no {need.folder}")
            else:
                yield Finding(need, "there", f"{folder} for {name!r}")

    def _sandbox(self, need: Need) -> Finding:
        backend = self.settings.sandboxes_backend
        if backend == "auto" and need.what == _OWN:
            return Finding(need, "there", "by the first back end that works")
        if self._serves_platform:
            return Finding(need, "there", f"by {backend}")
        if need.what != _OWN and (url := self.variable("OPENREWARD_SESSION_URL")):
            return Finding(need, "there", f"at {url}, by OPENREWARD_SESSION_URL")
        why = "sandboxes are off" if backend == "off" else "auto is for sandboxes of Orsay's own classes"
        return Finding(need, "lacks", why, "sandboxes", 'backend = "docker"')

    @property
    def _serves_platform(self) -> bool:
        return self.settings.sandboxes_backend not in _NOT_FOR_OPENREWARD

    def _image(self, need: Need) -> Finding:
        images = self.settings.sandboxes_images
        found = [name for name in images if fnmatch(name, need.what)]
        if found and "*" in need.what:
            return Finding(
                need, "note", f"{len(found)} aliases; which are asked for is decided while it runs"
            )
        if found:
            return Finding(need, "there", f"is {images[found[0]]}")
        if "*" in need.what:
            return Finding(need, "lacks", "no alias fits: [sandboxes.images] needs each reference, in full")
        if "/" not in need.what:
            return Finding(need, "there", "as it is")
        return Finding(need, "lacks", "no alias", "sandboxes.images", f'"{need.what}" = "IMAGE"')

    def _secret(self, need: Need) -> Finding:
        if need.what in self.secrets:
            return Finding(need, "there", "from the trainer")
        if need.what == _KEY and self._serves_platform:
            return Finding(need, "there", "from this server, for each session")
        if need.what == _KEY and any(each.kind == "sandbox" for each in self.needs):
            return Finding(need, "lacks", "a server with sandboxes makes one for each session")
        return Finding(need, "lacks", f"the trainer must send it: secrets={{'{need.what}': …}}")

    def _model(self, need: Need) -> Finding:
        names = _MODEL_VARIABLES[need.what]
        given = [name for name in names if self.variable(name)]
        if given:
            return Finding(need, "there", f"by {', '.join(given)}")
        sent = [name for name in self.secrets if name.startswith(need.what.partition(".")[0])]
        if sent:
            return Finding(need, "there", f"by the secret {sent[0]}")
        return Finding(
            need, "lacks", f"set {names[0]} where 'orsay serve' starts, or send its key as a secret"
        )

    def _web(self, need: Need) -> Finding:
        if need.what in ("tavily", "openreward.search_backends") and self.variable("TAVILY_API_KEY"):
            return Finding(need, "there", "by TAVILY_API_KEY")
        missing = [name for name in _WEB_VARIABLES if not self.variable(name)]
        if not missing:
            return Finding(need, "there", "by OPENREWARD_WEB_…_URL")
        return Finding(need, "lacks", f"set {', '.join(missing)} where 'orsay serve' starts")


def _exists(folder: Path, pattern: str) -> bool:
    pattern = pattern.strip("/")
    if "*" not in pattern:
        return (folder / pattern).exists()
    return any(True for _ in folder.glob(re.sub(r"\*+", "*", pattern)))


def _label(entry: Entry) -> str:
    """A label that fits into a table's name."""
    name = entry.label.rpartition(":")[2] if ":" in entry.label else Path(entry.label).stem
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "mine"
