"""What environments need from their host, read from their sources: files are parsed, never imported."""
