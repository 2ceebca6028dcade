"""The exporter with what it is for: a real Prometheus, a real VictoriaMetrics and a real Alertmanager."""
