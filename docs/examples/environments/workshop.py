import asyncio
import tempfile
from pathlib import Path

from orsay import Environment, Toolset, tool


class Files(Toolset):
    """Tools that any environment with a ``folder`` can have."""

    @tool
    def list_files(self) -> str:
        """List the files that are there."""
        return "\n".join(sorted(path.name for path in self.env.folder.iterdir())) or "(nothing)"


class Workshop(Environment):
    """Write files in a folder of one's own."""

    splits = {"train": [{"goal": "a file named done"}]}
    toolsets = [Files]
    setup_time_limit_s = 60
    call_time_limit_s = 30

    def setup(self) -> None:
        self._temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self._temporary.name)

    def teardown(self) -> None:
        self._temporary.cleanup()

    def prompt(self) -> str:
        return f"Make {self.task['goal']}."

    @tool
    def write(self, name: str, text: str) -> str:
        """Write a file."""
        (self.folder / Path(name).name).write_text(text)
        return "written"

    @tool(time_limit_s=600, detached=True)
    async def compile(self, seconds: float) -> str:
        """Something long, which goes on when the client's connection breaks for good."""
        await asyncio.sleep(seconds)
        return "compiled"

    @tool(exclusive=True)
    def reset(self) -> str:
        """Remove all files; no other tool of this session runs meanwhile."""
        for path in self.folder.iterdir():
            path.unlink()
        return "empty"
