"""Processes on GPUs beyond the last minutes: who they were, from when to when, and what they used meanwhile."""
