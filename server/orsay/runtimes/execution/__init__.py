"""Execution of author code: episodes, their threads, time limits and locks."""
