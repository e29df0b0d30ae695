from typing import Annotated

from orsay import Environment, ToolOutput, tool
from pydantic import Field


class Treasure(Environment):
    """Find the treasure in a row of 15 boxes."""

    splits = {
        "train": [{"box": box} for box in range(1, 16)],
        "test": [{"box": box} for box in (3, 8, 11, 14)],
    }
    replayable = True  # the same calls lead to the same state

    def setup(self) -> None:
        self.tries = 0

    def prompt(self) -> str:
        return "A treasure is in one of the boxes 1 to 15. Find it with `look`, in four tries."

    @tool
    def look(self, box: Annotated[int, Field(ge=1, le=15)]) -> ToolOutput:
        """Look into a box.

        Args:
            box: The number of the box.
        """
        self.tries += 1
        found = box == self.task["box"]
        side = "right" if box < self.task["box"] else "left"
        text = "The treasure!" if found else f"Empty. The treasure is further {side}."
        return ToolOutput(blocks=[text], reward=float(found), finished=found or self.tries == 4)
