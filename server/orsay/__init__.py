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

from .env import Environment, Toolset
from .results import ToolOutput
from .tools import terminal, tool

if TYPE_CHECKING:
    from .app import Server

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
    "Server",
    "Split",
    "TerminalToolSpec",
    "TextBlock",
    "ToolCallBlock",
    "ToolOutput",
    "ToolResultBlock",
    "ToolSpec",
    "Toolset",
    "terminal",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name == "Server":
        from .app import Server  # the web server is loaded for those who serve, not for those who write

        return Server
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
