"""The page on training names every metric and public name, and its commands have flags that there are.

``tests/bridge/test_training_docs.py`` runs its examples.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator

import orsay_trl
import pytest
from orsay_trl.rollout import metrics as rollout_metrics
from orsay_trl.rollout import rollout_func as rollout_function
from orsay_trl.rollout.loop import StopReason
from orsay_trl.trainer import metrics

from tests.support.documentation import ROOT, blocks, cells

PAGE = (ROOT / "docs" / "training.md").read_text()
COMMANDS = [
    line
    for block in blocks()
    if block.language == "bash"
    for line in block.code.splitlines()
    if re.search(r"(?<![\w/])examples/\w+\.py", line)
]


def template(node: ast.expr) -> str | None:
    """The text of a string, with <> in the place of what an f-string inserts."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "<>" for part in node.values)
    return None


def metric_names(source: str) -> Iterator[str]:
    """Keys of dictionaries, and what is handed to log_metric: the names that the module logs."""
    for node in ast.walk(ast.parse(source)):
        found: list[ast.expr] = []
        if isinstance(node, ast.Dict):
            found = [key for key in node.keys if key is not None]
        elif isinstance(node, ast.DictComp):
            found = [node.key]
        elif isinstance(node, ast.Assign):
            found = [target.slice for target in node.targets if isinstance(target, ast.Subscript)]
        elif isinstance(node, ast.Call) and "log_metric" in ast.unparse(node.func):
            name = node.args[0]
            found = [name.right if isinstance(name, ast.BinOp) else name]
        yield from (text for text in map(template, found) if text)


def test_every_metric_is_documented_and_no_other() -> None:
    documented = [re.findall(r"`([^`]+)`", row[0])[0] for row in cells("training.md", "## Metrics")]
    ours = {f"env/{name}" for name in metric_names(inspect.getsource(metrics))}
    theirs = set(metric_names(inspect.getsource(rollout_metrics)))
    parity = {
        name for name in metric_names(inspect.getsource(rollout_function)) if name.startswith("sampling/")
    }
    assert len(ours) > 10 and len(theirs) == 5 and len(parity) == 1
    assert {re.sub("<[^>]*>", "<>", name) for name in documented} == ours | theirs | parity
    assert len(documented) == len(set(documented))


def test_every_reason_to_stop_is_documented() -> None:
    for reason in StopReason.__args__:  # type: ignore[attr-defined]  # Literal has no public accessor for it
        assert f"`{reason}`" in PAGE


def test_metrics_are_those_of_the_benchmark() -> None:
    section = PAGE.partition("\n## Measured\n")[2].partition("\n## ")[0]
    factors = re.findall(r"([\d.]+)x", section)
    measured = (ROOT / "benchmarks" / "results" / "train.md").read_text()
    assert factors
    for figure in factors:
        assert f"({figure}x)" in measured, figure


def test_every_public_name_is_documented() -> None:
    rows = cells("training.md", "## Names to import from `orsay_trl`")
    documented = [name for row in rows for name in re.findall(r"`(\w+)`", row[1]) if name != "combine"]
    assert sorted(documented) == sorted(orsay_trl.__all__)


def test_every_argument_of_a_spec_is_described() -> None:
    described = inspect.getdoc(orsay_trl.EnvironmentSpec) or ""
    for name in list(inspect.signature(orsay_trl.EnvironmentSpec).parameters):
        assert f"    {name}: " in described, name


def test_arguments_that_the_page_gives_to_a_spec_exist() -> None:
    known = set(inspect.signature(orsay_trl.EnvironmentSpec).parameters)
    given = {
        name
        for call in re.findall(r"EnvironmentSpec\(([^)]*)\)", PAGE)
        for name in re.findall(r"(\w+)=", call)
    }
    assert given and given <= known


@pytest.mark.parametrize("command", sorted(set(COMMANDS)))
def test_a_command_starts_a_script_with_flags_that_it_has(command: str) -> None:
    script, _, options = command.partition("examples/")[2].partition(" ")
    sources = [ROOT / "examples" / script, ROOT / "examples" / "flags.py", ROOT / "examples" / "smoke.py"]
    known = set(re.findall(r'"(--[a-z-]+)"', "".join(source.read_text() for source in sources)))
    assert set(re.findall(r"(--[a-z-]+)", options)) <= known
