"""The tool with which a model ends an episode."""

from __future__ import annotations

import inspect
from typing import Any

from ..authoring.environment import Toolset
from ..authoring.results import ToolOutput
from ..authoring.tools import tool

__all__ = ["Submit"]


class Submit(Toolset):
    """The tool ``submit``: calls ``grade`` of the environment, which returns a reward or a ToolOutput."""

    def __init__(self, env: Any, sandbox_attr: str = "sandbox") -> None:
        super().__init__(env, sandbox_attr)
        if not callable(getattr(env, "grade", None)):
            raise ValueError(f"{type(env).__name__} needs a method grade(), which the tool submit calls")

    @tool
    async def submit(self) -> ToolOutput:
        """End the work, and have it graded. It cannot be changed afterwards."""
        graded = self.env.grade()
        if inspect.isawaitable(graded):
            graded = await graded
        if isinstance(graded, ToolOutput):
            return graded.model_copy(update={"finished": True})
        return ToolOutput(blocks=["Submitted."], reward=float(graded), finished=True)
