"""Runs solutions on inputs, in the grader's sandbox, and reports what they wrote. It judges nothing.

The plan, a file of JSON, is removed before the first solution starts:

    {"limits": {"cpu_s", "wall_s", "total_s", "build_s", "memory_bytes", "output_bytes", "processes", "slow"},
     "jobs": [{"source", "build": [word], "run": [word], "inputs": [text]}]}

Each job has a user of its own, which is neither root nor the user of another job, and whose processes are
killed after each input: a solution cannot read or signal this process, nor wait for the next input.
The report, one line of JSON on standard output, has for each job and input

    [end, exit status, base64 of the output]        end: exit, time, output, failed, build, skipped
"""

import base64
import json
import os
import random
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

FIRST_USER, LAST_USER = 20_000, 59_000  # of no image's own users, and in a user namespace's 65,536
PART = 65_536


def main(plan_path: str) -> None:
    with open(plan_path) as file:
        plan = json.load(file)
    os.remove(plan_path)
    # A limit of processes is for all of a user on the machine, so that the number is drawn.
    first = random.SystemRandom().randint(FIRST_USER, LAST_USER - len(plan["jobs"]))
    if not all(end_all(first + number) for number in range(len(plan["jobs"]))):
        sys.exit("users of the grader have processes already")
    report = [work(job, plan["limits"], user) for user, job in enumerate(plan["jobs"], first)]
    print(json.dumps(report))


def work(job: dict[str, Any], limits: dict[str, Any], user: int) -> list[list[Any]]:
    """Results of a job, one for each input."""
    number = len(job["inputs"])
    if not os.path.isfile(job["source"]):
        return [["failed", 0, ""]] * number
    os.chmod(job["source"], 0o644)
    folder = tempfile.mkdtemp(prefix="job-")
    os.chown(folder, user, user)
    if job["build"]:
        building = {**limits, "cpu_s": limits["build_s"], "wall_s": limits["build_s"]}
        end, status, _ = attempt(job["build"], "", folder, user, building, limits["build_s"])
        if end != "exit" or status:
            return [["build", status, ""]] * number
    results: list[list[Any]] = []
    slow, until = 0, time.monotonic() + limits["total_s"]
    for text in job["inputs"]:
        left = until - time.monotonic()
        if slow == limits["slow"] or left <= 0:
            results.append(["skipped", 0, ""])
            continue
        end, status, output = attempt(job["run"], text, folder, user, limits, min(limits["wall_s"], left))
        slow += end == "time"
        results.append([end, status, base64.b64encode(output).decode()])
    return results


def attempt(
    words: list[str], text: str, folder: str, user: int, limits: dict[str, Any], wall_s: float
) -> tuple[str, int, bytes]:
    """How a command ended, its status, and what it wrote to standard output."""
    try:
        with tempfile.TemporaryFile() as stdin:
            stdin.write(text.encode())
            stdin.seek(0)
            return _attempt(words, stdin.fileno(), folder, user, limits, wall_s)
    except OSError:  # no such program, no room left: the solution's own doing
        end_all(user)
        return "failed", 0, b""


def _attempt(
    words: list[str], stdin: int, folder: str, user: int, limits: dict[str, Any], wall_s: float
) -> tuple[str, int, bytes]:
    reading, writing = os.pipe()
    try:
        for descriptor in (stdin, writing):
            os.fchown(descriptor, user, user)  # /dev/stdin and /dev/stdout can be opened
        try:
            process = subprocess.Popen(
                words,
                stdin=stdin,
                stdout=writing,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                env={
                    "PATH": os.environ["PATH"],
                    "HOME": folder,
                    "LC_ALL": "C",
                    "PYTHONDONTWRITEBYTECODE": "1",
                },
                user=user,
                group=user,
                extra_groups=[],
                start_new_session=True,
                preexec_fn=lambda: limit(limits),
            )
        finally:
            os.close(writing)
        try:
            with open(f"/proc/{process.pid}/oom_score_adj", "w") as file:
                file.write("1000")  # out of memory: it goes first
        except OSError:
            pass  # it ended already
        end, kept = collect(process.pid, reading, limits["output_bytes"], wall_s)
        if end != "exit":
            end_all(user)
        status = process.wait()
        end_all(user)
        os.set_blocking(reading, False)
        try:
            while len(kept) <= limits["output_bytes"] and (part := os.read(reading, PART)):
                kept += part
        except BlockingIOError:
            pass  # held by what could not be killed
    finally:
        os.close(reading)
    if status == -signal.SIGXCPU:
        end = "time"
    elif len(kept) > limits["output_bytes"]:
        end = "output"
    return end, status, kept if end == "exit" else b""


def collect(pid: int, reading: int, most: int, wall_s: float) -> tuple[str, bytes]:
    """What a process writes until it ends, however long others hold its output."""
    ended = os.pidfd_open(pid)
    try:
        kept, watched, until = b"", [ended, reading], time.monotonic() + wall_s
        while True:
            ready, _, _ = select.select(watched, [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return "time", kept
            if reading in ready:
                part = os.read(reading, PART)
                kept += part
                if len(kept) > most:
                    return "output", kept
                if not part:
                    watched.remove(reading)
            if ended in ready:
                return "exit", kept
    finally:
        os.close(ended)


def limit(limits: dict[str, Any]) -> None:
    cpu_s, memory = limits["cpu_s"], limits["memory_bytes"]
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (memory // 8, memory // 8))
    resource.setrlimit(resource.RLIMIT_NPROC, (limits["processes"], limits["processes"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def end_all(user: int) -> bool:
    """Kill all processes of a user. False where some are left after a second."""
    for _ in range(100):
        kill_all(user)
        if not has_processes(user):
            return True
        time.sleep(0.01)
    return False


def kill_all(user: int) -> None:
    """As that user, for then the kernel signals all of them at once, and none can fork away."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            code = 0
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(code)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1:
        sys.exit("the grader cannot change its user in this sandbox")


def has_processes(user: int) -> bool:
    for name in os.listdir("/proc"):
        try:
            if name.isdecimal() and os.stat(f"/proc/{name}").st_uid == user:
                return True
        except OSError:
            continue  # it ended
    return False


if __name__ == "__main__":
    main(sys.argv[1])
