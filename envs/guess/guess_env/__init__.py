"""Guess: find a hidden number from hints."""
