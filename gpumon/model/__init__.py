"""Data types and tables without behavior of their own: frames, devices, runs, metrics, vendors.

Records in this package are named tuples, not dataclasses. Trainings and all commands import this package, and the
module `dataclasses` is slow to import.
"""
