"""The data that the daemon stores on disk: history, the ledger of runs, usage by user, processes and events."""
