from orsay import Environment, ToolOutput, tool
from PIL import Image


class Colours(Environment):
    """Name the colour of a picture."""

    splits = {"train": [{"colour": "red"}, {"colour": "blue"}]}

    def prompt(self) -> str:
        return "Look at the picture with `look`, then `answer` its colour."

    @tool
    def look(self) -> Image.Image:
        """See the picture."""
        return Image.new("RGB", (16, 16), self.task["colour"])

    @tool
    def answer(self, colour: str) -> ToolOutput:
        """Name the colour."""
        right = colour == self.task["colour"]
        return ToolOutput(blocks=["Right." if right else "Wrong."], reward=float(right), finished=True)
