"""The API for authors of environments, and the tables that the server builds from their classes."""
