"""Constants of the ledger's file format. The SQL tables are in `schema`, the measured columns in `model.columns`.

The ledger is one SQLite file, `ledger.sqlite`, in the state directory. Times are nanoseconds since 1970, durations
seconds, everything else is in base units. NULL is unknown, never 0. A run has one row, however many ranks it has.
Measurements belong to a rank (`rank.key`, the name of its board) and a device (its UUID).

An epoch is identified by its `ordinal`, which counts the epochs that a rank has begun, from 0. The epoch number would
not do, because a resumed run may use the same number twice. `usage` has one row for each rank, device, epoch and phase.
Phase '' is the whole epoch; ordinal -1 is the whole run, and -2 all of its time outside epochs.
"""

from __future__ import annotations

WHOLE_RUN = -1
OUTSIDE_EPOCHS = -2
STEP_ROWS = -1000
"""`ordinal` in `usage` of the first step row; later rows count down from it."""

WHOLE_EPOCH = ""
OTHER = "other"
"""Name for time outside epochs that is in no phase."""
