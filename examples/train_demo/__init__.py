"""Proof that a model learns: a tiny model, made on the spot, is trained on the doors environment with GRPO."""
