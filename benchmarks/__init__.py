"""The budgets of gpumon as programs: each prints its table beside a peer or a floor. See README.md."""
