"""Constants of the ledger's file format. The SQL tables are in `schema`, the measured columns in `model.columns`.

The ledger is one SQLite file, `ledger.sqlite`, in the state directory. Times are nanoseconds since 1970, durations are
seconds, and all other values are in base units. A missing value is NULL, never 0. A run has one row regardless of its
number of ranks. Measurements belong to a rank (`rank.key`, the name of its board) and a device (its UUID).

An epoch of a rank is identified by its `ordinal`. This is its index, from 0, among the epochs of this rank that a
daemon observed. The epoch number is not unique, because a run may use the same number twice. The ordinals of ranks may
differ, and `epoch_join` decides which epochs of different ranks are the same. The table `usage` has one row for each
rank, device, epoch and phase. Phase '' is the whole epoch. Ordinal -1 is the whole run, and -2 all of its time outside
epochs.
"""

from __future__ import annotations

WHOLE_RUN = -1
OUTSIDE_EPOCHS = -2
STEP_ROWS = -1000
"""Value of `usage.ordinal` for the first row of steps. Each later row has a value that is lower by 1."""

WHOLE_EPOCH = ""
OTHER = "other"
"""Phase name for time outside epochs in which the training was in no phase."""
