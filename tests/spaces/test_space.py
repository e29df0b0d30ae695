"""The folder of a Space, built by the real engine and run as the hub does: user 1000, few cores."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import docker
import httpx
import pytest

from ..interop.venvs import TRL, python_for
from ..support.documentation import ROOT
from ..support.engine import BASE, image, needs_engine
from ..support.nginx import nginx

pytestmark = [needs_engine, pytest.mark.timeout(900)]

DRIVER = ROOT / "tests" / "interop" / "drivers" / "trl_spec.py"
URL = "https://me-a-space.hf.space"
LABEL = "orsay.test.space"
BUILD_LIMIT_S = 600
START_S = 60.0
KEYS = {"ORSAY_API_KEYS": '["first-key", "second-key"]'}


def built(project: Path, folder: Path, base: str) -> str:
    """Id of the image that the dry run of ``project`` becomes on that base."""
    command = ["push", str(project), "--space", "me/a-space", "--dry-run", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "orsay", *command], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    with closing(docker.from_env(timeout=BUILD_LIMIT_S)) as client:
        made, _ = client.images.build(
            path=str(folder), buildargs={"BASE": base}, rm=True, forcerm=True, labels={LABEL: "image"}
        )
        return str(made.id)


@contextmanager
def removed_at_the_end(made: str) -> Iterator[str]:
    try:
        yield made
    finally:
        with closing(docker.from_env(timeout=60)) as client:
            client.images.remove(made, force=True)


@pytest.fixture(scope="module")
def echo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("echo") / "space"


@pytest.fixture(scope="module")
def echo(echo_folder: Path) -> Iterator[str]:
    """Of the bundled environment echo, on an image that has Python and nothing else."""
    with removed_at_the_end(built(ROOT / "envs" / "echo", echo_folder, BASE)) as made:
        yield made


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a project that ``orsay init`` wrote, on Orsay's base image."""
    place = tmp_path_factory.mktemp("fresh")
    subprocess.run(
        [sys.executable, "-m", "orsay", "init", "walls", "--into", str(place)],
        capture_output=True,
        timeout=60,
        check=True,
    )
    with removed_at_the_end(built(place / "walls", place / "space", image("base"))) as made:
        yield made


class Running:
    """A container as the hub starts one."""

    def __init__(self, container: Any) -> None:
        self.container = container
        self.url = ""

    def wait(self) -> None:
        """Until it has printed that it serves; its address is known then."""
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            self.container.reload()
            assert self.container.status == "running", self.log()
            if places := self.container.ports.get("8080/tcp"):
                self.url = f"http://127.0.0.1:{places[0]['HostPort']}"
                with contextlib.suppress(httpx.TransportError):
                    answer = httpx.get(f"{self.url}/ready", timeout=5)
                    if answer.status_code == 200 and "Orsay serves" in self.log():
                        return
            time.sleep(0.1)
        raise TimeoutError(self.log())

    def log(self) -> str:
        text: bytes = self.container.logs()
        return text.decode()

    def processes(self) -> list[str]:
        """Their command lines."""
        top = self.container.top(ps_args="-o pid,user,args")
        return [row[-1] for row in top["Processes"]]


@contextmanager
def running(made: str, variables: Mapping[str, str] | None = None, *, cores: float = 1) -> Iterator[Running]:
    with closing(docker.from_env(timeout=60)) as client:
        container = client.containers.run(
            made,
            detach=True,
            user="1000",
            read_only=True,
            nano_cpus=int(cores * 1e9),
            mem_limit="2g",
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            environment=dict(variables or {}),
            ports={"8080/tcp": ("127.0.0.1", None)},
            labels={LABEL: "container"},
        )
        try:
            yield Running(container)
        finally:
            container.remove(force=True)


def by_its_readme(folder: Path, python: Path, language: str, url: str, **variables: str) -> str:
    """What the block of code after that word in the README prints, run at another address of the Space."""
    text = (folder / "README.md").read_text()
    code = text.partition(language)[2].partition("```python\n")[2].partition("```")[0]
    assert URL in code and len(code.splitlines()) <= 4
    lines = code.replace(URL, url) + "\nprint(spec.train_dataset[0]['target'], spec.environment_factory())"
    done = subprocess.run(
        [str(python), "-c", lines],
        env={**os.environ, "TRL_EXPERIMENTAL_SILENCE": "1", **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def trains(url: str, calls: list[list[list[Any]]], **variables: str) -> dict[str, Any]:
    """What TRL's OpenRewardSpec makes of the server."""
    plans = [{"url": url, "num_tasks": len(calls), "split": "train", "calls": calls}]
    done = subprocess.run(
        [str(python_for("trl", TRL)), str(DRIVER), json.dumps(plans)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (report,) = json.loads(done.stdout.strip().splitlines()[-1])
    return dict(report)


@pytest.mark.venv
def test_trl_trains_on_a_bundled_environment(echo: str) -> None:
    right, wrong = [["echo", {"text": "$target"}]], [["echo", {"text": "nonsense"}]]
    with running(echo) as space:
        space.wait()
        seen = trains(space.url, [right, wrong])
        workers = [each for each in space.processes() if "orsay.runtimes.process.worker" in each]
    assert seen["scores"] == [1.0, 0.0]
    assert len(workers) == 1, "one worker for the one core of the quota, however many the machine has"


@pytest.mark.venv
def test_the_lines_of_its_readme_work_through_tls(echo: str, echo_folder: Path, tmp_path: Path) -> None:
    """As somebody else pastes them: at an https address, where a proxy is in front of the container."""
    with running(echo) as space:
        space.wait()
        with nginx(space.url, tmp_path) as proxy:
            trl = python_for("trl", TRL)
            trusting = {"SSL_CERT_FILE": str(proxy.certificate)}
            assert by_its_readme(echo_folder, trl, "With TRL", proxy.url, **trusting).startswith("hello")
            answer = httpx.get(f"{proxy.url}/docs/", verify=proxy.trust())
            assert answer.status_code == 200 and "http://" not in answer.text


def test_the_other_lines_of_its_readme_work(echo: str, echo_folder: Path) -> None:
    """Without TLS: the certificates that our client believes are the public ones."""
    pytest.importorskip("trl", reason="needs the extra 'trl'")
    with running(echo) as space:
        space.wait()
        shown = by_its_readme(echo_folder, Path(sys.executable), "With Orsay", space.url)
        assert shown.startswith("hello")


@pytest.mark.venv
def test_trl_trains_on_a_new_project(fresh: str) -> None:
    with running(fresh) as space:
        space.wait()
        seen = trains(space.url, [[["submit", {"text": "enots"}]], [["submit", {"text": "river"}]]])
    assert seen["scores"] == [1.0, 0.0]


@pytest.mark.venv
def test_anybody_gets_in_until_there_are_keys(echo: str) -> None:
    with running(echo) as space:
        space.wait()
        assert httpx.get(f"{space.url}/list_environments").status_code == 200
        assert httpx.get(f"{space.url}/docs/").status_code == 200
    with running(echo, KEYS) as space:
        space.wait()
        assert httpx.get(f"{space.url}/list_environments").status_code == 401
        for key in ("first-key", "second-key"):
            answer = httpx.get(f"{space.url}/list_environments", headers={"X-API-Key": key})
            assert answer.json() == ["echoenvironment"]
        plan = [[["echo", {"text": "$target"}]]]
        assert trains(space.url, plan, OPENREWARD_API_KEY="second-key")["scores"] == [1.0]


def test_the_proxy_of_the_hub_is_trusted_and_a_stop_is_handled(echo: str) -> None:
    with running(echo, KEYS) as space:
        space.wait()
        headers = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}
        assert httpx.get(f"{space.url}/splits", headers=headers).status_code == 401
        space.container.stop(timeout=40)
        log = space.log()
        assert space.container.wait(timeout=10)["StatusCode"] == 0, log
    assert "203.0.113.9" in log and "shutting_down" in log


def test_a_share_of_a_core_is_one_worker_and_more_than_one_are_two(echo: str) -> None:
    """The quota is looked at, not the cores of the machine."""
    with closing(docker.from_env(timeout=60)) as client:
        for cores, workers in ((0.5, 1), (1.0, 1), (1.5, 2)):
            startup = client.containers.run(
                echo,
                ["orsay", "serve", "--settings"],
                nano_cpus=int(cores * 1e9),
                user="1000",
                read_only=True,
                remove=True,
                labels={LABEL: "container"},
            ).decode()
            here = min(workers, len(os.sched_getaffinity(0)))
            assert re.search(rf"^ORSAY_WORKERS={here}\b", startup, re.MULTILINE), startup
