"""The ledger is a SQLite file that keeps runs and epochs permanently. Scripts open it with `gpumon.ledger()`
(`api`)."""
