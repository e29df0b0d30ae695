"""The rollout endpoint that clients of the ``openreward`` package use."""
