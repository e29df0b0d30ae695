"""A rollout of the ``openreward`` client, logged to a server of one's own."""

from openreward import OpenReward

client = OpenReward()
rollout = client.rollout.create(run_name="grpo-3", environment="me/guess", split="train")
rollout.log_openai_completions({"role": "user", "content": "Guess a number from 1 to 10."})
rollout.log_openai_completions({"role": "assistant", "content": "Seven."}, reward=1.0, is_finished=True)
client.rollout.close()
