"""Toolsets of the package over a sandbox of this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio
from orsay import Sandbox, sandbox
from orsay.toolsets import Bash, Files, Shell

from ..support.engine import needs_engine

pytestmark = needs_engine


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box() -> AsyncIterator[Sandbox]:
    async with sandbox(image="python:3.11-slim", memory="256m", env={"GIVEN": "1"}) as found:
        yield found


class Typed:
    """A shell as a model sees it."""

    def __init__(self, box: Any) -> None:
        self._shell = Shell(SimpleNamespace(sandbox=box))

    async def __call__(self, command: str, **options: Any) -> str:
        return text(await self._shell.bash(command, **options))


@pytest.fixture
def shell(box: Sandbox) -> Typed:
    return Typed(box)


@pytest.fixture
def files(box: Sandbox) -> Files:
    return Files(SimpleNamespace(sandbox=box))


def text(output: Any) -> str:
    return str(output.blocks[0].text)


on_one_loop = pytest.mark.asyncio(loop_scope="module")


# shell


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("code=hello state=1 name=x", "echo $code $state $name", "hello 1 x\n"),
        ("cd /usr; cd /etc", "cd -; echo $OLDPWD", "/usr\n/etc\n"),
        ("cd() { builtin cd \"$@\" && ls -d /usr; }; cd /etc", "echo $PWD", "/etc\n"),
        ("shopt -s expand_aliases; alias cd='echo no' set='echo no'; builtin cd /etc", "echo $PWD", "/etc\n"),
        ("shopt -s expand_aliases; alias hi='echo hello'", "hi", "hello\n"),
        ("mv() { echo mine; }; export CDPATH=/usr; K=1; cd /etc", "echo $K $PWD; mv", "1 /etc\nmine\n"),
        ("PATH=/x; K=1", "echo $PATH $K", "/x 1\n"),
        ("unset HOME GIVEN", "echo ${HOME-none} ${GIVEN-none}", "none none\n"),
        ("X=$'one\\ndeclare -r two\\n\"$three'", "echo \"$X\"", 'one\ndeclare -r two\n"$three\n'),
        ("declare -a L=(1 'b c'); declare -A M=([k]='v w'); declare -i N=3", "N+=1; echo ${L[1]} ${M[k]} $N",
         "b c v w 4\n"),
        ("export E=1; F=2", "env | grep -E '^[EF]='", "E=1\n"),
        ("readonly R='a b'", "echo $R; R=2", "a b\n/bin/bash: line 1: R: readonly variable\n[exit code 1]"),
        ("f() { cat <<X\n$1\nX\n}; export -f f; a-b() { echo ab; }", "bash -c 'f 1'; a-b", "1\nab\n"),
        ("IFS=:; set -f; umask 777; shopt -s nocasematch; K=*", 'echo "$K" $- $(umask); shopt -q nocasematch',
         "* fhBc 0777\n"),
        ("shopt -s extglob\nf() { case $1 in +(a)) echo yes; esac; }", "f aaa; shopt -q extglob", "yes\n"),
        ("shopt -s extglob\nf() { case $1 in +(a)) echo yes; esac; }; g() { echo g; }\nshopt -u extglob",
         "g; shopt -q extglob", "g\n[exit code 1]"),
        ("set -C; Q=1", "echo $Q", "1\n"),
        ("set -t; Q=1", "echo $Q", "1\n"),
        ("Q=1; set -n", "echo ok$Q", "ok\n"),
        ("set -o posix; P=1", "echo $P; shopt -qo posix && echo posix", "1\nposix\n"),
        ("X=1; exit 3", "echo $X", "1\n"),
        ("X=1; return 3", "echo $X", "1\n"),
        ("trap 'echo bye' EXIT; X=1; exit 3", "echo $X; trap -p", "1\n"),
        ("exec 2>/dev/null; X=1", "echo $X", "1\n"),
        ("X=1; kill -9 $$", "echo ${X-as before}", "as before\n"),
        ("X=1; echo 'unclosed", "echo ${X-as before}", "as before\n"),
        ("LINENO=7; BASH_ENV=/x; X=1", "echo $BASH_ENV $X; env | grep -c orsay", "/x 1\n0\n[exit code 1]"),
        ("(trap 'echo sub' EXIT; X=2); X=1; sleep 60 & disown", "echo $X", "1\n"),
    ],
)  # fmt: skip
@on_one_loop
async def test_a_shell_remembers(shell: Typed, before: str, after: str, said: str) -> None:
    await shell(before, timeout_s=20)
    assert await shell(after) == said


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("nope", "/bin/bash: line 1: nope: command not found\n[exit code 127]"),
        ("X=1\nset -x\necho $X", "+ echo 1\n1\n"),
        ("set -x; trap 'echo bye' EXIT", "+ trap 'echo bye' EXIT\nbye\n"),
        ("trap 'echo $?; exit 4' EXIT; (exit 3)", "3\n[exit code 4]"),
        ("trap 'echo x' EXIT; trap - EXIT; trap '' INT; trap -p INT", "trap -- '' SIGINT\n"),
        ("trap 'echo error' ERR; false; trap 'echo next' DEBUG; true", "error\nnext\n"),
        ("trap 'echo bye' EXIT; trap -p; old=$(trap -p EXIT); eval \"$old\"", "trap -- 'echo bye' EXIT\n"),
        ("trap 'echo bye' 0; trap 'echo $X' INT; X=1; kill -INT $$", "1\nbye\n"),
        ("(trap 'echo sub' EXIT; true); echo $(trap 'echo two' EXIT)", "sub\ntwo\n"),
        ("set -e; false; echo no", "[exit code 1]"),
        ("cat <<'X'\n$a\nX", "$a\n"),
        ("cat <(echo a); read -r x || echo none", "a\nnone\n"),
        ("echo 'a", "/bin/bash: -c: line 1: unexpected EOF while looking for matching `''\n[exit code 2]"),
        ("echo \ud800", "A command cannot hold half of a surrogate pair: nothing ran."),
        ("X=" + "a" * 300_000 + "; echo ${#X}", "300000\n"),
    ],
)
@on_one_loop
async def test_a_command_prints_what_bash_prints(shell: Typed, command: str, said: str) -> None:
    assert await shell(command) == said


@on_one_loop
async def test_options_are_kept_and_show_nothing_of_the_shell(shell: Typed) -> None:
    await shell("set -eux")
    assert await shell("echo $-") == "+ echo ehuxBc\nehuxBc\n"
    assert (await shell("echo $none")).endswith("none: unbound variable\n[exit code 1]")
    assert await shell("{ false; } ; echo no") == "+ false\n[exit code 1]"
    assert await shell("set +eux; echo $-") == "+ set +eux\nhBc\n"
    assert await shell("echo $-") == "hBc\n"


@on_one_loop
async def test_a_shell_of_another_user(box: Sandbox) -> None:
    class Nobodys(Shell):
        user = "nobody"

    shell = Nobodys(SimpleNamespace(sandbox=box))
    await shell.bash("cd /usr; umask 777; X=1")
    assert text(await shell.bash("echo $X $PWD $(umask) $(id -un)")) == "1 /usr 0777 nobody\n"


@on_one_loop
async def test_commands_at_once_leave_a_whole_state(shell: Typed) -> None:
    await shell("X=1")
    await asyncio.gather(*(shell(f"Y={number}; f() {{ echo $X $Y; }}") for number in range(6)))
    assert await shell("f") in {f"1 {number}\n" for number in range(6)}


@on_one_loop
async def test_a_shell_whose_files_are_removed_begins_anew(shell: Typed) -> None:
    await shell("X=1; find /tmp -mindepth 1 -delete")
    assert await shell("echo $X; rm -f /tmp/.orsay*; Y=2") == "1\n"
    assert await shell("echo $Y") == "2\n"


@on_one_loop
async def test_the_command_that_is_noted_is_the_one_of_the_model(box: Sandbox) -> None:
    ran: list[str] = []

    class Noting:
        id = box.id

        async def run(self, command: str, **options: Any) -> Any:
            ran.append(command)
            return await box.run(command, **options)

    shell = Typed(Noting())
    await shell("X=1")
    assert await shell("echo $X") == "1\n"
    assert [ran[-2], ran[-1]] == ["X=1", "echo $X"]


@on_one_loop
async def test_the_startup_file_of_an_image_is_read() -> None:
    startup = {"/etc/mine": "hello() { echo hello; }\n"}
    async with sandbox(image="python:3.11-slim", files=startup, env={"BASH_ENV": "/etc/mine"}) as box:
        shell = Typed(box)
        assert await shell("hello; unset -f hello") == "hello\n"
        assert await shell("hello 2>/dev/null || bash -c hello; echo $BASH_ENV") == "hello\n/etc/mine\n"


@on_one_loop
async def test_bash_refuses_what_is_no_text(box: Sandbox) -> None:
    said = await Bash(SimpleNamespace(sandbox=box)).bash("echo \ud800")
    assert "surrogate" in text(said)


# files


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/work/a\0b", "cannot hold a NUL"),
        ("/work/\ud800", "surrogate"),
        ("/work/" + "a" * 300, "File name too long"),
        ("/work" + "/a" * 35_000, "File name too long"),
    ],
)
@on_one_loop
async def test_impossible_paths_are_answered(files: Files, path: str, said: str) -> None:
    for answer in (
        await files.view_file(path),
        await files.write_file(path, "x"),
        await files.replace_in_file(path, "a", "b"),
        await files.insert_in_file(path, 0, "x"),
    ):
        assert said in text(answer) and len(text(answer)) < 1_000


@on_one_loop
async def test_a_text_that_is_none_is_answered(files: Files) -> None:
    assert "surrogate" in text(await files.write_file("/work/s", "\ud800"))


@pytest.mark.parametrize(
    ("before", "line", "added", "after"),
    [
        ("a\fb\nc", 1, "N", "a\fb\nN\nc"),
        ("a\x0b\x1c\x85\u2028b\n", 1, "N", "a\x0b\x1c\x85\u2028b\nN\n"),
        ("a\r\nb\r\nc", 1, "N\nM", "a\r\nN\r\nM\r\nb\r\nc"),
        ("a\r\nb", 2, "N\n", "a\r\nb\r\nN"),
        ("a\r\nb\r\n", 0, "N\r\n", "N\r\na\r\nb\r\n"),
        ("a\nb\r\n", 1, "N", "a\nN\nb\r\n"),
        ("a", 1, "N", "a\nN"),
        ("a", 0, "N", "N\na"),
        ("", 0, "N", "N\n"),
    ],
)
@on_one_loop
async def test_lines_that_are_inserted(
    box: Sandbox, files: Files, before: str, line: int, added: str, after: str
) -> None:
    await box.write("/work/lines", before)
    await files.insert_in_file("/work/lines", line, added)
    assert (await box.read("/work/lines")).decode() == after


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        ("a\r\nb\r\nc", "a\nb", "x\ny\nz", "x\r\ny\r\nz\r\nc"),
        ("a\r\nb", "a\r\nb", "x\r\ny", "x\r\ny"),
        ("a\r\nb\r\n", "b", "x\ny", "a\r\nx\r\ny\r\n"),
        ("a\r\nb\nc\n", "b\nc", "x\ny", "a\r\nx\ny\n"),
        ("a\r\nb\nc\n", "a\nb", "x\ny", "x\r\ny\nc\n"),
        ("a\fb", "a\fb", "x\fy", "x\fy"),
    ],
)
@on_one_loop
async def test_line_ends_of_what_is_replaced(
    box: Sandbox, files: Files, before: str, old: str, new: str, after: str
) -> None:
    await box.write("/work/lines", before)
    await files.replace_in_file("/work/lines", old, new)
    assert (await box.read("/work/lines")).decode() == after


@on_one_loop
async def test_lines_are_numbered_as_cat_does(box: Sandbox, files: Files) -> None:
    await box.write("/work/lines", "a\fb\x85\u2028\n\nc\r\n" + "d" * 3_000)
    numbered = (await box.run("cat -n /work/lines")).output.splitlines(keepends=True)
    assert sum(line.endswith("\n") for line in numbered) == 3
    long = f"     4\t{'d' * 2_000}[... 1000 characters of this line are left out ...]"
    assert (
        text(await files.view_file("/work/lines")) == f"     1\ta\fb\x85\u2028\n     2\t\n     3\tc\n{long}"
    )
