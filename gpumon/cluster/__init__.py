"""A cluster, as the Prometheus sees it that scrapes the exporters of its nodes."""
