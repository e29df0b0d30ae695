"""Targets of adapters on the command line and in the loader: what is wrong with one is reported."""

import os
import subprocess
import sys

import pytest
from orsay.adapters import is_adapter_target
from orsay.errors import LoadError
from orsay.runtimes.loader import load

from tests.support.servers import orsay, orsay_programs

pytestmark = pytest.mark.process


def problem(target: str) -> str:
    with pytest.raises(LoadError) as caught:
        load(target)
    return str(caught.value)


@pytest.mark.parametrize(
    ("target", "is_one"),
    [
        ("gymnasium:X-v1", True),
        ("reasoning-gym:x", True),
        ("text:module:Class", True),
        ("openenv:http://x", True),
        ("text:Class", False),
        ("openenv:Class", False),
        ("openenv", False),
        ("module:Class", False),
    ],
)
def test_an_adapters_target_is_distinguished_from_a_module(target: str, is_one: bool) -> None:
    assert is_adapter_target(target) == is_one


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("gymnasium:FrozenLak-v1", "FrozenLake-v1"),
        ("gymnasium:FrozenLake-v9", "FrozenLake-v1"),
        ("gymnasium:nowhere/X-v0", "nowhere"),
        ("gymnasium:no_such_module:X-v0", "no_such_module"),
        ("gymnasium:", "names no environment"),
        ("gymnasium:FrozenLake-v1?is_slipery=false", "did you mean 'is_slippery'?"),
        ("gymnasium:FrozenLake-v1?map_name=9x9", "cannot be made"),
        ("gymnasium:FrozenLake-v1?render=video", "render must be image or ansi"),
        ("gymnasium:Pendulum-v1?render=ansi", "cannot be rendered as ansi"),
        ('gymnasium:FrozenLake-v1?actions=["a","b"]', "actions must name each"),
        ('gymnasium:Pendulum-v1?actions=["a"]', "actions must name each"),
        ("gymnasium:FrozenLake-v1?train_tasks=many", "train_tasks must be a whole number"),
        ("gymnasium:FrozenLake-v1?seed=-1", "seed must be"),
        ("gymnasium:FrozenLake-v1?name=a/b", "without '/'"),
        ("gymnasium:FrozenLake-v1?render", "write setting=value"),
        ("gymnasium:tests.adapters.gymnasium_environments:Graphs-v0", "Graph has no form"),
    ],
)
@pytest.mark.filterwarnings("ignore")  # Gymnasium warns of the very mistakes that are made here
def test_what_gymnasium_does_not_know_is_reported(target: str, message: str) -> None:
    pytest.importorskip("gymnasium", reason="needs the extra gymnasium")
    assert message in problem(target)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("reasoning-gym:countdwn", "did you mean 'countdown'"),
        ("reasoning-gym:zzzzzz", "there are: ab, "),
        ("reasoning-gym:countdown?min_number=3", "did you mean 'min_numbers'"),
        ("reasoning-gym:countdown?min_numbers=0", "must be greater than"),
        ("reasoning-gym:countdown?size=5", "train_tasks"),
    ],
)
def test_what_reasoning_gym_does_not_know_is_reported(target: str, message: str) -> None:
    pytest.importorskip("reasoning_gym", reason="needs the extra reasoning-gym")
    assert message in problem(target)


@pytest.mark.parametrize(
    ("target", "package", "extra"),
    [
        ("gymnasium:FrozenLake-v1", "gymnasium", "orsay[gymnasium]"),
        ("reasoning-gym:countdown", "reasoning_gym", "orsay[reasoning-gym]"),
        ("openenv:http://127.0.0.1:9", "openenv", "orsay[openenv]"),
        ("openenv:json:JSONDecoder", "openenv", "orsay[openenv]"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(target: str, package: str, extra: str) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from orsay.runtimes.loader import load\n"
        "from orsay.errors import LoadError\n"
        f"try: load({target!r})\n"
        "except LoadError as exc: print(exc)"
    )
    done = orsay_programs().run(["-c", code], timeout=60)
    assert done.returncode == 0, done.stderr
    assert f"pip install '{extra}'" in done.stdout


def test_a_worker_imports_no_adapter_and_an_adapter_no_package_until_a_target_names_it() -> None:
    code = (
        "import sys, orsay.runtimes.process.worker\n"
        "kinds = {'gymnasium', 'openenv', 'reasoning_gym', 'text'}\n"
        "print([kind for kind in kinds if f'orsay.adapters.{kind}' in sys.modules])\n"
        "from orsay.adapters import *\n"
        "print([kind for kind in kinds if f'orsay.adapters.{kind}' not in sys.modules])\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules}"
        " & {'gymnasium', 'numpy', 'reasoning_gym', 'openenv', 'websockets', 'jsonschema', 'fastmcp'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["[]"] * 3


@pytest.mark.parametrize("runtime", ["process", "local"])
def test_the_command_line_says_what_is_wrong_and_ends(runtime: str) -> None:
    pytest.importorskip("gymnasium", reason="needs the extra gymnasium")
    done = orsay(
        *("serve", "gymnasium:FrozenLak-v1", "--port", "0", "--runtime", runtime),
        env={**os.environ, "ORSAY_WORKERS": "1"},
        timeout=100,
    )
    assert done.returncode == 2
    assert "FrozenLake-v1" in done.stderr and "Traceback" not in done.stderr


def test_adapters_are_listed_among_other_targets() -> None:
    pytest.importorskip("gymnasium", reason="needs the extra gymnasium")
    found = load('docs/examples/environments/reverse.py,gymnasium:FrozenLake-v1?actions=["a","b","c","d"]')
    assert [cls.__name__ for cls in found] == ["Reverse", "FrozenLakeV1"]
