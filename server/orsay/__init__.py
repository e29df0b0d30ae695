"""Write an environment for language models as a class, and serve it over the Open Reward Standard.

    from orsay import Environment, Server, tool

Importing this is cheap; the server's parts are loaded when ``Server`` is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsay_protocol import (
    MESSAGE_BLOCK_TYPES,
    Blocks,
    CreateSession,
    GroupCandidate,
    GroupScore,
    ImageBlock,
    JSONObject,
    JSONValue,
    ListToolsOutput,
    Message,
    MessageBlocks,
    ReasoningBlock,
    Role,
    RunToolError,
    RunToolOutput,
    RunToolSuccess,
    Split,
    TerminalToolSpec,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSpec,
)

from .authoring.environment import Environment, Toolset
from .authoring.results import ToolOutput
from .authoring.sandbox.opening import embed, sandbox
from .authoring.sandbox.sandbox import Sandbox
from .authoring.tools import terminal, tool

if TYPE_CHECKING:
    from .authoring.hosted import host
    from .authoring.sandbox.model import Connect
    from .serving.server import Server

SUPPORTED_MESSAGE_BLOCK_TYPES = list(MESSAGE_BLOCK_TYPES)

__all__ = [
    "SUPPORTED_MESSAGE_BLOCK_TYPES",
    "Blocks",
    "CreateSession",
    "Environment",
    "GroupCandidate",
    "GroupScore",
    "ImageBlock",
    "JSONObject",
    "JSONValue",
    "ListToolsOutput",
    "Message",
    "MessageBlocks",
    "ReasoningBlock",
    "Role",
    "RunToolError",
    "RunToolOutput",
    "RunToolSuccess",
    "Sandbox",
    "Server",
    "Split",
    "TerminalToolSpec",
    "TextBlock",
    "ToolCallBlock",
    "ToolOutput",
    "ToolResultBlock",
    "ToolSpec",
    "Toolset",
    "host",
    "sandbox",
    "terminal",
    "tool",
]


def _embedded() -> Connect:
    from .sandboxes.embedded import EmbeddedSandboxes  # loaded for sandboxes outside of a session

    return EmbeddedSandboxes()


embed(_embedded)


def __getattr__(name: str) -> Any:
    if name == "host":
        from .authoring.hosted import host  # loaded for tests of an environment, not for its definition

        return host
    if name == "Server":
        from .serving.server import (
            Server,  # the web server is loaded for those who serve, not for those who write
        )

        return Server
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
