"""Findings about GPUs and runs: rules over typed contexts, which every view and report shows as they are."""
