"""The ``remote`` runtime: sessions of another ORS server, by URL."""
