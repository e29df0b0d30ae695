"""``orsay.toml``: the environments of a server, each with its runtime and limits, and its settings."""
