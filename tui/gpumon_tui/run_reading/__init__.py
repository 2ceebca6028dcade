"""Runs of a ledger, read and worked out in a thread, so that drawing has only texts to place."""
