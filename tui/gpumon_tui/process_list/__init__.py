"""Processes on the GPUs as a list: their programs, which are asked for, kinship, totals, and signals to them."""
