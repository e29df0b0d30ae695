import json
from pathlib import Path

for line in Path("found.jsonl").read_text().splitlines():
    episode = json.loads(line)
    print(episode["task"], "reward", episode["reward"])
    for message in episode["messages"]:
        calls = [call["function"] for call in message.get("tool_calls", [])]
        shown = [f"{call['name']} {call['arguments']}" for call in calls] or [message["content"]]
        print(f"  {message['role']}:", *shown)
