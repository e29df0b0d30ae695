"""Environments by their catalog names, through the ``openreward`` package, with our server as the catalog."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from tests.support.servers import ROOT

from ..support.bridge_server import EnvServer, serve_environments

pytest.importorskip("openreward", reason="needs the package 'openreward'")
pytest.importorskip("trl", reason="needs the extra 'trl'")

from ..support.trainers import trainers

pytestmark = pytest.mark.process


Run: TypeAlias = Callable[..., Any]


@pytest.fixture(scope="module")
def env_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvServer]:
    names = ("Words", "Judged", "Pictures", "Broken")
    with serve_environments(tmp_path_factory.mktemp("catalog"), *names, call_time_limit_s=2) as found:
        yield found


@pytest.fixture(scope="module")
def run(env_server: EnvServer) -> Run:
    """Runs code in a process that takes the server for the catalog; openreward is imported there already."""
    return functools.partial(_run, env_server)


def _run(env_server: EnvServer, code: str, **variables: str) -> Any:
    """What ``code`` leaves in ``result``, run in a process that takes this server for the catalog."""
    program = (
        "import json, os, signal, sys, time, warnings\nwarnings.simplefilter('ignore')\n"
        "from orsay_trl import EnvironmentSpec\n"
        "if __name__ == '__main__':\n"
        + "".join(f"    {line}\n" for line in code.strip().splitlines())
        + "    print(json.dumps(result))\n"
    )
    environment = {
        **os.environ,
        "OPENREWARD_API_URL": env_server.url,
        "OPENREWARD_SESSION_URL": env_server.url,
        "OPENREWARD_API_KEY": "the-key",
        **variables,
    }
    given = {name: value for name, value in environment.items() if value}
    done = trainers().run(["-c", program], env=given, timeout=100)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "the-key" not in done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_name_of_the_catalog_is_played_like_a_url(env_server: EnvServer, run: Run) -> None:
    result = run(
        """
spec = EnvironmentSpec("someone/words", num_tasks=3, reward="sum")
rows = list(spec.train_dataset)
place = spec.environment_factory()
result = {"words": [row["word"] for row in rows], "prompt": place.reset(**rows[1])}
result["tools"] = sorted(spec.tools.names)
result["texts"] = [place.look(), place.say(word="no"), place.points(number=0.5), place.say()]
result["texts"].append(place.say("pear"))
result["rewards"], result["finished"], result["metadata"] = place.rewards, place.finished, place.metadata
result["reward"] = spec.reward_funcs(environments=[place])
result["name"] = spec.class_name
spec.close()
""",
    )
    assert result["words"] == ["apple", "pear", "plum"]
    assert result["prompt"] == "Say the word: pear."
    assert {"say", "look", "points"} <= set(result["tools"])
    assert result["texts"][:3] == ["here: pear", "wrong, heard ['no']", "0.5 points"]
    assert result["texts"][4] == "right"
    assert "word" in result["texts"][3], "a refusal names what is missing"
    assert result["rewards"] == [None, 0.0, 0.5, None, 1.0]
    assert (result["finished"], result["reward"]) == (True, [1.5])
    assert result["metadata"][1]["rewards"] == {"accuracy": 0.0, "brevity": 0.25}
    assert result["name"] == "Environment_words"
    assert env_server.diary.open_sessions() == set()


def test_an_odd_input_is_a_refused_call_there_too(env_server: EnvServer, run: Run) -> None:
    result = run(
        """
from tests.support.odd_inputs import INPUTS
spec = EnvironmentSpec("someone/words", num_tasks=1, discover_task_tools=False, retries=0)
episode = spec.episode({"task_split": "train", "task_index": 0})
async def play():
    await episode.open()
    for odd in INPUTS.values():
        await episode.call("say", {"word": odd["text"]} if isinstance(odd, dict) and "text" in odd else odd)
    await episode.call("say", {"word": "apple"})
    await episode.close()
spec.run(play())
spec.close()
result = {"rewards": episode.rewards, "fault": episode.fault_message}
""",
        PYTHONPATH=str(ROOT),
    )
    assert result["fault"] == ""
    assert set(result["rewards"][:-1]) == {None} and result["rewards"][-1] == 1.0


def test_the_key_and_the_secrets_are_handed_to_the_environment(env_server: EnvServer, run: Run) -> None:
    result = run(
        """
result = []
for secrets in (None, {}, {"HF_TOKEN": "hush"}):
    spec = EnvironmentSpec("someone/words", secrets=secrets, discover_task_tools=False)
    place = spec.environment_factory()
    place.reset(task_split="train", task_index=0)
    result.append(place.secret())
    spec.close()
""",
    )
    assert len(result) == 3
    none, empty, own = (line["given"] for line in env_server.diary.lines("secret")[-3:])
    assert "the-key" in json.dumps(none["api_key"])
    assert set(own) - set(empty) == {"HF_TOKEN"}, "the package adds the key by itself"
    assert "hush" in json.dumps(own["HF_TOKEN"])


def test_pictures_groups_and_plain_messages_pass_through(env_server: EnvServer, run: Run) -> None:
    result = run(
        """
pictures = EnvironmentSpec("someone/pictures", env_name="Pictures")
place = pictures.environment_factory()
prompt = place.reset(task_split="train", task_index=0)
result = {"prompt": [part["type"] for part in prompt], "shown": [part["type"] for part in place.show()]}
pictures.close()
judged = EnvironmentSpec("someone/judged", env_name="Judged")
places = [judged.environment_factory() for _ in range(3)]
prompts = [[{"role": "user", "content": p.reset(task_split="train", task_index=0)}] for p in places]
said = [[{"role": "assistant", "content": text}] for text in ("yes", "maybe", "no")]
result["groups"] = judged.group_reward(
    environments=places, prompts=prompts, completions=said, num_generations=3
)
result["rewards"] = judged.reward_funcs(environments=places, prompts=prompts, completions=said)
result["seeded"] = EnvironmentSpec("someone/judged", env_name="Judged", seed_field="seed").train_dataset[0]
place = judged.environment_factory()
place.reset(**result["seeded"])
result["hint"] = place.hint()
judged.close()
""",
    )
    assert (result["prompt"], result["shown"]) == (["text", "image", "text"], ["image", "text"])
    assert result["groups"] == [3.0, 5.0, 2.0]
    assert result["rewards"] == [1.0, 0.0, 0.0]
    assert json.loads(result["seeded"]["task_spec"])["seed"] == result["seeded"]["seed"]
    assert result["hint"] == "yes"


def test_faults_are_distinguished_from_answers(env_server: EnvServer, run: Run) -> None:
    result = run(
        """
row = {"task_split": "train", "task_index": 0}
spec = EnvironmentSpec("someone/words", retries=1, discover_task_tools=False, call_timeout_s=1.0)
result = {}
def play(name, row, *calls):
    place = spec.environment_factory()
    place.reset(**row)
    for tool, arguments in calls:
        if tool == "kill":
            os.kill(place.metadata[-1]["pid"], signal.SIGKILL)
            time.sleep(1)
        else:
            getattr(place, tool)(**arguments)
    result[name] = [place.episode.fault, place.episode.retried, place.reward, place.last_output]
play("fail", row, ("points", {"number": 1}), ("fail", {}))
play("slow", row, ("points", {"number": 1}), ("sleep", {"seconds": 1.8}))
play("died", row, ("points", {"number": 1}), ("die", {}))
play("kill", row, ("say", {"word": "no"}), ("pid", {}), ("kill", {}), ("say", {"word": "apple"}))
spec.close()
spec = EnvironmentSpec("someone/broken", env_name="Broken", retries=0, discover_task_tools=False)
play("setup", row)
play("prompt", {**row, "task_index": 1})
spec.close()
""",
    )
    assert result["fail"][0] == "tool_error"
    assert result["slow"][0] == "time_limit"
    assert result["died"][0] == "tool_error", "the package tells of a break in a call, not of its cause"
    assert result["kill"][0] is None
    assert result["kill"][2:] == [1.0, "right"]
    assert len(result["kill"][1]) == 1
    assert result["setup"][0] is not None
    assert result["prompt"][0] is not None
    assert [result[name][2] for name in ("fail", "slow", "died", "setup", "prompt")] == [None] * 5


def test_what_is_wrong_is_raised(env_server: EnvServer, run: Run) -> None:
    result = run(
        """
result = {}
def attempt(name, work):
    try:
        work()
    except Exception as exc:
        result[name] = [type(exc).__name__, str(exc)]
attempt("split", lambda: EnvironmentSpec("someone/words", split="nope").train_dataset)
attempt("index", lambda: EnvironmentSpec("someone/words", indices=[77]).train_dataset)
del os.environ["OPENREWARD_API_KEY"]
attempt("key", lambda: EnvironmentSpec("someone/words").train_dataset)
""",
    )
    assert result["split"][0] == result["index"][0] == "BadRequest"
    assert result["key"][0] == "Unauthorized"
    assert "OPENREWARD_API_KEY" in result["key"][1]
