from collections.abc import Sequence

from orsay import Environment, GroupCandidate, Message, TextBlock, ToolOutput, terminal, tool


class Essay(Environment):
    """Write about a subject; the last message is the essay."""

    splits = {"train": [{"subject": "rivers"}]}

    def prompt(self) -> list[Message]:
        return [
            Message(role="system", blocks=[TextBlock(text="You write well and briefly.")]),
            Message(role="user", blocks=[TextBlock(text=f"Write about {self.task['subject']}.")]),
        ]

    @tool
    def count_words(self, text: str) -> str:
        """Count the words of a draft."""
        return f"{len(text.split())} words"

    @terminal
    @tool
    def hand_in(self, essay: str) -> ToolOutput:
        """Take the essay."""
        on_subject = self.task["subject"] in essay
        return ToolOutput(blocks=["Thank you."], reward=float(on_subject), finished=True)

    def score_group(self, candidates: Sequence[GroupCandidate]) -> list[float]:
        """The shorter, the better, compared with the other candidates."""
        lengths = [len(str(candidate.messages[-1].blocks)) for candidate in candidates]
        return [min(lengths) / length for length in lengths]
