"""Words in the place of rows, the same on every page."""

from __future__ import annotations

NO_PROCESS_DATA = "this recording has no process data"
NO_RUN_DATA = "this recording has no run data"
NO_RUN_SIMULATED = "no run in this simulation"
"""Of trainings that somebody starts now it has none."""
READING_LEDGER = "reading the ledger …"
READING_HISTORY = "reading history …"
SHOW_ALL = "Esc shows all"


def all_hidden(what: str, many: int, told: str = "all are hidden") -> str:
    """Return why nothing of `many` is listed: `told` is what hides them."""
    return f"no {what} matches: of {many}, {told}"
