"""Pages of a whole cluster, from the Prometheus that scrapes its exporters."""
