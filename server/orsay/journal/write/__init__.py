"""The write path of the journal: event loop, write-ahead log, writer thread, statements."""
