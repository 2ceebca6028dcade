"""Findings about GPUs and runs. Rules compute them from contexts. All views and reports show them unchanged."""
