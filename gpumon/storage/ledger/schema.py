"""How the ledger names parts of a run; `tables` has its tables as SQL, `model.columns` its measured columns.

One SQLite file, `ledger.sqlite` in the state directory. Times are nanoseconds since 1970, durations
seconds, everything else base units; NULL is "not known", never 0. A run has one row however many
ranks it has; what was measured hangs on the rank (`rank.key`, the board's name) and the device (UUID).

An epoch is known by `ordinal`, which counts the epochs that a rank began, from 0: a resumed or odd loop
may use the same number twice. `usage` has one row for each rank, device, epoch and phase; `phase` ''
stands for the whole epoch, `ordinal` -1 for the whole run and -2 for all of it that lies outside its epochs.
"""

from __future__ import annotations

WHOLE_RUN = -1

OUTSIDE_EPOCHS = -2

STEP_ROWS = -1000
"""`ordinal` in `usage` of the first row of steps; those behind it count down."""

WHOLE_EPOCH = ""

OTHER = "other"
"""Phase of what lies outside epochs and in no phase."""
