"""Commands in a sandbox: output, codes, limits, what they leave behind."""

from __future__ import annotations

import asyncio
import secrets
import time

import pytest
from orsay.errors import SandboxGone
from orsay.sandboxes.sandbox import Sandbox

from ..support.sandboxes import comes_true


async def alive(sandbox: Sandbox, argument: str) -> bool:
    """Whether a process with that argument runs there; ours has it in another form."""
    pattern = f"^[{argument[0]}]{argument[1:]}$"
    arguments = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'"
    return (await sandbox.run(f"{arguments} | grep -c '{pattern}'")).output.strip() != b"0"


def seconds() -> str:
    """Long, and of no other process."""
    return f"7777.{secrets.randbelow(10**9):09}"


async def test_output_and_errors_come_as_one_stream_in_order(sandbox: Sandbox) -> None:
    result = await sandbox.run("echo out; echo err >&2; printf '\\0\\377'; exit 3")
    assert (result.output, result.return_code) == (b"out\nerr\n\0\xff", 3)
    assert not result.timed_out and not result.truncated and 0 < result.duration_s < 60


async def test_a_command_is_a_fresh_bash_without_input(sandbox: Sandbox) -> None:
    result = await sandbox.run(
        "x=1; cd /usr; cat; echo $0; readlink /proc/self/fd/0; ls /proc/self/fd | wc -l"
    )
    assert result.output.decode().split() == ["/bin/bash", "/dev/null", "4"]  # the fourth is of ls
    again = (await sandbox.run("echo ${x:-unset}; pwd")).output
    assert again.startswith(b"unset\n") and again != b"unset\n/usr\n"


async def test_a_program_gets_its_arguments_as_they_are(sandbox: Sandbox) -> None:
    result = await sandbox.run(["printf", "%s|", "a b", "$HOME", "*", "ä", "\udcff", ""])
    assert result.output == "a b|$HOME|*|ä|".encode() + b"\xff||"


async def test_variables_and_folder(sandbox: Sandbox, folder: str) -> None:
    result = await sandbox.run(
        'printf "%s;" "$A" "$B"; pwd', variables={"A": "1 2=3", "B": "x\ny"}, folder=folder
    )
    assert result.output.decode() == f"1 2=3;x\ny;{folder}\n"


async def test_users_by_name_and_by_number(sandbox: Sandbox) -> None:
    for user in ("nobody", "65534"):
        result = await sandbox.run("id -un; id -gn; touch /etc/mine", user=user)
        assert result.output.startswith(b"nobody\nnogroup\n") and result.return_code == 1
    result = await sandbox.run("id -u; id -g; id -G", user="1234:77")
    assert result.output == b"1234\n77\n77\n"
    assert (
        await sandbox.run("echo x > /dev/stderr; echo y > /dev/stdout", user="nobody")
    ).output == b"x\ny\n"
    for wrong in ("-1", "4294967296", "4294967295", "1000:staff", "0x1", " 0", "1 "):
        result = await sandbox.run("id -u", user=wrong)
        assert result.return_code in (126, 127) and b": " in result.output, wrong


@pytest.mark.parametrize(
    ("words", "options", "code", "says"),
    [
        (["/nowhere/program"], {}, 127, "/nowhere/program: No such file or directory"),
        (["/etc/passwd"], {}, 126, "/etc/passwd: Permission denied"),
        (["true"], {"folder": "/nowhere"}, 127, "/nowhere: No such file or directory"),
        (["true"], {"user": "nosuchuser"}, 127, "nosuchuser: No such file or directory"),
    ],
)
async def test_a_command_that_cannot_start_says_why_as_a_shell_does(
    sandbox: Sandbox, words: list[str], options: dict[str, str], code: int, says: str
) -> None:
    result = await sandbox.run(words, **options)  # type: ignore[arg-type]  # any option
    assert (result.return_code, result.output.decode()) == (code, f"{says}\n")


async def test_what_cannot_be_a_command_is_an_error_of_the_caller(sandbox: Sandbox) -> None:
    for command in ("echo a\0b", ["echo", "a\0b"], "echo \ud800", ":" * (33 << 20)):
        with pytest.raises(ValueError):
            await sandbox.run(command)
    for limits in ({"timeout_s": float("inf")}, {"timeout_s": -1.0}, {"max_bytes": -1}):
        with pytest.raises(ValueError, match="out of range"):
            await sandbox.run("true", **limits)
    assert not sandbox._connection._jobs
    assert (await sandbox.run(["@stat", "/"])).return_code == 127  # a program, and no file operation


async def test_no_time_is_no_time(sandbox: Sandbox) -> None:
    assert (await sandbox.run("sleep 60", timeout_s=0)).timed_out


async def test_an_error_of_the_function_that_gets_output_is_raised_and_ends_its_command(
    sandbox: Sandbox,
) -> None:
    def fails(data: bytes) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await sandbox.run("yes", on_output=fails)
    assert (await sandbox.run("echo alive")).output == b"alive\n"


async def test_a_signal_is_128_and_its_number(sandbox: Sandbox) -> None:
    assert (await sandbox.run("kill -TERM $$")).return_code == 143


async def test_a_command_of_megabytes_runs_as_a_short_one_does(sandbox: Sandbox) -> None:
    text = "ab" * 6_000_000
    result = await sandbox.run(f"x={text}; echo ${{#x}} $0; ls /proc/self/fd | wc -l; exit 4")
    assert result.output.decode().split()[:2] == ["12000000", "/bin/bash"] and result.return_code == 4


async def test_output_beyond_the_limit_is_dropped_and_the_command_goes_on(
    sandbox: Sandbox, folder: str
) -> None:
    result = await sandbox.run(f"seq 1 500000 && echo on > {folder}/done", max_bytes=5)
    assert (result.output, result.truncated, result.return_code) == (b"1\n2\n3", True, 0)
    assert await sandbox.read(f"{folder}/done") == b"on\n"
    whole = await sandbox.run("seq 1 500000")
    assert len(whole.output) == 3_388_895 and not whole.truncated
    nothing = await sandbox.run("echo x", max_bytes=0)
    assert (nothing.output, nothing.truncated) == (b"", True)


async def test_output_comes_while_the_command_runs(sandbox: Sandbox, folder: str) -> None:
    first = asyncio.Event()
    running = asyncio.create_task(
        sandbox.run(
            f"echo first; while [ ! -e {folder}/go ]; do sleep 0.02; done", on_output=lambda _: first.set()
        )
    )
    await first.wait()
    assert not running.done()
    await sandbox.write(f"{folder}/go", b"")
    assert (await running).output == b"first\n"


async def test_standard_input_of_any_size(sandbox: Sandbox) -> None:
    assert (await sandbox.run("cat", stdin=b"\0\xff\n")).output == b"\0\xff\n"
    assert (await sandbox.run("wc -c", stdin=b"x" * 3_000_001)).output.strip() == b"3000001"
    assert (await sandbox.run("cat", stdin=b"")).output == b""
    unread = await sandbox.run("exec 0<&-; sleep 0.2; echo closed", stdin=b"x" * 3_000_000)
    assert unread.output == b"closed\n"
    assert (await sandbox.run("exit 5", stdin=b"x" * 3_000_000)).return_code == 5


async def test_at_the_time_limit_all_that_was_started_is_killed(sandbox: Sandbox) -> None:
    long = seconds()
    daemon = f"setsid bash -c 'trap \"\" TERM; sleep {long}; :'"
    ignores = f"trap '' TERM HUP INT; ({daemon} &) ; echo early; sleep {long}"
    began = time.monotonic()
    result = await sandbox.run(ignores, timeout_s=1)
    assert (result.output, result.return_code, result.timed_out) == (b"early\n", 124, True)
    assert time.monotonic() - began < 10
    assert not await alive(sandbox, long)


async def test_a_command_that_ends_by_itself_has_not_timed_out(sandbox: Sandbox) -> None:
    result = await sandbox.run("exit 124", timeout_s=60)
    assert (result.return_code, result.timed_out) == (124, False)


async def test_what_is_left_in_the_background_holds_nothing_up_and_lives_on(
    sandbox: Sandbox, folder: str
) -> None:
    script = (
        f"(while [ ! -e {folder}/go ]; do echo noise; sleep 0.02; done; echo late > {folder}/late) & echo out"
    )
    result = await sandbox.run(script, timeout_s=30)
    assert result.return_code == 0 and b"out\n" in result.output
    await sandbox.write(f"{folder}/go", b"")

    async def late() -> bool:
        return (await sandbox.run(f"cat {folder}/late")).output == b"late\n"

    await comes_true(late)


async def test_who_is_cancelled_leaves_nothing_running(sandbox: Sandbox) -> None:
    first = asyncio.Event()
    long = seconds()
    script = f"(setsid sleep {long} &) ; echo first; sleep {long}"
    running = asyncio.create_task(sandbox.run(script, on_output=lambda _: first.set()))
    await first.wait()
    assert await alive(sandbox, long)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    async def gone() -> bool:
        return not await alive(sandbox, long)

    await comes_true(gone)


async def test_commands_run_at_once_and_get_their_own_answers(sandbox: Sandbox, folder: str) -> None:
    meet = f"touch {folder}/$N; until [ $(ls {folder} | wc -l) = 8 ]; do sleep 0.02; done; echo $N; exit $N"
    results = await asyncio.gather(
        *(sandbox.run(meet, variables={"N": str(n)}, timeout_s=60) for n in range(8))
    )
    assert [(each.output, each.return_code) for each in results] == [(f"{n}\n".encode(), n) for n in range(8)]


async def test_a_command_that_kills_its_supervisor_is_killed_with_all_it_started(sandbox: Sandbox) -> None:
    other = asyncio.create_task(sandbox.run("sleep 0.5; echo other"))
    long = seconds()
    result = await sandbox.run(f"(setsid sleep {long} &) ; kill -9 $PPID; sleep {long}")
    assert result.return_code == 137

    async def gone() -> bool:
        return not await alive(sandbox, long)

    await comes_true(gone)
    assert (await other).output == b"other\n"


async def test_nothing_runs_in_a_sandbox_that_was_closed(sandbox: Sandbox) -> None:
    running = asyncio.create_task(sandbox.run("sleep 60"))
    await asyncio.sleep(0.1)
    await sandbox.close()
    await sandbox.close()
    for doing in (running, sandbox.run("true"), sandbox.read("/etc/passwd")):
        with pytest.raises(SandboxGone, match="it was closed"):
            await doing
