"""What goes on in the server, for Prometheus and OpenTelemetry.

``face`` answers ``/metrics``; ``figures`` reads the figures from the objects that have them, when somebody
asks. What needs another package is loaded when it is used.
"""
