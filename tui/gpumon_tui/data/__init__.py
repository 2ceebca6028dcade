"""What screens need of the ledger, the history and the processes, read in threads."""
