"""The console: a web page about this server, and the JSON API that it reads."""
