"""The console: a web page about this server, and the JSON API that it reads.

``mount`` takes requests; ``site`` holds the built page; ``live`` watches sessions while a page shows them;
``history`` reads the journal, and is loaded at the first request for it.
"""
