"""The data that the daemon stores on disk: the history, the ledger of runs, usage by user, processes and events."""
