"""What operators watch: Prometheus metrics and OpenTelemetry traces."""
