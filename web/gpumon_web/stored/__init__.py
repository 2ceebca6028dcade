"""What pages show of the ledger and the history, made in the worker process."""
