"""Attacks on environments: a sound one holds, and each weak one falls to exactly its attacks."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree

import docker
import pytest
from orsay.cli import main
from orsay.conformance import Target, Unreachable
from orsay.conformance.attacks import ATTACKS, Bench, Options, Result, attacks_named, run_attacks

from ..support.engine import ROOT, needs_engine
from ..support.server_process import ServerProcess, server
from ..support.vulnerable_environments import LABEL

pytestmark = [needs_engine, pytest.mark.timeout(400)]

ENVIRONMENTS = ROOT / "tests" / "support" / "vulnerable_environments.py"
REWARDS = (
    "read-files",
    "read-task",
    "write-reward",
    "replace-programs",
    "lurk-grader",
    "odd-names",
    "session-secrets",
)
"""Played on each weak environment beside its own attack."""
BORDERS = ("confinement", "secrets", "neighbours", "reach-")
STRAIN = ("output", "time-limit", "afterlife")
SANDBOXES = {
    "TestsInside": {"read-files"},
    "AnswerInside": {"read-task"},
    "HistoryInside": {"read-history"},
    "GraderLeft": {"read-while-graded"},
    "RewardFile": {"write-reward"},
    "PolicysPython": {"replace-programs"},
    "Libraries": {"replace-startup"},
    "InFolder": {"replace-modules"},
    "Pytest": {"replace-conftest"},
    "ResultsBack": {"lurk-results"},
    "GraderBrought": {"lurk-grader"},
    "Lenient": {"lurk-kill"},
    "StrictNames": {"odd-names"},
    "SecretInside": {"session-secrets"},
    "KeyInside": {"key-variables"},
}
CONTAINERS = {
    "Closed": set(),
    "Supervisor": {"read-memory"},
    "HostProcesses": {"see-processes", "neighbour-processes"},
    "KernelSettings": {"write-kernel-settings"},
    "Mounting": {"mount", "privileges"},
    "Clock": {"privileges"},
    "Devices": {"devices"},
    "Socket": {"engine-socket"},
    "HostNetwork": {"reach-server", "reach-neighbour"},
    "Bridge": {"reach-neighbour"},
    "SharedFolder": {"neighbour-files"},
}
STRAINED = {"Unbounded": {"output"}, "Endless": {"time-limit"}, "Undead": {"afterlife"}}


@pytest.fixture(scope="module")
def served() -> Iterator[ServerProcess]:
    with server(str(ENVIRONMENTS), options=["--sandboxes", "docker"]) as found:
        yield found
    with closing(docker.from_env()) as engine:
        for container in engine.containers.list(all=True, filters={"label": LABEL}):
            container.remove(force=True)


async def attacked(url: str, env: str, *names: str, options: Options | None = None) -> list[Result]:
    async with Target.open(url, env=env) as target, Bench.open(target, options) as bench:
        return [result async for result in run_attacks(bench, attacks_named(names))]


async def attacked_with_nothing(url: str, env: str) -> None:
    async with Target.open(url, env=env) as target, Bench.open(target):
        pass


def told(result: Result) -> tuple[str, str, str]:
    return result.attack.id, result.status, result.happened


def of(status: str, results: list[Result]) -> dict[str, str]:
    return {result.attack.id: result.happened for result in results if result.status == status}


async def test_a_sound_environment_holds_against_all(served: ServerProcess) -> None:
    results = await attacked(served.url, "sound")
    assert [result.attack for result in results] == list(ATTACKS)
    assert of("failed", results) == {}
    assert of("warning", results) == {}
    assert of("not tried", results).keys() == {"read-history", "read-while-graded", "replace-loader"}


@pytest.mark.parametrize("name", [*SANDBOXES])
async def test_a_weak_environment_falls_to_its_attack_alone(served: ServerProcess, name: str) -> None:
    if name == "HistoryInside" and shutil.which("git") is None:
        pytest.skip("needs git")
    results = await attacked(served.url, name, *REWARDS, *SANDBOXES[name])
    assert of("failed", results).keys() == SANDBOXES[name], [*map(told, results)]
    assert not of("warning", results)


@pytest.mark.parametrize("name", [*CONTAINERS])
async def test_a_weak_container_falls_to_its_attacks_alone(served: ServerProcess, name: str) -> None:
    results = await attacked(served.url, name, *BORDERS)
    assert of("failed", results).keys() == CONTAINERS[name], of("failed", results)
    assert not of("warning", results)


@pytest.mark.parametrize("name", [*STRAINED])
async def test_what_is_not_bounded(served: ServerProcess, name: str) -> None:
    results = await attacked(served.url, name, *STRAIN)
    assert of("failed", results).keys() == STRAINED[name], of("failed", results)


async def test_an_open_network_of_ours_leads_nowhere(served: ServerProcess) -> None:
    results = await attacked(served.url, "opennetwork", "reach-", "raw-packets")
    assert of("passed", results).keys() == {"reach-server", "reach-neighbour", "raw-packets"}, results


async def test_weaknesses_that_are_no_failures(served: ServerProcess) -> None:
    results = await attacked(served.url, "generous", "do-nothing", "write-reward")
    assert of("warning", results) == {"do-nothing": "the reward was 1"}
    assert "nothing to gain" in of("not tried", results)["write-reward"]
    assert of("warning", await attacked(served.url, "rawpackets", "raw-packets"))


async def test_other_tools_are_found_or_named(served: ServerProcess) -> None:
    for options in (None, Options(tool="run_python:code", final="final_answer", task="train:0")):
        results = await attacked(served.url, "pythontool", "write-reward", "see-processes", options=options)
        assert len(of("passed", results)) == 2, results
    results = await attacked(served.url, "closed", "write-reward", options=Options(final="done"))
    assert of("passed", results) == {"write-reward": "the reward was 0; doing nothing gets 0"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (Options(tool="no_such"), "has no tool 'no_such'; it has: bash, submit"),
        (Options(tool="bash:cmd"), "no parameter 'cmd'"),
        (Options(tool="submit"), "name one with --tool"),
        (Options(final="no_such"), "has no tool"),
        (Options(task="train"), "SPLIT:INDEX"),
        (Options(task="train:99"), "a session could not be made"),
    ],
)
async def test_wrong_options(served: ServerProcess, options: Options, said: str) -> None:
    with pytest.raises(Unreachable, match=said):
        await attacked(served.url, "sound", "do-nothing", options=options)


async def test_a_machine_without_a_sandbox_is_not_attacked(served: ServerProcess) -> None:
    before = {*Path(tempfile.gettempdir()).glob("canary*")}
    with pytest.raises(Unreachable, match="on the machine itself"):
        await attacked_with_nothing(served.url, "nosandbox")
    assert {*Path(tempfile.gettempdir()).glob("canary*")} <= before


def test_the_command(
    served: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    names = [word for name in ("write-reward", "secrets") for word in ("--only", name)]
    files = ["--json", str(tmp_path / "a.json"), "--junit", str(tmp_path / "a.xml")]
    words = ["check", served.url, "--attack", *names, *files]
    assert main([*words, "--env", "sound"]) == 0
    assert "3 passed, 0 warning, 0 failed, 0 not tried" in capsys.readouterr().out
    assert main([*words, "--env", "rewardfile"]) == 1
    said = capsys.readouterr().out
    assert "Why it matters: An environment that reads its reward" in said
    assert "What to change: Take the reward" in said
    assert "(bash, submit): 2 passed, 0 warning, 1 failed" in said
    told = json.loads((tmp_path / "a.json").read_text())
    assert told["counts"] == {"passed": 2, "warning": 0, "failed": 1, "not tried": 0}
    (failed,) = [each for each in told["attacks"] if each["status"] == "failed"]
    assert failed["id"] == "write-reward" and "to 1" in failed["happened"] and failed["change"]
    suites = ElementTree.parse(tmp_path / "a.xml").getroot()
    assert [(each.get("name"), each.get("failures")) for each in suites] == [
        ("grading", "1"),
        ("secrets", "0"),
    ]
    assert main(["check", served.url, "--attack", "--env", "generous", "--only", "do-nothing"]) == 0
    assert (
        main(["check", served.url, "--attack", "--env", "generous", "--only", "do-nothing", "--strict"]) == 1
    )
    assert main(["check", served.url, "--attack", "--only", "nothing-like-it"]) == 2
    capsys.readouterr()
    assert main(["check", "--attack", "--list", "--only", "resources"]) == 0
    assert "afterlife" in capsys.readouterr().out
