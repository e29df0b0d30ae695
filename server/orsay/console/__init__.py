"""The console: a web page about this server, and the JSON API that it reads.

``mount`` dispatches requests; ``site`` serves the built page; ``live`` streams snapshots of sessions;
``history`` reads the journal, and is imported with the first request for it.
"""
