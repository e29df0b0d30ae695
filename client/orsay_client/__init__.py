"""Client for servers of the Open Reward Standard: asynchronous, with a thin synchronous wrapper.

async with AsyncClient("http://localhost:8080") as client:
    environment = client.environment("echo")
    async with environment.session(split="train", index=0) as session:
        output = await session.call("echo", {"text": "hello"})
"""

from .client import AsyncClient
from .environments import AsyncEnvironment
from .errors import (
    BadRequest,
    BadReward,
    CallCancelled,
    ClientClosed,
    ConnectionLost,
    Diverged,
    Fault,
    OrsayClientError,
    Overloaded,
    PromptError,
    ProtocolError,
    RequestError,
    ResultTooLarge,
    ScoreError,
    ServerError,
    ServerStopping,
    SessionLost,
    SetupError,
    TaskError,
    TimeLimit,
    ToolError,
    ToolRefused,
    Unauthorized,
    UnknownTask,
    Unsupported,
    WorkerLost,
)
from .formats import Format, format_messages, format_tools
from .retry import Retry
from .sessions import AsyncSession
from .sync import Client, Environment, Session, Tasks
from .tasks import AsyncTasks, Task

__all__ = [
    "AsyncClient",
    "AsyncEnvironment",
    "AsyncSession",
    "AsyncTasks",
    "BadRequest",
    "BadReward",
    "CallCancelled",
    "Client",
    "ClientClosed",
    "ConnectionLost",
    "Diverged",
    "Environment",
    "Fault",
    "Format",
    "OrsayClientError",
    "Overloaded",
    "PromptError",
    "ProtocolError",
    "RequestError",
    "ResultTooLarge",
    "Retry",
    "ScoreError",
    "ServerError",
    "ServerStopping",
    "Session",
    "SessionLost",
    "SetupError",
    "Task",
    "TaskError",
    "Tasks",
    "TimeLimit",
    "ToolError",
    "ToolRefused",
    "Unauthorized",
    "UnknownTask",
    "Unsupported",
    "WorkerLost",
    "format_messages",
    "format_tools",
]
