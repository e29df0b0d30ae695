"""Rollouts with token ids in and token ids out: samplers, token assembly, text environments, weight sync."""
