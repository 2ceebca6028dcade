"""Sampling: `Sampler` produces ticks. `Recorder` stores ticks in a ring and passes them to ledger and history.

A daemon records into a directory. A view without a daemon records into memory of its own process.
"""
