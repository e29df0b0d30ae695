"""A running server: from configuration to runtimes, endpoints and signals."""
