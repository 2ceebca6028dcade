"""Exports the metrics of one machine to Prometheus."""
