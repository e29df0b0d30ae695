"""Sandboxes by bubblewrap: what they see of the machine, what they may, and that none stays."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from orsay.errors import ConfigError, ImageMissing, SandboxError, SandboxGone, SandboxRefused
from orsay.sandboxes.backends import choose_backend, open_backend
from orsay.sandboxes.base import SandboxSpec, fork
from orsay.sandboxes.bubblewrap import seccomp
from orsay.sandboxes.bubblewrap.backend import HOST, BubblewrapSandboxes
from orsay.sandboxes.bubblewrap.cgroups import (
    find_groups,
    freezer_of,
    is_frozen,
    remove_groups,
    set_frozen,
)
from orsay.sandboxes.bubblewrap.freezing import frozen
from orsay.sandboxes.bubblewrap.roots import hide_secrets
from orsay.sandboxes.sandbox import Sandbox

from ..support.bubblewrap import bubblewrap_sandbox, bubblewrap_sandboxes, unpacked_base
from ..support.sandboxes import comes_true
from ..support.server_process import is_running
from ..support.waiting import until, until_true

pytestmark = pytest.mark.process

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


async def said(sandbox: Sandbox, command: str) -> str:
    result = await sandbox.run(command, timeout_s=30)
    return result.output.decode(errors="replace").strip()


# what it sees of the machine


async def test_files_of_the_machine_are_not_seen(tmp_path: Path) -> None:
    state, secret = tmp_path / "state", tmp_path / "secret"
    secret.write_text("word")
    async with bubblewrap_sandbox(state) as sandbox:
        for path in (
            str(secret),
            "/etc/shadow",
            "/etc/ssh",
            "/sys",
            "/var/run/docker.sock",
            "/run/docker.sock",
        ):
            with pytest.raises(FileNotFoundError):
                await sandbox.stat(path)
        assert await said(sandbox, "ls -A /root /home /tmp /var/tmp /run/lock | grep -v :") == ""
        assert "word" not in await said(
            sandbox, "grep -r word /root /home /tmp /opt /srv /mnt /media /work /run"
        )
        mounts = await said(sandbox, "cut -d' ' -f2 /proc/mounts")
        assert not {str(tmp_path), "/old_root", "/tmp/own"} & set(mounts.split())


async def test_all_of_the_system_can_be_changed_and_the_machine_never_is(tmp_path: Path) -> None:
    before = Path("/etc/passwd").read_bytes()
    async with bubblewrap_sandboxes(tmp_path) as sandboxes:
        one = await sandboxes.create(SandboxSpec(image=HOST))
        other = await sandboxes.create(SandboxSpec(image=""))
        change = "echo x > /etc/orsay-test && echo x > /usr/orsay-test && echo x > /root/orsay-test"
        assert (await one.run(change)).return_code == 0
        for path in ("/etc/orsay-test", "/usr/orsay-test", "/root/orsay-test"):
            assert not Path(path).exists()
            with pytest.raises(FileNotFoundError):
                await other.stat(path)
        if os.geteuid() == 0:
            worked = "useradd -m tester && chown tester /work && stat -c %U /work && rm -r /usr/bin/env"
            assert await said(one, worked) == "tester"
            assert (await other.stat("/usr/bin/env")).size
    assert Path("/etc/passwd").read_bytes() == before and Path("/usr/bin/env").exists()


async def test_neither_processes_nor_memory_of_others_are_seen(tmp_path: Path) -> None:
    async with bubblewrap_sandboxes(tmp_path) as sandboxes:
        one, other = [await sandboxes.create(SandboxSpec(image=HOST)) for _ in range(2)]
        running = asyncio.create_task(one.run("exec -a visible sleep 60"))
        pids = (await said(other, "ls -d /proc/[0-9]* | wc -l")).split()
        assert int(pids[0]) <= 6
        assert "visible" not in await said(other, "cat /proc/[0-9]*/cmdline")
        assert await said(other, "cat /proc/sysvipc/shm | wc -l; ls /dev/shm") == "1"
        assert not running.done()
        await one.close()
        with pytest.raises(SandboxGone):
            await running


async def test_no_variable_and_no_descriptor_of_the_server_leaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORSAY_TEST_SECRET", "word")
    async with bubblewrap_sandbox(tmp_path, variables={"A": "b c", "EMPTY": ""}) as sandbox:
        names = await said(sandbox, "env | cut -d= -f1 | sort | tr '\\n' ' '")
        assert set(names.split()) == {"A", "EMPTY", "HOME", "HOSTNAME", "PATH", "PWD", "SHLVL", "_"}
        assert await said(sandbox, 'echo "$A"') == "b c"
        assert "word" not in await said(sandbox, "cat /proc/*/environ")
        assert await said(sandbox, "ls /proc/self/fd | tr '\\n' ' '") == "0 1 2 3"  # the last is of ls
        assert await said(sandbox, "hostname; cat /etc/hostname") == "sandbox\nsandbox"


async def test_without_a_network_there_is_the_loopback_alone(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        address = f"/dev/tcp/127.0.0.1/{listening.getsockname()[1]}"
        async with bubblewrap_sandbox(tmp_path) as sandbox:
            assert "Connection refused" in await said(sandbox, f"echo x > {address}")
            assert "unreachable" in await said(sandbox, "echo x > /dev/tcp/192.0.2.1/80")
            assert await said(sandbox, "tail -n +3 /proc/net/dev | cut -d: -f1") == "lo"
            served = "python3 -m http.server 8000 & until echo > /dev/tcp/localhost/8000; do sleep 0.1; done"
            assert await said(sandbox, f"({served}) > /dev/null 2>&1; echo up") == "up"


async def test_an_open_network_leads_out_and_not_to_the_machine_s_loopback(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        port = listening.getsockname()[1]
        async with bubblewrap_sandboxes(tmp_path) as sandboxes:
            try:
                sandbox = await sandboxes.create(SandboxSpec(image=HOST, network="open"))
            except SandboxError as exc:
                assert "slirp4netns" in str(exc)
                pytest.skip(str(exc))
            assert "tap0" in await said(sandbox, "cat /proc/net/dev")
            assert await said(sandbox, "cat /etc/resolv.conf") == "nameserver 10.0.2.3"
            for address in ("127.0.0.1", "10.0.2.2"):
                assert (await sandbox.run(f"echo x > /dev/tcp/{address}/{port}", timeout_s=30)).return_code
            listening.settimeout(0)
            with pytest.raises(BlockingIOError):
                listening.accept()


async def test_an_allow_list_has_no_network_and_a_proxy_that_says_why(tmp_path: Path) -> None:
    async with bubblewrap_sandbox(tmp_path, network=("pypi.org",)) as sandbox:
        assert await said(sandbox, "tail -n +3 /proc/net/dev | cut -d: -f1") == "lo"
        ask = r"exec 3<>/dev/tcp/127.0.0.1/3128; printf 'GET $1 HTTP/1.1\r\nHost: x\r\n\r\n' >&3; cat <&3"
        answer = await said(sandbox, ask.replace("$1", "http://example.org/"))
        assert answer.startswith("HTTP/1.1 403") and "example.org is not on the allow-list" in answer
        assert await said(sandbox, "echo $https_proxy") == "http://127.0.0.1:3128"


async def test_folders_are_there_and_cannot_be_written(tmp_path: Path) -> None:
    state, data = tmp_path / "state", tmp_path / "data"
    data.mkdir()
    (data / "file").write_text("content")
    (data / "file").chmod(0o600)
    async with bubblewrap_sandbox(state, folders={"/data/deep": str(data)}) as sandbox:
        assert await sandbox.read("/data/deep/file") == b"content"
        assert "Read-only" in await said(sandbox, "touch /data/deep/file; rm -rf /data/deep")
    assert (data / "file").read_text() == "content"
    async with bubblewrap_sandboxes(state) as sandboxes:
        with pytest.raises(SandboxError, match="there is no folder /nowhere"):
            await sandboxes.create(SandboxSpec(image=HOST, folders={"/data": "/nowhere"}))


# what it may


async def test_privileges_are_few_and_calls_of_the_kernel_are_filtered(tmp_path: Path) -> None:
    async with bubblewrap_sandbox(tmp_path) as sandbox:
        status = await said(sandbox, "cat /proc/self/status")
        fields = dict(line.split(":\t", 1) for line in status.splitlines())
        kept = (1 << 0) | (1 << 1) | (1 << 3) | (1 << 4) | (1 << 5) | (1 << 6) | (1 << 7)  # capability.h
        assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == kept
        assert fields["NoNewPrivs"].strip() == "1" and fields["Seccomp"].strip() == "2"
        outside = (await said(sandbox, "cat /proc/self/uid_map")).split()[1]
        assert outside == "0" if os.geteuid() else outside != "0"  # of its user namespace, or of the machine
        for refused in (
            "unshare -r true",
            "unshare -n true",
            "mount -t tmpfs none /mnt",
            "mount -o remount,rw /dev",
            "mknod /tmp/disk b 8 0",
            "chroot / true",
            "nsenter -t 1 -m true",
            "hostname other",
            "echo 1 > /proc/sys/kernel/panic",
            "echo x > /dev/new",
            "python3 -c 'import ctypes; exit(ctypes.CDLL(None).syscall(435, 0, 0) != 0)'",
        ):
            assert (await sandbox.run(refused)).return_code, refused
        threads = "import threading; t = threading.Thread(target=print, args=['works']); t.start(); t.join()"
        assert await said(sandbox, f'python3 -c "{threads}"') == "works"


def test_the_filter_of_each_machine_is_a_whole_program() -> None:
    for machine in ("x86_64", "aarch64"):
        program = seccomp.filter_program(machine)
        count = len(program) // 8
        assert len(program) % 8 == 0 and count < 256
        for number in range(count):  # jumps stay inside, and the last line answers
            code, then, otherwise = program[8 * number], program[8 * number + 2], program[8 * number + 3]
            assert number + 1 + max(then, otherwise) < count or code == 0x06
        assert program[8 * (count - 1)] == 0x06


async def test_processor_time_is_limited(tmp_path: Path) -> None:
    script = "import time; t = time.time()\nwhile time.time() - t < 2: pass\nprint(time.process_time())"
    async with bubblewrap_sandboxes(tmp_path) as sandboxes:
        try:
            sandbox = await sandboxes.create(SandboxSpec(image=HOST, cpus=0.1))
        except SandboxError as exc:
            pytest.skip(str(exc))
        assert float(await said(sandbox, f'python3 -c "{script}"')) < 1


# images


@pytest.mark.engine
async def test_an_unpacked_image_is_a_root_of_its_own_and_stays_as_it_is(tmp_path: Path) -> None:
    state, image = tmp_path / "state", tmp_path / "image"
    image.mkdir()
    unpacked_base(image)
    async with bubblewrap_sandboxes(state) as sandboxes:
        one, other = [await sandboxes.create(SandboxSpec(image=str(image))) for _ in range(2)]
        python = await said(one, "command -v python3")
        changes = f"rm {python}; echo x > /new; useradd -m tester; chown 1234 /home; pwd"
        assert await said(one, changes) == "/"
        assert (await one.stat("/home")).user == 1234 and (await one.run("python3 -c 1")).return_code == 127
        assert (await other.run("python3 -c 1")).return_code == 0
        await other.run("rm /bin/bash")
        result = await other.run("true")
        assert (result.return_code, result.output) == (127, b"/bin/bash: No such file or directory\n")
    assert not (image / "new").exists() and os.path.lexists(f"{image}{python}")
    assert "tester" not in (image / "etc/passwd").read_text()


async def test_a_link_of_an_image_leads_nowhere_outside_of_it(tmp_path: Path) -> None:
    state, image, outside = tmp_path / "state", tmp_path / "image", tmp_path / "outside"
    for each in (outside, image / "etc", image / "bin"):
        each.mkdir(parents=True)
    (image / "etc" / "hosts").symlink_to(outside / "written")
    async with bubblewrap_sandboxes(state) as sandboxes:
        sandbox = await sandboxes.create(SandboxSpec(image=str(image)))
        assert b"localhost" in await sandbox.read("/etc/hosts")
    assert not (outside / "written").exists()
    (image / "etc" / "hosts").unlink()
    (image / "etc").rmdir()
    (image / "etc").symlink_to(outside)
    async with bubblewrap_sandboxes(state) as sandboxes:
        with pytest.raises(SandboxError, match="could not be made"):
            await sandboxes.create(SandboxSpec(image=str(image)))
    assert list(outside.iterdir()) == []


async def test_an_image_that_is_not_there_is_told_with_the_remedy(tmp_path: Path) -> None:
    async with bubblewrap_sandboxes(tmp_path) as sandboxes:
        with pytest.raises(ImageMissing, match=r"knows no image python:3.11-slim.*\[sandboxes.images\]"):
            await sandboxes.create(SandboxSpec(image="python:3.11-slim"))
        with pytest.raises(ImageMissing, match="no folder /nowhere/at/all"):
            await sandboxes.create(SandboxSpec(image="/nowhere/at/all"))
    with pytest.raises(SandboxError, match="closed"):
        await sandboxes.create(SandboxSpec(image=HOST))


@AS_ROOT
def test_the_layer_of_masks_hides_what_not_everybody_may_read(tmp_path: Path) -> None:
    etc, masks = tmp_path / "etc", tmp_path / "masks"
    for name, mode in {
        "passwd": 0o644,
        "shadow": 0o644,
        "key": 0o600,
        "ssl/private/x": 0o644,
        "a/b": 0o640,
    }.items():
        (etc / name).parent.mkdir(parents=True, exist_ok=True)
        (etc / name).write_text("")
        (etc / name).chmod(mode)
    (etc / "a").chmod(0o751)
    (etc / "link").symlink_to("/nowhere")
    hide_secrets(masks, source=etc)
    hidden = {str(each.relative_to(masks)) for each in masks.rglob("*") if each.is_char_device()}
    assert hidden == {"shadow", "key", "ssl/private", "a"}


# snapshots


async def test_holes_of_files_stay_holes_in_forks(tmp_path: Path) -> None:
    async with bubblewrap_sandboxes(tmp_path) as sandboxes:
        spec = SandboxSpec(image=HOST)
        first = await sandboxes.create(spec)
        await first.run("truncate -s 1G /work/a; echo end >> /work/a; truncate -s 1M /work/b")
        second = await fork(sandboxes, first, spec)
        assert (
            await said(second, "tail -c 4 /work/a; stat -c '%s' /work/a /work/b")
            == "end\n1073741828\n1048576"
        )
        assert int(await said(second, "stat -c %b /work/a")) < 1000


async def test_links_of_a_snapshot_lead_no_folder_elsewhere(tmp_path: Path) -> None:
    state, data = tmp_path / "state", tmp_path / "data"
    data.mkdir()
    async with bubblewrap_sandboxes(state) as sandboxes:
        first = await sandboxes.create(SandboxSpec(image=HOST))
        await first.run("ln -s /oldroot/tmp /data; rm -r /work; ln -s /usr /work")
        snapshot = await sandboxes.snapshot(first)
        with pytest.raises(SandboxError, match="a link is where a folder is to be"):
            await sandboxes.create(SandboxSpec(image="", snapshot=snapshot, folders={"/data/x": str(data)}))
        async with await sandboxes.create(SandboxSpec(image="", snapshot=snapshot)) as other:
            assert await said(other, "pwd; readlink /data") == "/\n/oldroot/tmp"


@AS_ROOT
async def test_a_file_with_an_owner_of_the_machine_cannot_come_into_being(tmp_path: Path) -> None:
    async with bubblewrap_sandboxes(tmp_path) as sandboxes:
        spec = SandboxSpec(image=HOST)
        first = await sandboxes.create(spec)
        if sandboxes._facts["users"] != "shifted":
            pytest.skip("this kernel or file system cannot shift owners")
        await first.run("cp /bin/true /work/a; chmod 4755 /work/a; touch /etc/new; chown 5 /etc/passwd")
        async with await fork(sandboxes, first, spec) as second:
            await second.run("touch /work/b")
            [state] = [each for each in tmp_path.iterdir() if each.is_dir()]
            kept = [
                each for top in state.iterdir() if top.name != "agent" for each in _owned_by_the_machine(top)
            ]
            assert kept == []
            assert await said(second, "stat -c %u:%a /work/a /etc/passwd") == "0:4755\n5:644"


def _owned_by_the_machine(top: Path) -> list[Path]:
    files = [each for each in top.rglob("*") if each.is_file() and not each.is_symlink()]
    notes = "/work/incompat/"  # of overlayfs, beside the changes
    return [each for each in files if each.lstat().st_uid < 0x70000000 and notes not in str(each)]


async def test_a_snapshot_of_a_sandbox_that_ends_meanwhile_leaves_nothing(tmp_path: Path) -> None:
    async with bubblewrap_sandboxes(tmp_path) as sandboxes:
        sandbox = await sandboxes.create(SandboxSpec(image=HOST))
        await sandbox.run("for i in $(seq 3000); do echo $i > /work/$i; done")
        taking = asyncio.create_task(sandboxes.snapshot(sandbox))
        await asyncio.sleep(0.05)
        await sandbox.close()
        with contextlib.suppress(SandboxError):
            await sandboxes.drop(await taking)
        [state] = [each for each in tmp_path.iterdir() if each.is_dir()]
        await until(lambda: not [*(state / "snapshots").iterdir()])
        assert {each.name for each in state.iterdir()} == {"agent", "host", "snapshots"}


def test_without_a_control_group_processes_are_stopped_by_signals() -> None:
    write = "os.write(1, b'%d\\n' % os.getpid())"
    script = f"import os, time\nif not os.fork(): os.fork()\nwhile True: {write}; time.sleep(0.001)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, bufsize=0) as top:
        output = top.stdout
        assert output is not None
        seen: set[int] = set()

        def all_write() -> bool:
            seen.update(map(int, output.read(4096).split()[1:-1]))
            return len(seen) == 3

        try:
            until_true(all_write)
            os.set_blocking(output.fileno(), False)
            with frozen(None, top.pid):
                while output.read(1 << 16):
                    continue
                time.sleep(0.2)
                assert not output.read(1 << 16)
            until_true(lambda: output.read(1 << 16))
        finally:
            for each in {top.pid, *seen}:
                os.kill(each, signal.SIGKILL)


# the end


async def test_who_is_cancelled_while_creating_leaves_nothing(tmp_path: Path) -> None:
    async with bubblewrap_sandboxes(tmp_path) as sandboxes:
        cancelled = 0
        for delay_s in (0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.04):
            creating = asyncio.create_task(sandboxes.create(SandboxSpec(image=HOST)))
            await asyncio.sleep(delay_s)
            creating.cancel()
            try:
                await (await creating).close()  # it was quicker
            except asyncio.CancelledError:
                cancelled += 1
        assert cancelled
        assert not sandboxes._open and not sandboxes._starting and not sandboxes._ending
        async with await sandboxes.create(SandboxSpec(image=HOST)) as sandbox:
            assert await said(sandbox, "echo alive") == "alive"


async def test_a_sandbox_whose_server_is_silent_ends(tmp_path: Path) -> None:
    async with bubblewrap_sandboxes(tmp_path, lease_s=2) as sandboxes:
        sandbox = await sandboxes.create(SandboxSpec(image=HOST))
        beat = sandbox._connection._beat
        assert beat is not None
        beat.cancel()
        [state] = [each for each in tmp_path.iterdir() if each.is_dir()]

        async def removed() -> bool:
            return {each.name for each in state.iterdir()} == {"agent", "host", "snapshots"}

        await comes_true(removed)
        assert sandbox.gone is not None


async def test_deep_trees_and_files_without_rights_are_removed_as_well(tmp_path: Path) -> None:
    script = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"
    async with bubblewrap_sandbox(tmp_path) as sandbox:
        assert (await sandbox.run(["python3", "-c", script])).return_code == 0
        await sandbox.run("mkdir -p /work/closed/in; chmod 0 /work/closed/in /work/closed")


SERVER = """
import asyncio, json, sys
from pathlib import Path
from orsay.sandboxes.base import SandboxSpec, fork
from orsay.sandboxes.bubblewrap.backend import BubblewrapSandboxes

async def main():
    sandboxes = await BubblewrapSandboxes.open(state=Path(sys.argv[1]))
    sandbox = await sandboxes.create(SandboxSpec(image="host", processes=100))
    await sandbox.run("setsid sleep 7654 > /dev/null 2>&1 &")
    print(json.dumps(sandboxes._keeper.pid), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int, list[int]]]:
    """A server with a sandbox, its keeper, and processes below that."""
    with subprocess.Popen([sys.executable, "-c", SERVER, str(tmp_path)], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        line = ""
        while not line.strip().isdecimal():
            line = server.stdout.readline().decode()
            if not line:
                pytest.skip("no sandboxes by bubblewrap here")
        keeper = int(line)
        try:
            yield server, keeper, _below(keeper)
        finally:
            server.kill()
            with contextlib.suppress(ProcessLookupError):
                os.kill(keeper, signal.SIGKILL)


def _below(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [each for child in map(int, children) for each in (child, *_below(child))]


async def test_a_server_that_is_killed_leaves_nothing(
    killed: tuple[subprocess.Popen[bytes], int, list[int]], tmp_path: Path
) -> None:
    server, keeper, processes = killed
    assert len(processes) >= 3
    server.kill()
    await until(lambda: not any(is_running(each) for each in (keeper, *processes)))
    assert list(tmp_path.iterdir()) == []


async def test_what_a_killed_keeper_left_is_removed_by_the_next_one(
    killed: tuple[subprocess.Popen[bytes], int, list[int]], tmp_path: Path
) -> None:
    server, keeper, processes = killed
    os.kill(keeper, signal.SIGKILL)
    server.kill()
    await until(lambda: not any(is_running(each) for each in (keeper, *processes)))
    [left] = [each for each in tmp_path.iterdir() if each.is_dir()]
    groups = [Path(each) for each in json.loads((tmp_path / f"{left.name}.groups").read_text())]
    async with bubblewrap_sandboxes(tmp_path) as sandboxes:
        assert not left.exists() and not any(each.exists() for each in groups)
        async with await sandboxes.create(SandboxSpec(image=HOST)) as sandbox:
            assert await said(sandbox, "echo alive") == "alive"


async def test_a_keeper_that_is_killed_ends_its_sandboxes_and_is_replaced(tmp_path: Path) -> None:
    async with bubblewrap_sandboxes(tmp_path) as sandboxes:
        sandbox = await sandboxes.create(SandboxSpec(image=HOST))
        running = asyncio.create_task(sandbox.run("sleep 60"))
        await asyncio.sleep(0)
        assert sandboxes._keeper is not None
        sandboxes._keeper.kill()
        with pytest.raises(SandboxGone):
            await running
        await until(lambda: sandboxes._control is None)
        async with await sandboxes.create(SandboxSpec(image=HOST)) as another:
            assert await said(another, "echo alive") == "alive"


# what cannot be promised


@AS_ROOT
def test_a_user_who_is_not_root_has_sandboxes_in_a_user_namespace(tmp_path: Path) -> None:
    script = SERVER.replace("processes=100", "processes=None").replace(
        "    await asyncio.sleep(600)",
        """
    kept = await sandbox.run("id -u; touch /root/x /etc/y; echo $?; cat /etc/shadow /proc/self/uid_map")
    try:
        limited = await sandboxes.create(SandboxSpec(image="host", processes=50))
    except Exception as exc:
        said = str(exc)
    else:
        said = (await limited.run("for i in $(seq 80); do sleep 9 & done; wait", timeout_s=5)).output.decode()
    print(json.dumps([sandboxes._facts["users"], kept.output.decode(), said]))
    await sandboxes.close()
""",
    )
    command = ["unshare", "--user", "--map-user=1000", "--map-group=1000", sys.executable, "-c", script]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, timeout=60)
    if "cannot make sandboxes" in done.stderr or "unshare failed" in done.stderr:
        pytest.skip(done.stderr[-300:])
    assert done.returncode == 0, done.stderr
    users, kept, limited = json.loads(done.stdout.splitlines()[-1])
    assert users == "own"
    assert kept.splitlines()[:2] == ["0", "0"] and "No such file" in kept and kept.split()[-1] == "1"
    assert "fork" in limited or "cannot hold the limit processes" in limited
    assert list(tmp_path.iterdir()) == []


async def test_a_limit_that_cannot_be_held_is_refused(tmp_path: Path) -> None:
    async with bubblewrap_sandboxes(tmp_path) as sandboxes:
        sandboxes._facts |= {"limits": [], "rlimits": False, "network": False}
        for name, value in {"memory_bytes": 1 << 30, "cpus": 1.0, "processes": 10}.items():
            spec: dict[str, Any] = {"image": HOST, "processes": None, name: value}
            with pytest.raises(SandboxRefused, match=f"cannot hold the limit {name}"):
                await sandboxes.create(SandboxSpec(**spec))
        with pytest.raises(SandboxRefused, match="install slirp4netns"):
            await sandboxes.create(SandboxSpec(image=HOST, processes=None, network="open"))


def test_groups_of_version_2_are_made_with_the_controllers_that_are_there(tmp_path: Path) -> None:
    place = tmp_path / "sys/fs/cgroup"
    (tmp_path / "proc/self").mkdir(parents=True)
    (place / "user/app").mkdir(parents=True)
    mounted = "30 20 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
    (tmp_path / "proc/self/mountinfo").write_text(mounted)
    (tmp_path / "proc/self/cgroup").write_text("0::/user/app\n")
    above = place if os.geteuid() == 0 else place / "user"
    (above / "test").mkdir()
    groups = find_groups("test", system=tmp_path)
    assert groups.version == 2 and set(groups.bases.values()) == {above / "test"}
    [made] = groups.make("one", memory_bytes=1 << 20, cpus=0.5, processes=7)
    limits = {each.name: each.read_text() for each in made.iterdir()}
    assert limits == {"memory.max": "1048576", "cpu.max": "50000 100000", "pids.max": "7"}


def test_groups_are_removed_with_all_in_them() -> None:
    groups = find_groups("orsay-test-removal")
    if "pids" not in groups.bases:
        pytest.skip("no control groups can be made here")
    made = groups.make("one", memory_bytes=None, cpus=None, processes=9)
    assert [each.read_text() for each in (folder / "pids.max" for folder in made) if each.exists()] == ["9\n"]
    with subprocess.Popen(["sleep", "60"]) as process:
        for each in made:
            (each / "cgroup.procs").write_text(str(process.pid))
        if (freezer := freezer_of(made)) is not None:  # as a keeper leaves it that is killed meanwhile
            set_frozen(freezer, True)
            until_true(lambda: is_frozen(freezer))
        remove_groups(groups.folders)
        assert process.wait() == -signal.SIGKILL
    assert not any(each.exists() for each in groups.folders)


# the choice


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    yield
    with warnings.catch_warnings(category=ResourceWarning, action="ignore"):
        gc.collect()  # the SDK leaves the socket open that nobody answered on


@pytest.mark.usefixtures("no_engine")
async def test_bubblewrap_that_is_not_installed_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="apt install bubblewrap"):
        await open_backend("bubblewrap", server_id="test")
    with pytest.raises(ConfigError, match=r"docker: no Docker engine answers.*bubblewrap: .*apt install"):
        await choose_backend()


@pytest.mark.usefixtures("no_engine")
async def test_without_an_engine_the_choice_is_bubblewrap(tmp_path: Path) -> None:
    async with bubblewrap_sandboxes(tmp_path):  # or the test is skipped
        pass
    assert await choose_backend() == "bubblewrap"
    sandboxes = await open_backend("auto", server_id="test")
    try:
        assert isinstance(sandboxes, BubblewrapSandboxes)
    finally:
        await sandboxes.close()
