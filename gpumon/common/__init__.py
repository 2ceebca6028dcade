"""Helpers that know nothing about GPUs: text, numbers, paths, clocks, settings, errors."""
