"""Formats the current state and runs as text, JSON, CSV and HTML, for `gpumon status`, `gpumon runs` and others.

The modules `status_*` format the newest frame, `run_*` and `html` format one run of the ledger, and `compare` compares
several runs.
"""
