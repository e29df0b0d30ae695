from pathlib import Path

from orsay_trl import EnvironmentSpec, GRPOTrainer
from orsay_trl.testing import tiny_model
from trl import GRPOConfig

spec = EnvironmentSpec("http://127.0.0.1:8080", run="first-training")
trainer = GRPOTrainer(
    model=str(tiny_model.build(Path("tiny-model"))),  # "Qwen/Qwen3-0.6B" on a GPU
    args=GRPOConfig(
        output_dir="trained",
        max_steps=1,
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=32,
        use_cpu=True,
        bf16=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
    ),
    train_dataset=spec.train_dataset,
    environment_factory=spec.environment_factory,
    reward_funcs=spec.reward_funcs,
)
trainer.train()
step = trainer.state.log_history[0]
print({name: step[name] for name in ("env/reward", "env/length", "env/faults")})
