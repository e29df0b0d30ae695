"""Metrics and traces of the server, for Prometheus and OpenTelemetry.

``mount`` answers ``/metrics``; ``metrics`` reads the values from live objects at each scrape. Modules that
need optional packages are imported on first use.
"""
