"""The coding environment with sandboxes: what solutions earn, and what cheats do not."""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from textwrap import dedent
from typing import Any

import pytest
from coding_env.cases import examples, hidden
from coding_env.env import CCodingEnvironment, CodingEnvironment
from coding_env.grading import Job, Verdict, run_jobs
from coding_env.languages import LANGUAGES, PLAIN
from coding_env.problem import Instance
from coding_env.problems import PROBLEMS
from coding_env.tasks import instance_of
from orsay import ToolOutput, sandbox

pytestmark = pytest.mark.engine

TRAIN = CodingEnvironment.splits["train"]
IMAGE = CodingEnvironment.image


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    """Skips where no engine answers."""
    found = shutil.which("docker")
    if found is None or subprocess.run([found, "version"], capture_output=True, check=False).returncode:
        pytest.skip("no Docker engine answers")
    yield


def has_image(name: str) -> bool:
    asked = ["docker", "image", "inspect", name]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


def instances(language: str = "python") -> list[Instance]:
    """One of each template that has that language."""
    found = [instance_of(task) for task in TRAIN[: len(PROBLEMS)]]
    return [replace(each, language=language) for each in found if language in each.problem.solutions]


def one(name: str) -> Instance:
    return next(each for each in instances() if each.problem.name == name)


async def verdicts(
    solutions: list[tuple[Instance, str | None]], *, number: int, image: str = IMAGE
) -> list[Verdict]:
    """What becomes of sources, which share a grader's sandbox; None: there is no file."""
    jobs, files = [], {}
    for at, (instance, source) in enumerate(solutions):
        path = f"/jobs/{at}/solution.{LANGUAGES[instance.language].extension}"
        jobs.append(
            Job(instance=instance, source=path, inputs=hidden(instance, "1", shown=[], number=number))
        )
        if source is not None:
            files[path] = source
    async with sandbox(image=image) as box:
        return await run_jobs(box, jobs, extra=files)


# every template


@pytest.mark.parametrize("language", PLAIN)
async def test_every_solution_is_right(language: str) -> None:
    tried = instances(language)
    found = await verdicts([(each, each.solution()) for each in tried], number=6)
    for instance, verdict in zip(tried, found, strict=True):
        assert verdict.passed == verdict.cases == 6, f"{instance.problem.name}: {verdict.text()}"


async def test_every_solution_in_c_is_right() -> None:
    image = CCodingEnvironment.image
    if not has_image(image):
        pytest.skip(f"the engine has no image {image}: image/Dockerfile makes it")
    tried = instances("c")
    found = await verdicts(
        [*((each, each.solution()) for each in tried), (tried[0], "int main(")], number=6, image=image
    )
    assert [verdict.passed for verdict in found] == [6] * len(tried) + [0]
    assert found[-1].ends == ["build"] * 6


def hard_coded(instance: Instance) -> str:
    """Right for the examples; else the answer to the last one."""
    known = [(value, instance.expected(value)) for value in examples(instance, "a")]
    if instance.problem.form == "program":
        return f"import sys\nknown = dict({known!r})\nprint(known.get(sys.stdin.read(), {known[-1][1]!r}))\n"
    return (
        f"def {instance.function}(*given):\n    for value, output in {known!r}:\n"
        "        if value == list(given):\n            return output\n    return output\n"
    )


def forged(instance: Instance) -> str:
    """Claims to have passed, in all places where a report may be read, and ends the process with success."""
    claims = """
        import json, os
        report = json.dumps([[["exit", 0, "MQ=="]] * 24]) + '{"passed": 24, "reward": 1.0}'
        parents = f"/proc/{os.getppid()}/fd/1", "/proc/1/fd/1"
        for place in (1, 2, 3, "/dev/stdout", *parents, "/grader/report.json"):
            try:
                with open(place, "w", closefd=False) if isinstance(place, int) else open(place, "w") as file:
                    file.write(report)
            except OSError:
                pass
        os._exit(0)
    """
    return dedent(claims)


def patched(instance: Instance) -> str:
    """Changes everything that a check in its own process would use."""
    return dedent(f"""
        import atexit, builtins, json, os, sys, unittest

        class Right:
            def __eq__(self, other): return True
            def __ne__(self, other): return False
            def __hash__(self): return 0
            def __repr__(self): return "1"

        json.dump = lambda value, file: file.write("true")
        json.dumps = lambda value, **options: "true"
        json.load = json.loads = lambda *given, **options: Right()
        builtins.all = builtins.any = lambda *given: True
        unittest.TestCase.assertEqual = lambda *given: None
        sys.modules["json"] = json
        sys.exit = lambda *given: None
        sys.excepthook = lambda *given: print("true")
        atexit.register(lambda: os._exit(0))

        def {instance.function or "main"}(*given):
            return Right()

        print("true")
    """)


@pytest.mark.parametrize("cheat", [hard_coded, forged, patched, None])
async def test_cheats_and_nothing_earn_nothing_in_any_template(cheat: Any) -> None:
    tried = instances()
    found = await verdicts([(each, cheat(each) if cheat else None) for each in tried], number=4)
    for instance, verdict in zip(tried, found, strict=True):
        assert verdict.passed < verdict.cases == 4, instance.problem.name
        if cheat is not hard_coded:
            assert verdict.passed == 0, instance.problem.name


# hostile solutions

HOSTILE = {
    "exit at import": "import os; os._exit(0)",
    "too much output": "import sys\nwhile True: sys.stdout.write('0' * 10_000)",
    "an endless loop": "while True: pass",
    "all memory": "x = []\nwhile True: x.append(bytearray(10_000_000))",
    "all memory, in many processes": """
        import os
        for _ in range(5): os.fork()
        try: open("/proc/self/oom_score_adj", "w").write("0")
        except OSError: pass
        x = []
        while True: x.append(bytearray(b"1" * 5_000_000))
    """,
    "a fork bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "its own parent": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)",
    "all processes": "import os, signal\nos.kill(-1, signal.SIGKILL)",
    "a daemon": """
        import os, signal, sys, time
        if os.fork() == 0:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if os.fork() == 0:
                while True:
                    for pid in os.listdir("/proc"):
                        try: os.kill(int(pid), signal.SIGKILL) if int(pid) != os.getpid() else None
                        except (OSError, ValueError): pass
            time.sleep(60)
        os._exit(0)
    """,
    "an output that stays open": "import os, time\nif os.fork() == 0: time.sleep(60)\nos._exit(0)",
    "no output": "import os; os.close(1)",
}


@pytest.mark.parametrize("half", [0, 1])
async def test_what_a_solution_does_to_the_grader_does_not_help_it_or_harm_others(half: int) -> None:
    honest, names = one("matrix-turn"), [*HOSTILE][half::2]
    tried: list[tuple[Instance, str | None]] = []
    for name in names:
        tried += [(honest, dedent(HOSTILE[name])), (honest, honest.solution())]
    found = await verdicts(tried, number=1)
    for name, bad, good in zip(names, found[::2], found[1::2], strict=True):
        assert bad.passed == 0, name
        assert good.passed == 1, f"after {name}: {good.text()}"
        expected = {"an endless loop": "time", "too much output": "output"}.get(name, bad.ends[0])
        assert bad.ends[0] == expected, name


async def test_inputs_after_some_that_took_too_long_are_not_tried() -> None:
    (verdict,) = await verdicts([(one("matrix-turn"), "while True: pass")], number=5)
    assert verdict.ends == ["time", "time", "time", "skipped", "skipped"]
    assert verdict.text() == (
        "0 of 5 hidden inputs passed (3 over the time limit, 2 not tried, for those before took too long)."
    )


async def test_a_solution_reaches_nothing_but_its_input() -> None:
    """It is right only where all that it tries is refused."""
    honest = one("digit-checksum")
    probe = dedent("""
        import glob, os, signal, socket

        def refused(attempt):
            try:
                attempt()
            except (OSError, ValueError):
                return True
            return False

        parent = os.getppid()
        attempts = [
            lambda: open(f"/proc/{parent}/mem", "rb").read(1),
            lambda: open("/proc/1/mem", "rb").read(1),
            lambda: open(f"/proc/{parent}/environ").read(),
            lambda: os.listdir(f"/proc/{parent}/fd"),
            lambda: open(f"/proc/{parent}/fd/1", "w"),
            lambda: open("/grader/plan.json"),
            lambda: open("/grader/driver.py", "a"),
            lambda: open("/grader/runner.py", "a"),
            lambda: open("/grader/x", "w"),
            lambda: open(__file__, "a"),
            lambda: os.remove(__file__),
            lambda: os.kill(parent, signal.SIGTERM),
            lambda: os.setuid(0),
            lambda: os.setuid(os.getuid() + 1),
            lambda: os.setgid(0),
            lambda: socket.create_connection(("1.1.1.1", 53), 1),
        ]
        assert os.getuid() >= 20_000 and os.getgroups() == []
        assert [number for number, attempt in enumerate(attempts) if not refused(attempt)] == []
        assert [path for path in glob.glob("/grader/*") if "plan" in path] == []
    """)
    (verdict,) = await verdicts([(honest, probe + honest.solution())], number=4)
    assert verdict.passed == 4, verdict.text()


# the environment


async def started(task: Any) -> CodingEnvironment:
    environment = CodingEnvironment(task)
    await environment.setup()
    return environment


def text_of(output: ToolOutput) -> str:
    return "".join(block.text for block in output.blocks)  # type: ignore[union-attr]  # there is only text


def task_in(language: str) -> Any:
    return next(task for task in TRAIN if task["language"] == language and task["form"] == "program")


@pytest.mark.parametrize("language", ["function", "bash"])
async def test_an_episode(language: str) -> None:
    task = TRAIN[0] if language == "function" else task_in(language)
    environment = await started(task)
    async with environment.box as box:
        path = LANGUAGES[task["language"]].path
        instance = instance_of(task)
        assert await environment.run_examples() == f"There is no {path}."
        await box.write(path, "echo nonsense >&2; exit 3" if language == "bash" else "def nothing(): pass")
        said = await environment.run_examples()
        assert said.count("not right (exit code") == 3
        assert ("nonsense" if language == "bash" else instance.function) in said
        await box.write(path, instance.solution())
        assert await environment.run_examples() == "\n".join(f"Example {n}: right." for n in (1, 2, 3))
        output = await environment.grade()
        assert (text_of(output), output.reward) == ("24 of 24 hidden inputs passed.", 1.0)
        assert (output.metadata or {})["passed"] == 24
        again = await environment.grade()
        assert (again.reward, again.finished) == (None, True)


@pytest.mark.parametrize(
    "change", ["true", "ln -s main.py solution.py", "head -c 300000 main.py >solution.py"]
)
async def test_what_is_no_small_plain_file_earns_nothing(change: str) -> None:
    environment = await started(TRAIN[0])
    async with environment.box as box:
        source = instance_of(TRAIN[0]).solution()
        await box.write("/work/main.py", source + "#" * 300_000)
        await box.run(change, cwd="/work")
        output = await environment.grade()
        assert (output.reward, output.finished) == (0.0, True)
        assert text_of(output) == "There is no file /work/solution.py of at most 200000 bytes."


async def test_the_sandbox_of_the_model_holds_no_reference_and_no_hidden_input() -> None:
    environment = await started(TRAIN[0])
    async with environment.box as box:
        found = await box.run("find /work /opt/coding /grader /jobs -type f 2>/dev/null | sort")
        assert found.output.split() == ["/opt/coding/driver.py", "/work/examples.txt"]
        assert "def " not in await box.read_text("/work/examples.txt")


async def test_changes_of_the_model_to_its_machine_do_not_reach_the_grader() -> None:
    environment = await started(TRAIN[0])
    async with environment.box as box:
        await box.write(LANGUAGES["python"].path, "def nothing(): pass")
        await box.run(
            "cp /bin/true /usr/bin/python3; echo 'print(1)' > /opt/coding/driver.py; mkdir -p /grader"
        )
        output = await environment.grade()
        assert (text_of(output), output.reward) == (
            "0 of 24 hidden inputs passed (24 not started, or ended with an error).",
            0.0,
        )


async def test_a_share_is_earned_where_that_is_asked_for() -> None:
    class Shares(CodingEnvironment):
        partial = True

    task = next(task for task in TRAIN if task["problem"] == "pick-positions")
    environment = Shares(task)
    await environment.setup()
    async with environment.box as box:
        function = instance_of(task).function
        await box.write(LANGUAGES["python"].path, f"def {function}(*given): return None")
        output = await environment.grade()
        assert 0 < (output.reward or 0) < 1
        assert output.reward == (output.metadata or {})["passed"] / 24


async def test_an_image_without_the_language_is_named() -> None:
    class Nowhere(CCodingEnvironment):
        image = IMAGE

    environment = Nowhere(CCodingEnvironment.splits["train"][0])
    with pytest.raises(RuntimeError, match=f"the image {IMAGE} has no gcc"):
        await environment.setup()
    await environment.box.close()
