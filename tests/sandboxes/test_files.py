"""Files of a sandbox: whole and in parts, of any name and content, without tools of the image."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import random

import pytest
from orsay.sandboxes.sandbox import Sandbox

ODD = "a b\n'\"*\\ä\udcff"


async def test_a_file_of_any_content_comes_back_as_it_was(sandbox: Sandbox, folder: str) -> None:
    content = random.Random(1).randbytes(5_000_001)
    await sandbox.write(f"{folder}/new/below/data.bin", content)
    assert await sandbox.read(f"{folder}/new/below/data.bin") == content
    said = await sandbox.run(["sha256sum", f"{folder}/new/below/data.bin"])
    assert said.output.split()[0].decode() == hashlib.sha256(content).hexdigest()
    assert await sandbox.read(f"{folder}/new/below/data.bin", offset=4_999_999) == content[-2:]
    assert await sandbox.read(f"{folder}/new/below/data.bin", offset=3, length=4) == content[3:7]
    assert await sandbox.read(f"{folder}/new/below/data.bin", offset=6_000_000) == b""


async def test_descriptions_tell_links_folders_and_names_of_any_form(sandbox: Sandbox, folder: str) -> None:
    await sandbox.write(f"{folder}/{ODD}", b"12345", mode=0o640)
    await sandbox.run("ln -s nowhere soft; mkdir deep; mkfifo pipe", folder=folder)
    listed = {each.name: each for each in await sandbox.list(folder)}
    assert {name: each.kind for name, each in listed.items()} == {
        ODD: "file",
        "soft": "link",
        "deep": "folder",
        "pipe": "other",
    }
    assert (listed[ODD].size, listed[ODD].mode, listed[ODD].user, listed[ODD].group) == (5, 0o640, 0, 0)
    one = await sandbox.stat(f"{folder}/soft")
    assert (one.kind, one.name) == ("link", f"{folder}/soft")
    assert await sandbox.read(f"{folder}/{ODD}") == b"12345"


async def test_a_file_is_replaced_at_once_and_keeps_owner_and_mode(sandbox: Sandbox, folder: str) -> None:
    path = f"{folder}/kept"
    old, new = b"old" * 100_000, b"new" * 100_000
    await sandbox.write(path, old)
    await sandbox.run(["chown", "65534:65534", path])
    await sandbox.run(["chmod", "751", path])
    watching = asyncio.create_task(
        sandbox.run(f"while [ ! -e {folder}/stop ]; do head -c 3 {path}; wc -c < {path}; done | sort -u")
    )
    for content in (new, old, new):
        await sandbox.write(path, content)
    await sandbox.write(f"{folder}/stop", b"")
    seen = set((await watching).output.decode().split())
    assert seen <= {"old300000", "new300000"}
    found = await sandbox.stat(path)
    assert (found.mode, found.user, found.group) == (0o751, 65534, 65534)
    assert [each.name for each in await sandbox.list(folder)] == ["kept", "stop"]


async def test_a_file_is_written_in_parts_and_gets_its_name_only_whole(sandbox: Sandbox, folder: str) -> None:
    part, path = f"{folder}/it.part", f"{folder}/it"
    await sandbox.write_part(part, b"x" * 100)
    await sandbox.write_part(part, b"first ")
    await sandbox.write_part(part, b"second", offset=6)
    with pytest.raises(OSError) as caught:
        await sandbox.commit(part, path, size=13)
    assert caught.value.errno == errno.EMSGSIZE
    await sandbox.commit(part, path, size=12, mode=0o600)
    assert await sandbox.read(path) == b"first second"
    assert (await sandbox.stat(path)).mode == 0o600
    await sandbox.remove(path)
    assert await sandbox.list(folder) == []


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("nothing", FileNotFoundError),
        ("deep", IsADirectoryError),
        ("soft", errno.ELOOP),
        ("pipe", errno.EINVAL),
        ("file/below", NotADirectoryError),
        ("n" * 300, errno.ENAMETOOLONG),
    ],
)
async def test_what_is_no_file_is_an_error_at_once(
    sandbox: Sandbox, folder: str, name: str, error: type[OSError] | int
) -> None:
    await sandbox.run("mkdir deep; touch file; ln -s file soft; mkfifo pipe", folder=folder)
    with pytest.raises(OSError) as caught:
        await asyncio.wait_for(sandbox.read(f"{folder}/{name}"), 30)
    assert caught.value.filename == f"{folder}/{name}"
    assert caught.value.errno == error if isinstance(error, int) else isinstance(caught.value, error)


async def test_a_file_that_cannot_be_written_leaves_nothing(sandbox: Sandbox, folder: str) -> None:
    await sandbox.run("mkdir deep", folder=folder)
    with pytest.raises(IsADirectoryError):
        await sandbox.write(f"{folder}/deep", b"x")
    with pytest.raises(FileNotFoundError):
        await sandbox.write(f"{folder}/none/x", b"x", folders=False)
    with pytest.raises(OSError):
        await sandbox.write("/proc/nothing", b"x")
    await sandbox.run("ln -s /etc/passwd soft; mkfifo pipe", folder=folder)
    for name, wrong in (("soft", errno.ELOOP), ("pipe", errno.EINVAL)):
        with pytest.raises(OSError) as caught:
            await sandbox.write(f"{folder}/{name}", b"x")
        assert caught.value.errno == wrong
    with pytest.raises(OSError, match="not a path of bytes"):
        await sandbox.read("/\ud800")
    assert [each.name for each in await sandbox.list(folder)] == ["deep", "pipe", "soft"]
    assert await sandbox.list(f"{folder}/deep") == []


@pytest.mark.parametrize("path", ["", "relative", "../up", "/a\0b"])
async def test_a_path_that_is_not_absolute_is_refused(sandbox: Sandbox, path: str) -> None:
    for doing in (sandbox.read(path), sandbox.write(path, b""), sandbox.stat(path), sandbox.list(path)):
        with pytest.raises(OSError, match="not an absolute path"):
            await doing
