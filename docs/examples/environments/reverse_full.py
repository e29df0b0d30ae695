from collections.abc import Sequence

from orsay import Blocks, Environment, JSONObject, Split, TextBlock, ToolOutput, tool
from pydantic import BaseModel, Field

WORDS = {"train": ["stone", "river"], "test": ["planet"]}


class Submission(BaseModel):
    text: str = Field(description="The word, spelled backwards.")


class ReverseFull(Environment):
    """Spell a word backwards."""

    @classmethod
    def list_splits(cls) -> Sequence[str | Split]:
        return ["train", Split(name="test", type="test")]

    @classmethod
    def list_tasks(cls, split: str) -> Sequence[JSONObject]:
        return [{"word": word} for word in WORDS[split]]

    def get_prompt(self) -> Blocks:
        return [
            TextBlock(text=f"Spell the word '{self.task_spec['word']}' backwards with the tool `submit`.")
        ]

    @tool
    async def submit(self, submission: Submission) -> ToolOutput:
        """Submit your answer."""
        right = submission.text == self.task_spec["word"][::-1]
        text = "Right." if right else "Wrong."
        return ToolOutput(blocks=[TextBlock(text=text)], reward=float(right), finished=right)
