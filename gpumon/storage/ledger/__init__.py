"""The ledger: runs and epochs, kept for ever. `gpumon.ledger()` opens it for scripts: see `api`."""
