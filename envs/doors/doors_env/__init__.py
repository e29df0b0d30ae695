"""Doors: look at a door, then open it with the word found there."""
