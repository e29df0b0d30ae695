"""Supervised training on the episodes that went well."""

from orsay.journal.export import to_dataset
from trl import SFTConfig, SFTTrainer

wins = to_dataset(".orsay/journal.db", run="grpo-3", reward_min=1.0, images=False)
trainer = SFTTrainer(
    model="Qwen/Qwen3-0.6B",
    train_dataset=wins,
    args=SFTConfig(output_dir="sft", assistant_only_loss=True),
)
trainer.train()
