"""Helpers that do not depend on GPUs: text, numbers, paths, clocks, settings, errors."""
