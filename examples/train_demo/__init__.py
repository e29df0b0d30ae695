"""Proof that a model learns: a tiny one, made on the spot, is trained on the doors environment with GRPO."""
