"""Coding: functions and small programs against hidden inputs, graded apart from the model's sandbox."""
