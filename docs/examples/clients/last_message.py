from orsay_client import Client
from orsay_protocol import Message, TextBlock

with Client("http://127.0.0.1:8080") as client:
    with client.environment("essay").session(split="train", index=0) as session:
        terminal = session.terminal_tool()
        print(terminal and terminal.description)
        drafts = ["Long rivers run long and wide.", "All rivers run."]
        scores = session.score_group(
            [[Message(role="assistant", blocks=[TextBlock(text=draft)])] for draft in drafts]
        )
        best = drafts[max(range(len(drafts)), key=lambda each: scores[each].reward)]
        print(session.call_terminal(best).reward)
