"""What the daemon keeps on disk: history, the ledger of runs, usage by user, processes, events."""
