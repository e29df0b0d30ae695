"""Plays scenarios with a released client: ``python play.py PACKAGE``, run by that release's interpreter.

Reads one request per line, ``{"scenario", "environment", "variant", "args", "url"}``, and prints one line of
JSON for each, after a first line with the version. It reports what the client's own methods returned or
raised, and judges nothing. One process plays many scenarios, since importing some releases takes seconds.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import importlib
import importlib.metadata
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

Scenario = Callable[[Any, dict[str, Any]], dict[str, Any]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def plain(value: Any) -> Any:
    """Dataclasses and models of the client as JSON."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def failure(act: Callable[[], Any]) -> dict[str, Any]:
    """What ``act`` raised, as the user of the client sees it."""
    try:
        value = act()
    except Exception as exc:
        return {
            "type": type(exc).__name__,
            "text": str(exc),
            "reason": getattr(exc, "reason", None),
            "status": getattr(exc, "status", None),
        }
    return {"type": None, "value": plain(value)}


def connect(package: str, url: str) -> Any:
    """The client, given the address as its users give it. Keep it: some releases close with it."""
    if package == "ors-sdk":
        return importlib.import_module("ors.client").ORS(base_url=url, api_key="a-key")
    for variable in ("OPENREWARD_API_URL", "OPENREWARD_SESSION_URL", "OPENREWARD_MATRIX_URL"):
        os.environ[variable] = url
    return importlib.import_module("openreward").OpenReward(api_key="a-key")


def secrets_for(package: str) -> dict[str, Any]:
    """ORS takes any name; openreward takes names it knows as plain strings."""
    return {"own_name": "s3cret"} if package == "ors-sdk" else {"OPENAI_API_KEY": "s3cret"}


@scenario
def discover(env: Any, args: dict[str, Any]) -> dict[str, Any]:
    split = args.get("split", "train")
    count = env.num_tasks(split)
    tasks = env.list_tasks(split) if args.get("list", True) else None
    return {
        "splits": env.list_splits(),
        "num_tasks": count,
        "tasks": None if tasks is None else [plain(task) for task in tasks],
        "first": plain(env.get_task(split, 0)),
        "last": plain(env.get_task(split, count - 1)),
        "middle": [plain(task) for task in env.get_task_range(split, 2, 5)],
        "tail": [plain(task) for task in env.get_task_range(split, start=-2)],
        "tools": [plain(tool) for tool in env.list_tools()],
        "openai": env.list_tools(format="openai"),
        "anthropic": env.list_tools(format="anthropic"),
    }


@scenario
def wrong_tasks(env: Any, args: dict[str, Any]) -> dict[str, Any]:
    def enter(**arguments: Any) -> None:
        with env.session(**arguments):
            pass

    return {
        "beyond": failure(lambda: env.get_task("train", 10_000)),
        "create_no_split": failure(lambda: enter(split="no-such-split", index=0)),
    }


def open_session(env: Any, args: dict[str, Any]) -> Any:
    split, index = args.get("split", "train"), args.get("index", 0)
    secrets = args.get("secrets")
    if args.get("by") == "task":
        task = env.get_task(split, index)
        task.task_spec.update(args.get("spec", {}))  # a task of the caller's own
        return env.session(task=task, secrets=secrets)
    return env.session(split=split, index=index, secrets=secrets)


def calls(session: Any, planned: list[list[Any]]) -> list[dict[str, Any]]:
    return [failure(functools.partial(session.call_tool, name, value)) for name, value in planned]


@scenario
def episode(env: Any, args: dict[str, Any]) -> dict[str, Any]:
    """Calls ``args["calls"]`` in order; a call is ``[tool, input]``."""
    with open_session(env, args) as session:
        sid = session.sid
        prompt = plain(session.get_prompt())
        tools = [plain(tool) for tool in session.list_tools()]
        outputs = calls(session, args["calls"])
    return {"sid": sid, "prompt": prompt, "tools": tools, "outputs": outputs}


@scenario
def guess(env: Any, args: dict[str, Any]) -> dict[str, Any]:
    """Binary search over the range that the arguments name, steered by the words in the answers."""
    low, high, outputs = args["low"], args["high"], []
    with open_session(env, args) as session:
        prompt = plain(session.get_prompt())
        for _ in range(args.get("turns", 40)):
            number = (low + high) // 2
            output = plain(session.call_tool(args["tool"], {args["field"]: number}))
            outputs.append(output)
            if output["finished"]:
                break
            text = " ".join(block["text"] for block in output["blocks"]).lower()
            if "higher" in text:
                low = number + 1
            else:
                high = number - 1
    return {"prompt": prompt, "outputs": outputs}


@scenario
def terminal(env: Any, args: dict[str, Any]) -> dict[str, Any]:
    """Ends the episode with a plain message, on clients that know terminal tools."""
    with open_session(env, args) as session:
        prompt = plain(session.get_prompt())
        spec = plain(session.terminal_tool())
        final = session.is_assistant_message_final()
        outputs = calls(session, args.get("calls", []))
        output = plain(session.call_terminal_tool(args["message"]))
    return {"prompt": prompt, "spec": spec, "final": final, "outputs": outputs, "output": output}


def white_space_cases() -> list[str]:
    spaces = [" ", "\t", "\n", "\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\xa0"]
    spaces += ["\u1680", "\u2003", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\ufeff"]
    cases = [
        " " * 20_000,
        "  lead",
        "trail \n",
        "",
        "\n",
        " ",
        "\u2028",
        "data: x\n\nevent: end\ndata: {}\n\n",
    ]
    cases += ["\r\n" * 5_000, "\u00e9 " * 9_000, '"\\' * 9_000, "\U0001f600 " * 9_000, "\x00\x07" * 3_000]
    for space in spaces:
        for phase in range(len(space.encode()) + 1):
            # Runs and alternation: whatever the length of a piece, some cut has white space before,
            # after and on both sides of it, at every offset into a character of several bytes.
            cases.append("x" * phase + space * 36_000)
            cases.append("x" * phase + (space + "ab") * 12_000)
    return cases


@scenario
def white_space(env: Any, args: dict[str, Any]) -> dict[str, Any]:
    """Sends texts that streams like to damage through a tool that repeats them."""
    wrong = []
    cases = white_space_cases()
    with open_session(env, args) as session:
        for number, text in enumerate(cases):
            output = session.call_tool(args["tool"], {args["field"]: text})
            got = "".join(block.text for block in output.blocks)
            if got != text:
                wrong.append({"case": number, "sent": len(text), "got": len(got), "starts": repr(text[:8])})
    return {"cases": len(cases), "wrong": wrong}


@scenario
def errors(env: Any, args: dict[str, Any]) -> dict[str, Any]:
    """Calls that the kit refuses, then one whose tool raises, then another."""
    with open_session(env, args) as session:
        seen = {
            "not_found": failure(lambda: session.call_tool("nope", {})),
            "input_validation": failure(lambda: session.call_tool("add", {"n": "many"})),
            "out_of_range": failure(lambda: session.call_tool("add", {"n": 1001})),
            "bad_input_shape": failure(lambda: session.call_tool("add", ["n"])),
            "bad_key": failure(lambda: session.call_tool("add", {1: 2})),
            "after_refusals": failure(lambda: session.call_tool("add", {"n": 3})),
            "raised": failure(lambda: session.call_tool("fail", {"text": "the tool broke\nin two lines"})),
            "after_raise": failure(lambda: session.call_tool("add", {"n": 4})),
        }
    with open_session(env, args) as session:
        session.call_tool("finish", {"n": 1})
        seen["episode_finished"] = failure(lambda: session.call_tool("add", {"n": 1}))
    return seen


@scenario
def secrets(env: Any, args: dict[str, Any]) -> dict[str, Any]:
    with open_session(env, {**args, "secrets": secrets_for(args["package"])}) as session:
        return {"output": plain(session.call_tool("reveal", {}))}


@scenario
def blocks(env: Any, args: dict[str, Any]) -> dict[str, Any]:
    with open_session(env, args) as session:
        return {"prompt": plain(session.get_prompt()), "output": plain(session.call_tool("picture", {}))}


@scenario
def slow(env: Any, args: dict[str, Any]) -> dict[str, Any]:
    """One call longer than the interval of the keep-alive comments and of the client's pings."""
    with open_session(env, args) as session:
        return {"output": plain(session.call_tool("slow", args["input"]))}


@scenario
def together(env: Any, args: dict[str, Any]) -> dict[str, Any]:
    """Many sessions at once on the asynchronous client, each with calls of its own."""
    package, url = args["package"], args["url"]

    async def one(environment: Any, number: int) -> list[str]:
        task = await environment.get_task("train", number % 10)
        async with environment.session(task=task) as session:
            await session.get_prompt()
            outputs = [await session.call_tool("add", {"n": number}) for _ in range(args["calls"])]
            same = await asyncio.gather(*(session.call_tool("repeat", {"text": str(i)}) for i in range(3)))
            assert [output.blocks[0].text for output in same] == ["0", "1", "2"]
        return [output.blocks[0].text for output in outputs]

    async def run() -> list[list[str]]:
        if package == "ors-sdk":
            client = importlib.import_module("ors.client").AsyncORS(base_url=url)
            environment = client.environment(args["name"])
        else:
            client = importlib.import_module("openreward").AsyncOpenReward(api_key="a-key")
            environment = client.environments.get(args["name"], variant=args["variant"])
        try:
            return list(await asyncio.gather(*(one(environment, i) for i in range(args["sessions"]))))
        finally:
            for http in client.environments._clients.values():
                await http.close()

    return {"counters": asyncio.run(run())}


@scenario
def group(env: Any, args: dict[str, Any]) -> dict[str, Any]:
    """Messages and group scores, on clients that know them."""
    types = importlib.import_module("openreward.api.environments.types")

    def candidate(text: str) -> Any:
        return [types.Message(role="assistant", blocks=[types.TextBlock(text=text)])]

    with open_session(env, args) as session:
        return {
            "messages": plain(session.get_messages()),
            "supported": session.supports_score_group(),
            "scores": plain(session.score_group([candidate("four"), candidate("seven")])),
            "broken": failure(functools.partial(session.score_group, [candidate("fail")])),
            "after": plain(session.score_group([candidate("!")])),
            "version": session.version(),
        }


def main() -> int:
    package = sys.argv[1]
    importlib.import_module("ors.client" if package == "ors-sdk" else package)
    clients: dict[str, Any] = {}
    print(json.dumps({"client": importlib.metadata.version(package)}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        url = request["url"]
        name, variant = request["environment"], request.get("variant")
        args = {**request.get("args", {}), "package": package, "url": url, "name": name, "variant": variant}
        try:
            if url not in clients:
                clients[url] = connect(package, url)
            client = clients[url]
            if package == "ors-sdk":
                env = client.environment(name)
            else:
                env = client.environments.get(name, variant=variant)
            answer = SCENARIOS[request["scenario"]](env, args)
        except Exception:
            answer = {"crashed": traceback.format_exc()}
        print(json.dumps(answer), flush=True)
    for client in clients.values():
        client.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
