"""The pytest plugin: tests over the tasks of an evaluation, and thresholds on its mean.

Every pytest run with orsay installed loads this module, so it imports nothing until a test needs it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from . import EvaluatedEpisode, EvaluationReport
    from .definition import Evaluation

__all__ = ["OrsayTask"]

_MARK = "orsay_tasks"
_PARAMETER = "orsay_task"
_OPTIONS = {
    "url": "the environment server",
    "policy": "random, module:function or file.py:function",
    "model": "as its endpoint calls it",
    "base-url": "of the model's OpenAI-compatible endpoint",
    "api-key-variable": "variable that has the endpoint's key",
}


@dataclass(frozen=True)
class OrsayTask:
    """Task of a test case; ``at_least`` is set for the case of the mean over all tasks."""

    evaluation: Evaluation
    index: int = 0
    at_least: float | None = None

    def __str__(self) -> str:
        if self.at_least is not None:
            return f"mean-at-least-{self.at_least:g}"
        return f"{self.evaluation.split}:{self.index}"


@dataclass
class _Seen:
    """Episodes and reports of this process."""

    episodes: dict[tuple[Any, ...], dict[int, list[EvaluatedEpisode]]] = field(default_factory=dict)
    reports: list[EvaluationReport] = field(default_factory=list)


_SEEN = pytest.StashKey[_Seen]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("orsay", "evaluations of Orsay environments")
    for name, text in _OPTIONS.items():
        group.addoption(f"--orsay-{name}", metavar=name.upper(), help=text)
        parser.addini(f"orsay_{name.replace('-', '_')}", text)
    group.addoption("--orsay-output", metavar="FOLDER", help="write the reports of orsay_evaluate there")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{_MARK}(evaluation, at_least=None): one case for each task of an orsay_eval.Evaluation, with the "
        "fixture orsay_episodes; at_least adds a case that asserts the mean reward",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    mark = metafunc.definition.get_closest_marker(_MARK)
    if mark is None:
        return
    evaluation, at_least = _arguments(*mark.args, **mark.kwargs)
    try:
        cases = [OrsayTask(evaluation, index) for index in evaluation.indices()]
    except ValueError as exc:
        raise pytest.UsageError(f"{_MARK}: {exc}") from exc
    if at_least is not None:
        cases.append(OrsayTask(evaluation, at_least=at_least))
    if _PARAMETER not in metafunc.fixturenames:
        metafunc.fixturenames.append(_PARAMETER)
    metafunc.parametrize(_PARAMETER, cases, indirect=True, ids=str)


def _arguments(evaluation: Any, at_least: float | None = None) -> tuple[Evaluation, float | None]:
    from .definition import Evaluation  # only for tests that are marked

    if not isinstance(evaluation, Evaluation):
        raise pytest.UsageError(f"{_MARK} takes an orsay_eval.Evaluation, not {evaluation!r}")
    return evaluation, at_least


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run the case of the mean in place of the test function, whose body is for single tasks."""
    callspec = getattr(pyfuncitem, "callspec", None)
    task = callspec.params.get(_PARAMETER) if callspec is not None else None
    if not isinstance(task, OrsayTask) or task.at_least is None:
        return None
    request = pyfuncitem._request
    played = _played(request, task)
    _assert_mean(request, task, [episode for episodes in played.values() for episode in episodes])
    return True


@pytest.fixture(scope="session")
def orsay_url(pytestconfig: pytest.Config) -> str:
    """URL of the environment server: --orsay-url, or orsay_url of the ini file. Override it to start one."""
    return _option(pytestconfig, "url") or _missing("server: --orsay-url URL, or a fixture orsay_url")


@pytest.fixture(scope="session")
def orsay_policy(pytestconfig: pytest.Config) -> Any:
    """The policy: --orsay-model with --orsay-base-url, or --orsay-policy. Override it with your own."""
    from .chat import ChatModel
    from .random_policy import RandomPolicy
    from .scripted import load_policy

    model, policy = _option(pytestconfig, "model"), _option(pytestconfig, "policy")
    if policy == "random":
        return RandomPolicy()
    if policy:
        return load_policy(policy)
    if not model:
        _missing("player: --orsay-model M, --orsay-policy P, or a fixture orsay_policy")
    variable = _option(pytestconfig, "api-key-variable")
    key = os.environ.get(variable) if variable else None  # given on the command line of pytest
    return ChatModel(model, base_url=_option(pytestconfig, "base-url") or None, api_key=key)


@pytest.fixture(scope="session")
def orsay_options() -> Mapping[str, Any]:
    """Additional arguments of ``orsay_eval.evaluate``, such as ``api_key``; override it with your own."""
    return {}


@pytest.fixture
def orsay_task(request: pytest.FixtureRequest) -> OrsayTask:
    """The task of a test that is marked with orsay_tasks."""
    task = getattr(request, "param", None)
    if not isinstance(task, OrsayTask):
        pytest.fail(f"mark the test: @pytest.mark.{_MARK}(Evaluation(...))", pytrace=False)
    return task


@pytest.fixture
def orsay_episodes(request: pytest.FixtureRequest, orsay_task: OrsayTask) -> Sequence[EvaluatedEpisode]:
    """The attempts at the task; the attempts of all selected tasks are played concurrently, once."""
    if orsay_task.at_least is not None:
        return []
    return _played(request, orsay_task)[orsay_task.index]


@pytest.fixture
def orsay_evaluate(request: pytest.FixtureRequest) -> Callable[..., EvaluationReport]:
    """``orsay_evaluate(evaluation)`` returns the report; it takes arguments of ``evaluate`` too."""

    def run(evaluation: Evaluation, **options: Any) -> EvaluationReport:
        return _evaluate(request, evaluation, options)

    return run


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Summary of the measurements, of passed and failed tests alike."""
    seen = config.stash.get(_SEEN, None)
    if seen is None or not seen.reports:
        return
    terminalreporter.section("orsay evaluations")
    for report in seen.reports:
        terminalreporter.write_line(_line(report))


def _played(request: pytest.FixtureRequest, task: OrsayTask) -> dict[int, list[EvaluatedEpisode]]:
    """Episodes by index, at least those of this case."""
    evaluation = task.evaluation
    url, policy = request.getfixturevalue("orsay_url"), request.getfixturevalue("orsay_policy")
    found = _seen(request).episodes.setdefault((evaluation, url, id(policy)), {})
    missing = [index for index in _wanted(request, task) if index not in found]
    if missing:
        report = _evaluate(request, evaluation.only(missing), {})
        for index in missing:
            found[index] = [episode for episode in report.episodes if episode.index == index]
    return found


def _wanted(request: pytest.FixtureRequest, task: OrsayTask) -> Sequence[int]:
    if task.at_least is not None:
        return task.evaluation.indices()
    if hasattr(request.config, "workerinput"):
        return [task.index]  # another process of pytest-xdist may have the others
    params = [getattr(item, "callspec", None) for item in request.session.items]
    cases = [each.params.get(_PARAMETER) for each in params if each is not None]
    same = [case for case in cases if isinstance(case, OrsayTask) and case.evaluation == task.evaluation]
    return sorted({task.index, *(case.index for case in same if case.at_least is None)})


def _evaluate(
    request: pytest.FixtureRequest, evaluation: Evaluation, options: Mapping[str, Any]
) -> EvaluationReport:
    from .run import evaluate

    given = {"journal": True, **request.getfixturevalue("orsay_options"), **options}
    folder = request.config.getoption("--orsay-output")
    if folder and "output" not in given:
        name = request.node.name.translate({ord(char): "-" for char in '/\\:*?"<>|[] '}).strip("-")
        now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        given["output"] = Path(folder) / f"{name}-{now}-{len(_seen(request).reports)}.json"
    url, policy = request.getfixturevalue("orsay_url"), request.getfixturevalue("orsay_policy")
    report = evaluate(evaluation, url, policy, **given)
    _seen(request).reports.append(report)
    return report


def _assert_mean(
    request: pytest.FixtureRequest, task: OrsayTask, episodes: Sequence[EvaluatedEpisode]
) -> None:
    from .check import assert_mean
    from .summary import summarize

    assert task.at_least is not None
    evaluation = task.evaluation
    summary = summarize(
        episodes, n_tasks=len(evaluation.indices()), k=evaluation.k, success=evaluation.success
    )
    last = _seen(request).reports[-1]
    whole = last.model_copy(update={"episodes": list(episodes), "summary": summary})
    try:
        assert_mean(whole, task.at_least)
    except AssertionError as exc:
        pytest.fail(str(exc), pytrace=False)


def _seen(request: pytest.FixtureRequest) -> _Seen:
    return request.config.stash.setdefault(_SEEN, _Seen())


def _option(config: pytest.Config, name: str) -> str:
    given = config.getoption(f"--orsay-{name}")
    return str(given or config.getini(f"orsay_{name.replace('-', '_')}") or "")


def _missing(what: str) -> Any:
    pytest.fail(f"name the {what}", pytrace=False)


def _line(report: EvaluationReport) -> str:
    summary, mean = report.summary, report.summary.mean_reward
    mean_text = "nothing was scored" if mean is None else f"mean reward {mean.mean:.3f}"
    if mean is not None and mean.low is not None:
        mean_text += f" [{mean.low:.3f}, {mean.high:.3f}]"
    lost = summary.episodes - summary.scored
    more = f", {lost} lost to faults" if lost else ""
    size = f"{summary.n_tasks} tasks x {summary.k}"
    return f"{report.model} on {report.environment} {report.split}, {size}: {mean_text}{more}"
