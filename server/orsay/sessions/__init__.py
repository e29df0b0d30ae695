"""Sessions: their registry, life, calls, recording and recovery."""
