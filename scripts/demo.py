"""The demonstration of ``scripts/demo``: serves the bundled environments and plays an episode of each."""

from __future__ import annotations

import argparse
import asyncio
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from arithmetic_env import policy as arithmetic
from echo_env import policy as echo
from guess_env import policy as guess
from orsay.cli.render import Screen
from orsay_client import AsyncClient, AsyncSession
from orsay_protocol import ToolOutput
from rich.console import Console

Policy = Callable[..., Awaitable[float]]

PLAYERS: tuple[tuple[str, str, Policy], ...] = (
    ("echo_env.env", "EchoEnvironment", echo.play),
    ("guess_env.env", "GuessEnvironment", guess.play),
    ("arithmetic_env.env", "ArithmeticEnvironment", arithmetic.play),
)
ANY_TASK = 7
_START_LIMIT_S = 60.0
_STOP_LIMIT_S = 40.0


@contextmanager
def served(port: int) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The URL of a server of all environments, stopped at the end of the block."""
    targets = [f"{module}:{name}" for module, name, _ in PLAYERS]
    command = [
        sys.executable,
        "-m",
        "orsay",
        "serve",
        *targets,
        "--port",
        str(port),
        "--log-level",
        "warning",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    hung = threading.Timer(_START_LIMIT_S, process.kill)
    hung.start()
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        hung.cancel()
        if found is None:
            raise SystemExit(f"the server did not start (exit code {process.wait()})")
        yield found.group(), process
    finally:
        hung.cancel()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()


async def play(url: str, screen: Screen) -> bool:
    """Play one episode of each environment; returns True if all were won."""
    won = True
    async with AsyncClient(url) as client:
        for _, name, policy in PLAYERS:
            screen.line(f"\n{name}, task {ANY_TASK} of split train", "bold magenta")
            async with client.environment(name.lower()).session(split="train", index=ANY_TASK) as session:
                won &= await watch(session, policy, screen)
    return won


async def watch(session: AsyncSession, policy: Policy, screen: Screen) -> bool:
    """Play and show one episode; returns True if it ended with reward 1."""
    screen.messages(await session.messages())

    def show(tool: str, arguments: Mapping[str, Any], output: ToolOutput) -> None:
        screen.line(f"calls {tool} with {dict(arguments)}", "cyan")
        screen.result(output, sum(session.rewards))

    await policy(session, show)
    return session.finished and session.reward == 1.0


def how_to_go_on(url: str) -> str:
    """Print the next steps with the server."""
    return f"""
Serving at {url} until Ctrl-C.

Play it yourself, in another terminal:
    {Path(sys.executable).parent}/orsay play {url}

Train on it with TRL (pip install "trl[openreward]"): these four lines take its first environment,
{PLAYERS[0][1]}, to GRPOTrainer(train_dataset=spec.train_dataset,
environment_factory=spec.environment_factory, reward_funcs=spec.reward_funcs, ...):

    import os
    os.environ["OPENREWARD_API_URL"] = os.environ["OPENREWARD_SESSION_URL"] = "{url}"
    from trl.experimental.openreward import OpenRewardSpec
    spec = OpenRewardSpec("{url}")
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/demo")
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--port", type=int, default=0)
    args = parser.parse_args()
    screen = Screen(Console(highlight=False))
    # As Ctrl-C: the server must not outlive this process.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with served(args.port) as (url, process):
            screen.line(f"Serving at {url}", "bold")
            if not asyncio.run(play(url, screen)):
                screen.line("An episode was not won: that should not happen with these players.", "red")
                return 1
            if args.once:
                return 0
            print(how_to_go_on(url), flush=True)
            return process.wait()
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
