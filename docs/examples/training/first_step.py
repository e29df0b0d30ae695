from orsay_trl import EnvironmentSpec, GRPOTrainer
from trl import GRPOConfig

spec = EnvironmentSpec("http://127.0.0.1:8080", num_tasks=64)
GRPOTrainer(
    model="Qwen/Qwen3-0.6B",
    args=GRPOConfig(max_completion_length=1024, chat_template_kwargs={"enable_thinking": False}),
    train_dataset=spec.train_dataset,
    environment_factory=spec.environment_factory,
    reward_funcs=spec.reward_funcs,
).train()
