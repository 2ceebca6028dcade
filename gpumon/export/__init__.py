"""Metrics of one node for Prometheus."""
