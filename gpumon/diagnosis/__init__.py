"""Findings about GPUs and runs. Rules compute findings from contexts. All views and reports show the same findings."""
