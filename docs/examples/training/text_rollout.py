from orsay_trl import EnvironmentSpec, vllm_rollout_func
from trl import GRPOConfig, GRPOTrainer

spec = EnvironmentSpec("http://127.0.0.1:8080", num_tasks=64)


def prompt_builder(observation: str, step: int, history: list[str]) -> str:
    return f"{observation}\nAnswer with the text alone. So far: {history or 'nothing'}"


def action_parser(text: str) -> str:
    if not text.strip():
        raise ValueError("say something")
    return text.strip().splitlines()[-1]


GRPOTrainer(
    model="Qwen/Qwen3-0.6B",
    args=GRPOConfig(max_completion_length=512),
    train_dataset=spec.rollout_dataset,
    rollout_func=vllm_rollout_func(
        spec, prompt_builder=prompt_builder, action_parser=action_parser, max_turns=4
    ),
    reward_funcs=spec.reward_funcs,
).train()
