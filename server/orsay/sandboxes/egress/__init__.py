"""The way out of sandboxes with an allow-list: a proxy of the server, with a socket for each."""
