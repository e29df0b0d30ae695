from datasets import Dataset
from orsay_trl import create_openenv_vllm_rollout_func
from orsay_trl import reward_func
from parrot_env.client import ParrotEnv
from parrot_env.models import ParrotAction
from trl import GRPOConfig, GRPOTrainer

GRPOTrainer(
    model="Qwen/Qwen3-0.6B",
    args=GRPOConfig(max_completion_length=512, use_vllm=True, vllm_mode="colocate"),
    train_dataset=Dataset.from_dict({"prompt": ["Say something long."] * 64}),
    rollout_func=create_openenv_vllm_rollout_func(
        lambda: ParrotEnv(base_url="http://127.0.0.1:8000"),
        prompt_builder=lambda observation, step, history: f"You heard: {observation.echoed_message}",
        action_parser=lambda text: ParrotAction(message=text),
        max_steps=2,
    ),
    reward_funcs=reward_func,
).train()
