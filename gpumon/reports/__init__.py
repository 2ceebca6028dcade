"""Formats the current state and runs as text, JSON, CSV and HTML, for `gpumon status`, `gpumon runs` and others.

The modules `status_*` format the newest frame. `run_*` and `html` format a run of the ledger. `compare` compares
several runs.
"""
