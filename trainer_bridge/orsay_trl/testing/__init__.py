"""Models for tests and demonstrations."""
