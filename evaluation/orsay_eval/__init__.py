"""Evaluation: tasks played with a model or a policy, and what the rewards tell."""
