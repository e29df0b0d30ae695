"""``orsay push`` against a stand-in of the hub: what arrives, in which order, and what is said else."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import servers
from tests.support.terminal import at_terminal

from .hub_server import TOKEN, Hub, Space, hub

pytestmark = pytest.mark.process

huggingface_hub = pytest.importorskip("huggingface_hub", reason="needs the extra 'hub'")

LIMIT_S = 60.0
SECRET = "a-value-nobody-may-see"


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def everything(self) -> str:
        return self.out + self.err


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that ``orsay init`` wrote, with things in it that are nobody's business."""
    into = tmp_path_factory.mktemp("written")
    orsay("init", "walls", "--into", str(into))
    folder = into / "walls"
    (folder / ".env").write_text("PASSWORD=hunter2")
    (folder / "walls" / "__pycache__").mkdir()
    (folder / "walls" / "__pycache__" / "env.pyc").write_bytes(b"\0")
    (folder / "walls" / "map.bin").write_bytes(bytes(range(256)) * 40)
    (folder / ".gitignore").write_text("*.whl\n*.bin\n")
    return folder


@pytest.fixture
def project(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "walls"))


@pytest.fixture
def there() -> Iterator[Hub]:
    """A hub on which everything runs at once."""
    with hub(stages=("RUNNING",)) as found:
        yield found


@pytest.fixture
def building() -> Iterator[Hub]:
    """A hub that takes as long as the command waits before it asks again."""
    with hub(stages=("BUILDING", "APP_STARTING", "RUNNING")) as found:
        yield found


def orsay(*arguments: str, **variables: str) -> Done:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ORSAY_", "HF_"))}
    done = servers.orsay(*arguments, env={**kept, **variables}, timeout=LIMIT_S)
    return Done(done.returncode, done.stdout, done.stderr)


def push(
    to: Hub,
    project: Path,
    *options: str,
    space: str = "me/walls",
    package: str | None = "orsay",
    **variables: str,
) -> Done:
    """As a person whose token is in HF_TOKEN, and who has no other.

    Without ``package`` the Space gets a wheel of the orsay that runs here, which takes a while to pack.
    """
    here = {
        "HF_ENDPOINT": to.url,
        "HF_TOKEN": TOKEN,
        "HF_HOME": str(project.parent / "hf"),
        "HF_HUB_DISABLE_XET": "1",  # that protocol is between two libraries of the hub's own
        "HF_HUB_DISABLE_TELEMETRY": "1",
        **variables,
    }
    wanted = [] if package is None else ["--orsay", package]
    done = orsay("push", str(project), "--space", space, *wanted, *options, **here)
    assert TOKEN not in done.everything and SECRET not in done.everything
    assert "Traceback" not in done.err
    return done


def dry(project: Path, into: Path, *options: str) -> dict[str, bytes]:
    done = orsay("push", str(project), "--space", "me/walls", "--dry-run", str(into), *options)
    assert done.code == 0, done.err
    return {str(path.relative_to(into)): path.read_bytes() for path in into.rglob("*") if path.is_file()}


def test_what_arrives_is_the_folder_of_a_dry_run_byte_for_byte(there: Hub, project: Path) -> None:
    wheel = project.parent / "orsay-0.1.0-py3-none-any.whl"
    wheel.write_bytes(bytes(range(256)) * 1000)
    done = push(there, project, package=str(wheel))
    assert done.code == 0, done.err
    files = there.spaces["me/walls"].files
    expected = dry(project, project.parent / "space", "--orsay", str(wheel))
    assert {path: data for path, data in files.items() if path != ".gitattributes"} == expected
    assert files["walls/map.bin"] == bytes(range(256)) * 40
    assert not [path for path in files if "__pycache__" in path or path == ".env"]
    assert files[wheel.name] == wheel.read_bytes()
    assert len(there.spaces["me/walls"].commits) == 1


def test_the_address_and_the_lines_to_train_are_printed(building: Hub, project: Path) -> None:
    done = push(building, project, space="me/My_Walls.v2")
    assert done.code == 0, done.err
    assert "https://me-my-walls-v2.hf.space is up" in done.out
    assert 'EnvironmentSpec("https://me-my-walls-v2.hf.space")' in done.out
    readme = building.spaces["me/My_Walls.v2"].files["README.md"].decode()
    assert 'OpenRewardSpec("https://me-my-walls-v2.hf.space")' in readme
    for stage in ("building", "app starting", "running"):
        assert stage in done.err


def test_secrets_and_variables_are_there_before_the_files(there: Hub, project: Path) -> None:
    options = ["--secret", "JUDGE_KEY", "--secret", f"OTHER={SECRET}", "--variable", "LEVEL=3=hard"]
    done = push(there, project, *options, "--hardware", "cpu-upgrade", JUDGE_KEY=SECRET + "-too")
    assert done.code == 0, done.err
    space = there.spaces["me/walls"]
    assert space.secrets == {"JUDGE_KEY": SECRET + "-too", "OTHER": SECRET}
    assert space.variables == {"LEVEL": "3=hard"}
    assert space.hardware == "cpu-upgrade"
    assert there.order() == ["create", "secrets", "secrets", "variables", "hardware", "commit"]
    assert not any(SECRET.encode() in data for data in space.files.values())


def test_a_second_push_sends_what_changed_and_takes_away_what_is_gone(there: Hub, project: Path) -> None:
    assert push(there, project).code == 0
    (project / "walls" / "map.bin").unlink()
    (project / "walls" / "env.py").write_text((project / "walls" / "env.py").read_text() + "\n# more\n")
    done = push(there, project, "--message", "Lower the walls")
    assert done.code == 0, done.err
    space = there.spaces["me/walls"]
    assert "walls/map.bin" not in space.files and ".gitattributes" in space.files
    assert space.files["walls/env.py"].endswith(b"\n# more\n")
    assert [commit["summary"] for commit in space.commits] == ["Push the environment", "Lower the walls"]
    assert "deleting 1" in done.err


def test_a_push_that_changes_nothing_makes_no_commit(there: Hub, project: Path) -> None:
    wheel = project.parent / "orsay-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"the same in both")
    for _ in range(2):
        done = push(there, project, package=str(wheel))
        assert done.code == 0, done.err
    assert len(there.spaces["me/walls"].commits) == 1


def test_a_gitignore_in_the_space_keeps_nothing_out(there: Hub, project: Path) -> None:
    there.spaces["me/walls"] = Space(files={".gitignore": b"*.whl\n*.bin\n"})
    done = push(there, project, "--force", package=None)
    assert done.code == 0, done.err
    files = there.spaces["me/walls"].files
    assert "walls/map.bin" in files and [path for path in files if path.endswith(".whl")]


def test_a_private_space_is_made_private(there: Hub, project: Path) -> None:
    assert push(there, project, "--private").code == 0
    assert there.spaces["me/walls"].private


def test_a_public_space_is_not_taken_for_a_private_one(there: Hub, project: Path) -> None:
    there.spaces["me/walls"] = Space(private=False)
    done = push(there, project, "--private", "--secret", f"JUDGE={SECRET}")
    assert done.code == 1 and "already and is public" in done.err
    assert there.order() == ["create"], "nothing may be sent to it"


def test_a_space_of_somebody_elses_making_is_not_overwritten(there: Hub, project: Path) -> None:
    work = Space(files={".gitattributes": b"", "README.md": b"", "app.py": b"print()"})
    there.spaces["me/walls"] = work
    done = push(there, project)
    assert done.code == 1 and "app.py" in done.err and "--force" in done.err
    assert not work.commits
    assert push(there, project, "--force").code == 0
    assert "app.py" not in work.files and "Dockerfile" in work.files


@pytest.mark.parametrize("names_commits", [True, False])
def test_a_state_from_before_the_push_is_not_believed(project: Path, names_commits: bool) -> None:
    """While nothing is built yet the hub reports how the last build went."""
    stages = ("BUILD_ERROR", "BUILD_ERROR", "BUILDING", "RUNNING")
    with hub(stages=stages, names_commits=names_commits, late=2) as there:
        done = push(there, project)
    assert done.code == 0, done.err
    assert "is up" in done.out


@pytest.mark.parametrize(
    ("stage", "says", "log"),
    [
        ("BUILD_ERROR", "its image cannot be built", "logs=build"),
        ("RUNTIME_ERROR", "its server does not start", "logs=container"),
        ("CONFIG_ERROR", "front matter", "logs=container"),
    ],
)
def test_a_failed_build_is_a_failure_that_shows_the_log(
    project: Path, stage: str, says: str, log: str
) -> None:
    lines = [f"line {number}\n" for number in range(100)] + [f"no such package, key {SECRET}\n"]
    with hub(stages=("BUILDING", stage), error="exit code 1", log=lines) as there:
        done = push(there, project, "--secret", f"JUDGE={SECRET}")
    assert done.code == 1
    assert says in done.err and "exit code 1" in done.err and f"/spaces/me/walls?{log}" in done.err
    if stage != "CONFIG_ERROR" and hasattr(huggingface_hub, "fetch_space_logs"):
        assert "no such package, key [hidden]" in done.err and "line 99" in done.err
        assert "line 3\n" not in done.err, "the end of the log is enough"


def test_a_paused_space_is_reported_as_paused(project: Path) -> None:
    with hub(stages=("PAUSED",)) as there:
        done = push(there, project)
    assert done.code == 1 and "its state is PAUSED" in done.err and "/settings" in done.err


def test_waiting_has_an_end(project: Path) -> None:
    with hub(stages=("BUILDING",)) as there:
        done = push(there, project, "--time-limit", "1")
    assert done.code == 1 and "not up after" in done.err


def test_nobody_has_to_wait(project: Path) -> None:
    with hub(stages=("BUILDING",)) as there:
        done = push(there, project, "--no-wait")
        assert not [each for each in there.requests if each.path.endswith("/runtime")]
    assert done.code == 0 and "when the hub has built them" in done.out


def test_a_hub_that_stumbles_while_it_builds_is_asked_again(building: Hub, project: Path) -> None:
    path = "GET /api/spaces/me/walls/runtime"
    building.refuse[path] = (502, {"error": "Bad Gateway"})
    usual = building.answer

    def answer(request: object) -> object:
        if len([each for each in building.requests if each.path.endswith("/runtime")]) > 2:
            building.refuse.clear()
        return usual(request)  # type: ignore[arg-type]  # as it came

    building.answer = answer  # type: ignore[method-assign, assignment]  # to stumble and to recover
    done = push(building, project)
    assert done.code == 0, done.err


def test_without_a_login_the_error_says_how_to_log_in(there: Hub, project: Path) -> None:
    done = push(there, project, HF_TOKEN="")
    assert done.code == 1 and "hf auth login" in done.err and "HF_TOKEN" in done.err
    assert not there.requests


def test_a_wrong_token_is_distinguished_from_none(there: Hub, project: Path) -> None:
    done = push(there, project, HF_TOKEN="hf_wrong")
    assert done.code == 1 and "the token is wrong" in done.err and "hf_wrong" not in done.everything


def test_an_option_gives_another_token(there: Hub, project: Path) -> None:
    assert push(there, project, "--token", TOKEN, HF_TOKEN="hf_wrong").code == 0


def test_a_token_that_may_only_read_is_refused_before_anything_is_made(project: Path) -> None:
    with hub(role="read") as there:
        done = push(there, project)
        assert done.code == 1 and "may only read" in done.err
        assert there.order() == []


def test_no_right_to_the_owner_is_reported(there: Hub, project: Path) -> None:
    done = push(there, project, space="somebody/walls")
    assert done.code == 1
    assert (
        'rights to create a space under the namespace "somebody"' in done.err and "organisation" in done.err
    )


def test_a_hub_that_does_not_answer_is_reported(there: Hub, project: Path) -> None:
    done = push(there, project, HF_ENDPOINT="http://127.0.0.1:9")
    assert done.code == 1 and "does not answer" in done.err and "HF_ENDPOINT" in done.err


def test_a_front_matter_that_the_hub_refuses_is_reported(there: Hub, project: Path) -> None:
    refusal = {"errors": [{"message": '"colorFrom" must be one of [red, blue]'}], "warnings": []}
    there.refuse["POST /api/validate-yaml"] = (400, refusal)
    done = push(there, project)
    assert done.code == 1 and "colorFrom" in done.err
    assert not there.spaces["me/walls"].commits


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--space", "walls"], "names no Space"),
        (["--space", "me/wa--lls"], "cannot be part of a Space's name"),
        (["--space", "me/wälle"], "cannot be part of a Space's name"),
        (["--secret", "NOT_THERE"], "no variable NOT_THERE"),
        (["--secret", "EMPTY="], "the value is empty"),
        (["--secret", "a-b=c"], "is no name of a variable"),
        (["--secret", f"ORSAY_API_KEYS={SECRET}"], "no JSON list of keys"),
        (["--variable", "LEVEL"], "give its value"),
        (["--variable", f'ORSAY_API_KEYS=["{SECRET}"]'], "everybody can read variables"),
        (["--secret", f"LEVEL={SECRET}", "--variable", "LEVEL=3"], "as a secret and as a variable"),
    ],
)
def test_a_wrong_command_line_sends_nothing(there: Hub, project: Path, options: list[str], says: str) -> None:
    done = push(there, project, *options)
    assert done.code == 2 and says in done.err
    assert not there.requests


def test_without_the_package_the_error_says_what_to_install(project: Path, tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "huggingface_hub.py").write_text("raise ImportError('not installed')\n")
    with hub() as there:
        done = push(there, project, PYTHONPATH=str(tmp_path / "hidden"))
    assert done.code == 1 and "pip install 'orsay[hub]'" in done.err and "--dry-run" in done.err
    assert (
        orsay(
            "push",
            str(project),
            "--space",
            "me/w",
            "--dry-run",
            str(tmp_path / "dry"),
            PYTHONPATH=str(tmp_path / "hidden"),
        ).code
        == 0
    )


def test_a_failure_is_believed_once_something_was_built(project: Path) -> None:
    """However the hub names commits: to wait for the time limit would help nobody."""
    with hub(stages=("BUILDING", "BUILD_ERROR"), late=1_000_000) as there:
        done = push(there, project)
    assert done.code == 1 and "its image cannot be built" in done.err


def test_on_a_terminal_the_stage_and_the_time_are_one_line(building: Hub, project: Path) -> None:
    """And what is left on the screen at the end is the address."""
    here = {"HF_ENDPOINT": building.url, "HF_TOKEN": TOKEN, "HF_HOME": str(project.parent / "hf")}
    shown, code = on_a_terminal(
        [sys.executable, "-m", "orsay", "push", str(project), "--space", "me/walls"],
        {**here, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TERM": "xterm"},
    )
    assert code == 0, shown
    assert re.search(r"building, \d+ s", shown) and re.search(r"running, \d+ s", shown)
    assert "https://me-walls.hf.space is up" in shown and TOKEN not in shown


def test_what_the_hub_says_is_text_on_a_terminal(project: Path) -> None:
    """Brackets are no markup, and nothing of it is a control."""
    with hub(stages=("BUILDING", "ODD[/red]\x9b2J\u202e")) as there:
        here = {"HF_ENDPOINT": there.url, "HF_TOKEN": TOKEN, "HF_HOME": str(project.parent / "hf")}
        shown, code = on_a_terminal(
            [sys.executable, "-m", "orsay", "push", str(project), "--space", "me/walls"],
            {**here, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TERM": "xterm"},
        )
    assert code == 1, shown
    assert "its state is ODD[/red]\\u009b2J\\u202e" in shown and "odd[/red]" in shown
    assert "\x9b" not in shown and "\u202e" not in shown and "Traceback" not in shown


def on_a_terminal(command: list[str], variables: dict[str, str]) -> tuple[str, int]:
    """What a command writes to a terminal, and its exit code."""
    shown, code = at_terminal(command, variables)
    return shown.decode(errors="replace"), code
