"""Building blocks that know nothing of GPUs: units, text, paths, clocks, settings, errors."""
