"""The ledger: runs and their epochs, kept permanently. For scripts, `gpumon.ledger()` opens it: see `api`."""
