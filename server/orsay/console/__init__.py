"""The console: a web page about this server, and the JSON API that it reads.

``mount`` takes requests; ``site`` holds the built page; ``live`` watches sessions while somebody looks;
``history`` reads the journal, and is loaded when somebody asks for it.
"""
