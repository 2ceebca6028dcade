"""Facts of a node for Prometheus: the newest frame and the daemon's counters, as families of samples."""
