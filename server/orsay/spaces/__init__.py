"""Environments as Hugging Face Spaces: the folder of a Space, and its upload."""
