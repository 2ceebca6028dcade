"""Data types and tables without behavior of their own: frames, devices, runs, metrics, vendors.

Records here are named tuples, not dataclasses: trainings and every command import them, and `dataclasses` is slow to
import.
"""
