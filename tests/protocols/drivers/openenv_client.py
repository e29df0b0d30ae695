"""Runs inside the virtual environment of a released ``openenv`` and does what the lines on its input say.

Each line is JSON, ``{"client": number, "do": …}``: ``open`` comes first and ``leave`` last. Each answer is
one line of JSON, ``{"is": …}`` or ``{"error": text}``.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Any


async def main() -> None:
    from openenv.core.generic_client import GenericEnvClient
    from openenv.core.mcp_client import MCPToolClient

    kinds: dict[str, Any] = {"generic": GenericEnvClient, "tools": MCPToolClient}
    clients: dict[int, Any] = {}
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        request = json.loads(line)
        number = request.pop("client")
        try:
            answer: dict[str, Any]
            match request["do"]:
                case "open":
                    more = {"headers": request["headers"]} if request["headers"] else {}
                    clients[number] = kinds[request["kind"]](base_url=request["url"], **more)
                    answer = {"is": None}
                case "leave":
                    answer = {"is": await clients.pop(number).close()}
                case _:
                    answer = {"is": await do(clients[number], **request)}
        except Exception as exc:
            answer = {"error": f"{type(exc).__name__}: {exc}"}
        print(json.dumps(answer, default=str), flush=True)


async def do(client: Any, do: str, **arguments: Any) -> Any:
    match do:
        case "connect" | "close":
            await getattr(client, do)()
            return None
        case "reset":
            return shown(await client.reset(**arguments))
        case "step":
            return shown(await client.step(arguments["action"]))
        case "call_action":
            from openenv.core.env_server.mcp_types import CallToolAction

            return shown(await client.step(CallToolAction(**arguments)))
        case "state":
            state = await client.state()
            return state if isinstance(state, dict) else state.model_dump()
        case "list_tools":
            return [tool.model_dump() for tool in await client.list_tools()]
        case "call_tool":
            return await client.call_tool(arguments.pop("name"), **arguments)
        case "guess":
            return await guess(client, **arguments)
    raise ValueError(do)


async def guess(client: Any, *, wrapped: bool = False, **task: Any) -> dict[str, Any]:
    """Halve the range until the number is found."""
    result = await client.reset(**task)
    low, high = map(int, re.findall(r"from (\d+) to (\d+)", text_of(result))[0])
    rewards = []
    while not result.done and low <= high:
        number = (low + high) // 2
        action: Any = {"number": number}
        if wrapped:
            from openenv.core.env_server.mcp_types import CallToolAction

            action = CallToolAction(tool_name="guess", arguments=action)
        result = await client.step(action)
        rewards.append(result.reward)
        low, high = (number + 1, high) if "higher" in text_of(result) else (low, number - 1)
    return {"rewards": rewards, "done": result.done, "text": text_of(result)}


def text_of(result: Any) -> str:
    observation = result.observation
    if isinstance(observation, dict):
        return str(observation["text"])
    if hasattr(observation, "result"):
        return str(observation.result["data"])
    return str(observation.metadata["prompt"])


def shown(result: Any) -> dict[str, Any]:
    observation = result.observation
    if not isinstance(observation, dict):
        observation = observation.model_dump()
    return {"observation": observation, "reward": result.reward, "done": result.done}


if __name__ == "__main__":
    asyncio.run(main())
