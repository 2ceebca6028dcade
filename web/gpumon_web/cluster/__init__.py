"""Pages of a whole cluster, with data from the Prometheus that scrapes its exporters."""
