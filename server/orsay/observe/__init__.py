"""Metrics and traces of the server, for Prometheus and OpenTelemetry.

``mount`` answers ``/metrics``; ``metrics`` reads them from the objects that have them, when a client
asks. What needs another package is loaded when it is used.
"""
