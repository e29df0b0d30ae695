"""Episodes on an environment server, as a trainer plays them."""
