"""The API for authors, and the tables into which their classes are read once."""
