from orsay import Environment, ToolOutput, tool


class Reverse(Environment):
    """Spell a word backwards."""

    splits = {"train": [{"word": "stone"}, {"word": "river"}], "test": [{"word": "planet"}]}

    def prompt(self) -> str:
        return f"Spell the word '{self.task['word']}' backwards with the tool `submit`."

    @tool
    def submit(self, text: str) -> ToolOutput:
        """Submit your answer.

        Args:
            text: The word, spelled backwards.
        """
        right = text == self.task["word"][::-1]
        return ToolOutput(blocks=["Right." if right else "Wrong."], reward=float(right), finished=right)
