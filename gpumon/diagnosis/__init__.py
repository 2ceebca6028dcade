"""Findings about GPUs and runs. Rules produce them from contexts; all views and reports show them unchanged."""
