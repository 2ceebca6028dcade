"""Web pages of a whole cluster, with data from a Prometheus server that scrapes the exporters of its nodes."""
