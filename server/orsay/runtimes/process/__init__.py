"""Worker processes: their pool, the connection to each, and the program that they run."""
