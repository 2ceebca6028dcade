"""Values of pages: the live ones at each tick, and the stored ones from the ledger and the history."""
