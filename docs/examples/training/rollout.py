from orsay_trl import EnvironmentSpec, vllm_rollout_func
from trl import GRPOConfig, GRPOTrainer

spec = EnvironmentSpec("http://127.0.0.1:8080", num_tasks=64)
GRPOTrainer(
    model="Qwen/Qwen3-0.6B",
    args=GRPOConfig(max_completion_length=1024, chat_template_kwargs={"enable_thinking": False}),
    train_dataset=spec.rollout_dataset,
    rollout_func=vllm_rollout_func(spec, max_turns=8),
    reward_funcs=spec.reward_funcs,
).train()
