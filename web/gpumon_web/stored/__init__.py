"""Page documents from the ledger and the history, made in the worker process."""
