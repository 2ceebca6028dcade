"""Data for the screens from ledgers, history and processes, read in background threads."""
