"""``self.sandbox`` and ``orsay.sandbox``: in sessions of a server, and in a process without one."""

from __future__ import annotations

import asyncio
import errno
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import AsyncMock

import httpx
import pytest
import pytest_asyncio
from orsay import Sandbox, sandbox
from orsay.authoring.sandbox import artifacts
from orsay.authoring.sandbox.model import SandboxOptions
from orsay.authoring.sandbox.remote import RemoteSandboxes
from orsay.errors import ImageMissing, OrsayError, SandboxError, SandboxGone, SandboxRefused
from orsay.runtimes.docker.engine import Engine
from orsay_client import AsyncClient
from orsay_client.errors import TimeLimit, WorkerLost

from ..support.backends import KINDS
from ..support.bubblewrap import skip_without_bubblewrap
from ..support.engine import ROOT, needs_engine
from ..support.sandboxes import comes_true
from ..support.server_process import ServerProcess, server

ENVIRONMENTS = str(ROOT / "tests" / "support" / "author_environments.py")
KEY = "key-of-the-trainer"
Gone: TypeAlias = Callable[[str], Awaitable[None]]


@pytest.fixture(scope="module", autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder for what bubblewrap keeps, for servers and scripts."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TMPDIR", str(folder))
        yield folder


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("bubblewrap", "process"), id="bubblewrap", marks=pytest.mark.process),
        pytest.param(("docker", "process"), id="docker", marks=pytest.mark.engine),
        pytest.param(("docker", "local"), id="docker, local", marks=pytest.mark.engine),
    ],
)
def served(request: pytest.FixtureRequest, state: Path) -> Iterator[ServerProcess]:
    kind, runtime = request.param
    if kind == "bubblewrap":
        skip_without_bubblewrap()
    options = ["--sandboxes", kind, "--runtime", runtime]
    with server(ENVIRONMENTS, options=options, api_keys=[KEY], sandboxes_idle_limit_s=5) as found:
        yield found


@pytest_asyncio.fixture
async def environment(served: ServerProcess) -> AsyncIterator[Any]:
    async with AsyncClient(served.url, api_key=KEY) as client:
        yield client.environment("bench")


def text(output: Any) -> str:
    return str(output.blocks[0].text)


@pytest.fixture
def gone(request: pytest.FixtureRequest, state: Path) -> Gone:
    """Wait until the back end of the test has nothing of a sandbox."""
    by_engine = request.node.get_closest_marker("engine") is not None

    async def is_gone(sandbox_id: str) -> bool:
        if not by_engine:
            return not [*state.glob(f"orsay-sandboxes-*/*/{sandbox_id}.*")]
        async with await Engine.connect() as engine:
            return await engine.containers({"orsay.sandbox": sandbox_id}) == []

    async def waited(sandbox_id: str) -> None:
        await comes_true(lambda: is_gone(sandbox_id))

    return waited


async def test_an_episode_with_a_sandbox_and_an_isolated_grader(environment: Any, gone: Gone) -> None:
    async with environment.session(split="train", index=0) as session:
        told = json.loads(text(await session.call("many", {})))
        sandbox_id = told.pop("id")
        assert told == {
            "slow": ["early\n", 124, True],
            "greeting": "hello\n/work\n",
            "stdin": "typed",
            "bytes": True,
            "names": ["bytes", "numbers"],
        }
        said = await session.call("shell", {"command": "paste -sd+ /work/in/numbers | (read l; echo $((l)))"})
        assert text(said) == "42\n"
        await session.call("shell", {"command": "echo 42 > /work/answer"})
        await asyncio.sleep(6)  # longer than the idle limit: a sandbox of a session ends with the session
        assert (await session.call("submit", {})).reward == 1.0
    await gone(sandbox_id)


async def test_what_a_policy_changes_does_not_reach_the_grader(environment: Any) -> None:
    async with environment.session(split="train", index=0) as session:
        cheat = "ln -sf /bin/true $(command -v python3); echo 41 > /work/answer; rm -rf /work/in; echo done"
        assert text(await session.call("shell", {"command": cheat})) == "done\n"
        assert (await session.call("submit", {})).reward == 0.0


async def test_a_forgotten_sandbox_ends_with_its_session(environment: Any, gone: Gone) -> None:
    async with environment.session(split="train", index=0) as session:
        forgotten = text(await session.call("another", {}))
    await gone(forgotten)


async def test_a_fork_in_a_session(environment: Any) -> None:
    async with environment.session(split="train", index=0) as session:
        assert text(await session.call("fork", {})) == "kept"


async def test_code_that_is_not_async(environment: Any, gone: Gone) -> None:
    async with environment.session(split="train", index=0) as session:
        said, size, sandbox_id = text(await session.call("blocking", {})).splitlines()
        assert (said, size) == ("b", "2")
        await gone(sandbox_id)


async def test_a_tool_past_its_limit_leaves_no_command(environment: Any, gone: Gone, tmp_path: Path) -> None:
    async with environment.session(split="train", index=0) as session:
        with pytest.raises(TimeLimit):
            await session.call("stuck", {"note": str(tmp_path / "id")})
        await gone((tmp_path / "id").read_text())


async def test_a_lost_sandbox_is_no_mistake_of_the_author(environment: Any) -> None:
    async with environment.session(split="train", index=0) as session:
        with pytest.raises(WorkerLost, match=r"sandbox .* was closed"):
            await session.call("lose", {})


@pytest.mark.parametrize(("index", "said"), [(1, "no/such-image:1"), (2, "moon")])
async def test_options_that_cannot_be(environment: Any, index: int, said: str) -> None:
    with pytest.raises(Exception, match=said):
        async with environment.session(split="train", index=index) as session:
            await session.prompt()


async def test_an_allow_list_of_names(environment: Any) -> None:
    ask = "import urllib.request as r; r.urlopen('http://example.org/')"
    async with environment.session(split="train", index=3) as session:
        said = await session.call("shell", {"command": f'python3 -c "{ask}"'})
        assert "HTTP Error 403: Forbidden" in text(said)
        said = await session.call("shell", {"command": "tail -n +3 /proc/net/dev | cut -d: -f1"})
        assert text(said).strip() == "lo"


async def test_a_list_with_what_is_no_name_is_refused(served: ServerProcess) -> None:
    async with httpx.AsyncClient(base_url=served.url, headers={"X-API-Key": KEY}) as http:
        for network, said in (
            (["10.0.0.1"], "'10.0.0.1' cannot be on an allow-list"),
            ([], "write none"),
            ("moon", "network"),
        ):
            answer = await http.post("/orsay/sandboxes/create", json={"network": network})
            assert answer.status_code == 400 and said in answer.text


# toolsets


async def test_the_toolsets_of_the_package(served: ServerProcess) -> None:
    async with AsyncClient(served.url, api_key=KEY) as client:
        environment = client.environment("workshop")
        async with environment.session(split="train", index=0) as session:

            async def use(name: str, **parameters: Any) -> str:
                return text(await session.call(name, parameters))

            begins = (await use("bash", command="cd /usr; X=1; echo $OLDPWD")).strip()
            assert await use("bash", command="echo $X$PWD; exit 3") == f"{begins}\n[exit code 3]"
            assert await use("bash", command="cd /work; ls") == "main.py\n"
            assert await use("bash", command="true") == "[no output]"
            assert (await use("bash", command="sleep 9", timeout_s=1)).startswith("[killed after its time")
            assert "timeout_s must be" in await use("bash", command="true", timeout_s=-1)
            long = await use("bash", command="seq 100000")
            assert long.startswith("1\n2\n") and "characters are left out" in long and len(long) < 17_000
            assert await use("view_file", path="/work") == "main.py"
            viewed = await use("view_file", path="work/main.py", first_line=2)
            assert viewed == "     2\tprint('two')"
            assert "No such file" in await use("view_file", path="/none")
            assert "occurs 2 times" in await use(
                "replace_in_file", path="/work/main.py", old="print", new="x"
            )
            await use("replace_in_file", path="/work/main.py", old="'one'", new="'ONE'")
            await use("insert_in_file", path="/work/main.py", after_line=1, text="print('zero')")
            assert "must be" in await use("view_file", path="/work/main.py", first_line=9)
            await use("write_file", path="/work/deep/other", text="äöü")
            assert await use("bash", command="cat /work/deep/other") == "äöü"
            await use("bash", command="ln -s /etc/passwd /work/link; head -c 9 /dev/urandom > /work/raw")
            assert "link" in await use("view_file", path="/work/link")
            assert "UTF-8" in await use("view_file", path="/work/raw")
            done = await session.call("submit", {})
            assert (done.reward, done.finished) == (1.0, True)


@pytest.mark.parametrize("name", ["cli", "claude-code", "codex"])
async def test_toolsets_of_openreward_on_our_sandbox(served: ServerProcess, name: str) -> None:
    pytest.importorskip("openreward", reason="needs the package openreward")
    async with AsyncClient(served.url, api_key=KEY) as client:
        environment = client.environment("foreign")
        async with environment.session(split="train", index=0, toolset=name) as session:
            tools = {each.name: each for each in await session.tools()}
            (shell,) = [each for each in ("bash", "Bash", "shell", "exec_command") if each in tools][:1]
            command: Any = ["bash", "-lc", "cat /work/a.txt"] if shell == "shell" else "cat /work/a.txt"
            field = "cmd" if shell == "exec_command" else "command"
            more = {"description": "look"} if name == "claude-code" else {}
            assert "alpha" in text(await session.call(shell, {field: command, **more}))


async def test_the_environment_of_the_documentation(chosen: str) -> None:
    path = str(ROOT / "docs" / "examples" / "sandboxes" / "repair.py")
    images = {"python:3.11-slim": "host"} if chosen == "bubblewrap" else {}
    with server(path, options=["--sandboxes", chosen], sandboxes_images=images) as one:
        async with AsyncClient(one.url) as client:
            for repaired, reward in (("print(sum(map(int, input().split())))", 0.0), (_REPAIRED, 1.0)):
                async with client.environment("repair").session(split="train", index=0) as session:
                    await session.call("write_file", {"path": "/work/total.py", "text": repaired})
                    assert (await session.call("submit", {})).reward == reward


_REPAIRED = "import sys\nprint(sum(map(int, sys.stdin.read().split())))"


# without a server


@needs_engine
def test_the_script_of_the_documentation() -> None:
    path = ROOT / "docs" / "examples" / "sandboxes" / "script.py"
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("42\n\nPRETTY_NAME")


@pytest.fixture(params=KINDS)
def chosen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The back end of scripts."""
    if request.param == "bubblewrap":
        skip_without_bubblewrap()
    monkeypatch.setenv("ORSAY_SANDBOXES_BACKEND", request.param)
    return str(request.param)


@pytest_asyncio.fixture
async def box(chosen: str) -> AsyncIterator[Sandbox]:
    files = {"/work/a": "one", "/work/deep/b": "two"}
    async with sandbox(memory="256m", files=files, env={"SET": "1"}) as found:
        yield found


async def test_a_script_makes_its_own(box: Sandbox, tmp_path: Path) -> None:
    assert (await box.run("cat /work/a /work/deep/b; echo $SET")).output == "onetwo1\n"
    (tmp_path / "up").write_bytes(b"\0" * 1000)
    (tmp_path / "up").chmod(0o750)
    await box.upload(tmp_path / "up", "/new/up")
    assert (await box.stat("/new/up")).mode & 0o777 == 0o750
    await box.download("/new/up", tmp_path / "down")
    assert (tmp_path / "down").read_bytes() == b"\0" * 1000
    assert await box.exists("/new") and not await box.exists("/new/none/there")
    with pytest.raises(FileNotFoundError):
        await box.read("/none")
    await box.run("ln -s /etc/passwd /link")
    with pytest.raises(OSError) as caught:
        await box.read("/link")
    assert caught.value.errno == errno.ELOOP
    with pytest.raises(SandboxError, match="ended with 3: why"):
        await box.check("echo why; exit 3")


async def test_artifacts_are_plain_files(box: Sandbox) -> None:
    await box.run("cd /work && chmod 640 a && ln -s /etc/passwd link && mkfifo pipe && mkdir -p empty")
    found = await box.artifacts(["/work", "/work/missing", "/work/a/b"])
    assert found == {"/work/a": (b"one", 0o640), "/work/deep/b": (b"two", 0o644)}


async def test_grading_in_the_same_sandbox(box: Sandbox) -> None:
    apart = await box.grade("ls /work", artifacts=["/work/deep"], files={"/grader/x": "y"})
    same = await box.grade("ls /work", files={"/grader/x": "y"}, isolated=False)
    assert (apart.output, same.output) == ("deep\n", "a\ndeep\n")


@pytest.mark.parametrize(
    ("cheat", "left_out"),
    [
        ("rm -rf deep; echo x > tests", ("/work/tests",)),
        ("mkdir -p tests/run.py; echo x > tests/run.py/y", ("/work/tests/run.py/y",)),
        ("truncate -s 300M large", ("/work/large",)),
        ("f=$(printf 'd%.0s' $(seq 200)); for i in $(seq 30); do mkdir $f; cd $f; done", None),
        ("mkfifo p; ln -s /dev/zero l; printf x > $'\\xff'; printf y > '?'", ()),
    ],
    ids=["file for folder", "folder for file", "large", "deep", "odd"],
)
async def test_whatever_a_policy_leaves_it_is_graded(
    box: Sandbox, cheat: str, left_out: tuple[str, ...] | None
) -> None:
    assert (await box.run(cheat, cwd="/work")).ok
    graded = await box.grade(
        "bash /work/tests/run.py; cat /work/a",
        artifacts=["/work"],
        files={"/work//tests/run.py": "printf mine-"},
    )
    assert graded.output == "mine-one"
    if left_out is None:
        (one,) = graded.left_out
        assert len(one) > 4000
    else:
        assert graded.left_out == left_out


async def test_artifacts_end_at_their_bounds(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    await box.run("mkdir /m; cd /m; for i in 1 2 3 4 5 6 7; do echo $i > $i; done; head -c 99 /dev/zero > 5")
    monkeypatch.setattr(artifacts, "_LARGEST", 100)
    assert [*await box.artifacts(["/m"])] == [f"/m/{i}" for i in (1, 2, 3, 4, 6, 7)]
    assert [*await box.artifacts(["/m/5"])] == ["/m/5"]
    monkeypatch.setattr(artifacts, "_MOST", 4)  # of which one is the folder
    graded = await box.grade("cat /m/*", artifacts=["/m", "/work"])
    assert (graded.output, graded.left_out) == ("1\n2\n3\n", ("/m/4", "/m/5", "/m/6", "/m/7", "/work"))
    with pytest.raises(ValueError, match="absolute"):
        await box.artifacts(["m"])


async def test_a_file_that_grows_while_it_is_read_is_left_out(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "_LARGEST", 100)
    info = replace(await box.stat("/work/a"), size=1)  # as it was a moment ago
    await box.write("/work/a", "x" * 1000)
    monkeypatch.setattr(box._driver, "stat", AsyncMock(return_value=info))
    assert await box.artifacts(["/work/a"]) == {}


async def test_grading_in_the_same_sandbox_with_something_in_the_way(box: Sandbox) -> None:
    await box.run("mkdir /work/run.py")
    graded = await box.grade("echo never", files={"/work/run.py": "x"}, isolated=False)
    assert (graded.return_code, graded.output) == (126, "/work/run.py: Is a directory\n")


async def test_names_of_any_bytes_over_the_wire(served: ServerProcess) -> None:
    remote = await RemoteSandboxes(served.url, KEY).create(SandboxOptions())
    try:
        await remote.run(
            "mkdir /n && cd /n && printf x > $'\\xff' && printf y > '?' && printf z > $'a\\nb%2e'"
        )
        names = [each.name for each in await remote.list("/n")]
        assert names == ["?", "a\nb%2e", "\udcff"]
        assert [await remote.read(f"/n/{name}") for name in names] == [b"y", b"z", b"x"]
        assert (await remote.stat("/n/\udcff")).name == "/n/\udcff"
        await remote.write("/n/\udcfe", b"w")
        await remote.remove("/n/\udcff")
        with pytest.raises(FileNotFoundError) as missing:
            await remote.stat("/n/\udcff")
        assert missing.value.filename == "/n/\udcff"
        with pytest.raises(OSError) as caught:
            await remote.stat("/n/" + "a/" * 20_000)
        assert caught.value.errno == errno.ENAMETOOLONG
    finally:
        await remote.close()


@needs_engine
async def test_a_full_server_has_room_for_graders() -> None:
    with server(
        ENVIRONMENTS, options=["--sandboxes", "docker"], api_keys=[KEY], sandboxes_max=2, call_time_limit_s=30
    ) as full:
        async with AsyncClient(full.url, api_key=KEY) as client:
            bench = client.environment("bench")
            async with (
                bench.session(split="train", index=0) as one,
                bench.session(split="train", index=0) as two,
            ):
                for session in (one, two):
                    await session.call("shell", {"command": "echo 42 > /work/answer"})
                done = await asyncio.gather(one.call("submit", {}), two.call("submit", {}))
                assert [each.reward for each in done] == [1.0, 1.0]


async def test_reset_begins_anew(box: Sandbox, gone: Gone) -> None:
    first = box.id
    await box.run("rm /work/a; touch /left")
    await box.reset()
    assert (await box.run("ls /work /left")).output.split("\n")[:3] == [
        "ls: cannot access '/left': No such file or directory",
        "/work:",
        "a",
    ]
    assert box.id != first
    await gone(first)


async def test_snapshots_and_forks(box: Sandbox) -> None:
    await box.run("echo changed > /work/a; sleep 100 &")
    other = await box.fork()
    async with other:
        assert (await other.read_text("/work/a"), other.id != box.id) == ("changed\n", True)
        await other.run("echo theirs > /work/a")
        assert await box.read_text("/work/a") == "changed\n"
        await other.reset()
        assert await other.read_text("/work/a") == "one"
    snapshot = await box.snapshot()
    await box.run("rm -rf /work")
    async with await snapshot.open() as earlier:
        assert (await earlier.run("cat /work/a")).output == "changed\n"
    await snapshot.drop()
    with pytest.raises(OrsayError):
        await snapshot.open()


async def test_limits_are_told_apart(box: Sandbox) -> None:
    assert (await box.run("sleep 9", timeout_s=0.2)).limit == "time"
    assert (await box.run("exec python3 -c 'x = bytearray(1 << 30)'")).limit == "memory"
    assert (await box.run("kill -9 $$")).limit is None
    assert (await box.run("exit 3")).limit is None


async def test_background_processes(box: Sandbox) -> None:
    process = await box.start("echo begun; exec python3 -m http.server 8123 --bind 127.0.0.1", env={"X": "y"})
    await process.wait_for_port(8123)
    assert "begun" in await process.logs() and await process.is_running()
    await process.stop()
    assert not await process.is_running()
    short = await box.start("echo no; exit 1")
    with pytest.raises(SandboxError, match="ended before port 9000 was open: no"):
        await short.wait_for_port(9000)


async def test_a_sandbox_that_has_ended(box: Sandbox) -> None:
    await box.close()
    with pytest.raises(SandboxGone):
        await box.run("true")


@pytest.mark.usefixtures("chosen")
async def test_an_image_that_is_missing() -> None:
    with pytest.raises(ImageMissing, match="no/such-image:1"):
        await sandbox(image="no/such-image:1")


@pytest.mark.usefixtures("chosen")
def test_a_script_that_is_not_async() -> None:
    with sandbox() as box:
        assert box.run("echo $0").output == "/bin/bash\n"
        assert box.grade("echo", artifacts=["/etc/hostname"]).ok


@pytest.mark.parametrize(
    "options",
    [
        {"env": {"A": "b\0--bind\0/\0/mnt"}},
        {"env": {"A=B": "c"}},
        {"env": {"": "c"}},
        {"env": {"A": "x" * 200_000}},
        {"processes": 10**12},
        {"memory": 10**30},
        {"cpus": 0.0001},
    ],
    ids=lambda options: next(iter(options)),
)
async def test_what_no_sandbox_can_be_is_the_mistake_of_its_author(options: dict[str, Any]) -> None:
    with pytest.raises(SandboxRefused):
        await sandbox(**options)


async def test_the_blocking_form_on_an_event_loop() -> None:
    with pytest.raises(RuntimeError, match="async form"):
        sandbox().open_blocking()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"network": "host"}, "write none, open, or"),
        ({"memory": "much"}, "512m"),
        ({"cpus": 0}, "more than 0"),
        ({"files": {"relative": ""}}, "absolute"),
    ],
)
def test_wrong_options(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sandbox(**options)
