"""Full text search over the journal."""
