"""HTTP routes that the pages request, and the Prometheus metrics."""
