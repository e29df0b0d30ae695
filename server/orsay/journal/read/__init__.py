"""Queries of the journal for the console, the command line, export and recovery."""
