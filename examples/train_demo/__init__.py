"""Demonstration that a model learns: a new, tiny one is trained on the doors environment with GRPO."""
