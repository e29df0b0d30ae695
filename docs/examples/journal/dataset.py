"""Episodes of the journal as a dataset of conversations."""

from datetime import UTC, datetime, timedelta

from orsay.journal.export import to_dataset

episodes = to_dataset(
    ".orsay/journal.db",
    environment="guess",
    reward_min=1.0,
    since=datetime.now(UTC) - timedelta(days=7),
)
print(episodes.column_names)
for episode in episodes:
    print(episode["task"], episode["reward"], [message["role"] for message in episode["messages"]])
