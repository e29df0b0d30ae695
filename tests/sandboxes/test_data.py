"""Folders of data that the code of environments sees in its worker, at the path that it expects."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from orsay_client import Client, WorkerLost
from orsay_protocol import TextBlock

from ..support.config_server import FileServer, configured, written
from ..support.servers import ROOT, orsay

pytestmark = pytest.mark.process

FILE = ROOT / "tests" / "support" / "data_environments.py"
TWO = f"""
[sandboxes.data]
"Owner/Library" = "books"
"Other/archive" = "papers"
[environments.one]
class = "{FILE}:Library"
[environments.two]
class = "{FILE}:Archive"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("books", "papers", "more"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").write_text(f"text of {name}")
    return tmp_path


def look(server: FileServer, name: str) -> dict[str, Any]:
    with Client(server.url) as client, client.environment(name).session(split="train", index=0) as session:
        (block,) = session.call("look").blocks
        assert isinstance(block, TextBlock)
        return dict(ast.literal_eval(block.text))


def test_each_environment_sees_its_own_folder(folder: Path) -> None:
    before = sorted(os.listdir("/"))
    with configured(folder, TWO) as server:
        one, two = look(server, "library"), look(server, "archive")
        assert one["import"] == ["books.txt"] and one["now"] == {"books.txt": "text of books"}
        assert two["import"] == ["papers.txt"] and two["now"] == {"papers.txt": "text of papers"}
        assert one["wrote"] == "OSError 30"  # a read-only file system
        assert one["cwd"] == str(ROOT)
        assert sorted(os.listdir("/")) == before
        assert not server.events("data_not_shown")


def test_a_worker_in_place_of_a_lost_one_sees_it_too(folder: Path) -> None:
    with configured(folder, TWO) as server:
        first = look(server, "library")
        with (
            Client(server.url) as client,
            client.environment("library").session(split="train", index=0) as session,
            pytest.raises(WorkerLost),
        ):
            session.call("die")
        again = look(server, "library")
        assert again["pid"] != first["pid"] and again["now"] == first["now"]


def test_an_entry_names_its_data_and_changes_it(folder: Path) -> None:
    entry = f'[environments.one]\nclass = "{FILE}:Library"\ndata = '
    with configured(folder, f'{entry}"more"\n') as server:
        assert look(server, "library")["now"] == {"more.txt": "text of more"}
        written(folder, f'{entry}"Owner/Papers"\n[sandboxes.data]\n"Owner/Papers" = "papers"\n')
        server.signal(signal.SIGHUP)
        while not server.events("config_applied"):
            time.sleep(0.05)
        assert look(server, "library")["import"] == ["papers.txt"]


def test_without_a_file_the_name_of_the_class_decides(folder: Path) -> None:
    process = FileServer(
        written(
            folder,
            '[sandboxes.data]\n"Owner/Library" = "books"\n"A/archive" = "more"\n"B/Archive" = "papers"\n',
        ),
        f"{FILE}:Library",
        f"{FILE}:Archive",
    )
    try:
        process.wait_for_url()
        assert look(process, "library")["now"] == {"books.txt": "text of books"}
        assert look(process, "archive")["now"] is None
        (event,) = process.events("data_not_shown")
        assert "A/archive and B/Archive" in event["reason"]
    finally:
        process.end()


UNREACHABLE = '[sandboxes]\ndata_path = "/usr/orsay-none/data"\n'


def test_what_cannot_be_shown_is_told(folder: Path) -> None:
    with configured(folder, UNREACHABLE + TWO) as server:
        assert look(server, "library")["now"] is None
        told = [each["reason"] for each in server.events("data_not_shown")]
        assert len(told) == 2 and all(
            "/usr/orsay-none/data to mount it at; create it" in each for each in told
        )


def test_a_worker_does_not_start_without_the_data_of_its_entry(folder: Path) -> None:
    file = written(folder, UNREACHABLE + f'[environments.one]\nclass = "{FILE}:Library"\ndata = "more"\n')
    ended = orsay("serve", "-c", str(file), "--port", "0")
    assert ended.returncode == 2
    assert "does not see" in ended.stderr and "create it, empty" in ended.stderr


def test_a_name_that_is_no_data_is_an_error_of_the_file(folder: Path) -> None:
    file = written(folder, TWO + 'data = "Other/archiv"\n')
    ended = orsay("config", "--check", str(file))
    assert ended.returncode == 2
    assert "neither a name under [sandboxes.data] nor a folder; did you mean 'Other/archive'?" in ended.stderr


def test_the_servers_own_process_needs_a_link(folder: Path) -> None:
    text = f'[environments.one]\nclass = "{FILE}:Library"\nruntime = "local"\ndata = "more"\n'
    ended = orsay("serve", "-c", str(written(folder, text)), "--port", "0")
    assert ended.returncode == 2 and "a link there" in ended.stderr
    (folder / "link").symlink_to(folder / "more")
    with configured(folder, f'[sandboxes]\ndata_path = "{folder}/link"\n{text}') as server:
        assert not server.events("data_not_shown")


SHOW = """
import os, runpy, sys
show = runpy.run_path(sys.argv[1])["show_folders"]
show({"/orsay-none/deep": sys.argv[2], sys.argv[3]: sys.argv[2]})
print(os.listdir("/orsay-none/deep"), os.listdir(sys.argv[3]), os.getcwd(), os.getuid())
try:
    open("/orsay-none/deep/x", "w")
except OSError as exc:
    print(exc.errno)
"""


def show(folder: Path, *before: str, **options: Any) -> subprocess.CompletedProcess[str]:
    module = ROOT / "server" / "orsay" / "runtimes" / "process" / "folders.py"
    copied = folder / "folders.py"
    copied.write_text(module.read_text())
    folder.chmod(0o755)
    command = [*before, "python3", "-c", SHOW, str(copied), str(folder / "books"), str(folder / "papers")]
    return subprocess.run(command, capture_output=True, text=True, cwd="/usr", timeout=60, **options)


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="changes its user")
def test_a_plain_user_gets_a_user_namespace(folder: Path) -> None:
    for each in folder.parents:
        if each.stat().st_mode & 0o5 != 0o5 and each.is_relative_to("/tmp"):
            each.chmod(each.stat().st_mode | 0o5)
    ended = show(folder, user=65534, group=65534, extra_groups=[])
    assert ended.stdout.splitlines() == ["['books.txt'] ['books.txt'] /usr 65534", "30"], ended.stderr


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="takes rights away")
def test_without_any_right_the_reason_is_told(folder: Path) -> None:
    denied = 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set -sys_admin "$@"'
    ended = show(folder, "unshare", "-Ur", "sh", "-c", denied, "sh")
    assert ended.returncode == 1 and "OSError" in ended.stderr and "unshare: " in ended.stderr


def test_the_check_of_a_file_tells_what_each_entry_sees(folder: Path) -> None:
    ended = orsay("config", "--check", str(written(folder, TWO)))
    assert (
        f"{folder}/books at /orwd_data" in ended.stdout and f"{folder}/papers at /orwd_data" in ended.stdout
    )
