"""State, usage and cost of a cluster, queried from a Prometheus server that scrapes the exporters of its nodes."""
