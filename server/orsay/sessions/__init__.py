"""Sessions: their table and life cycle, their calls, their records in the journal, and recovery."""
