"""Limits of kept history: how long, and how large. The settings file has them as `history-days` and `history-size`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from gpumon.history.tiers import DAY, SHAPES

if TYPE_CHECKING:
    import sqlite3

LONGEST = SHAPES[-1].keep / DAY
"""Days that are kept at most."""
_WASTE = 4
"""The share of a file that may be empty before it is written anew, as one in so many."""
_SMALL = 4096
"""Empty pages that are left alone."""


class HistoryLimits(NamedTuple):
    """The oldest goes first, whichever limit is reached."""

    days: float = LONGEST
    bytes: int = 512 * 2**20
    """Of blocks; the file is a little larger."""

    def keep(self) -> Mapping[int, float]:
        """Seconds that are kept of each tier, by its number."""
        return {shape.number: min(shape.keep, self.days * DAY) for shape in SHAPES}


USUAL_LIMITS = HistoryLimits()
"""Those of a daemon that nobody told otherwise."""


def prune(connection: sqlite3.Connection, now: float, limits: HistoryLimits) -> None:
    """Remove what ended too long before `now` (s since 1970), then what is oldest of all while there is too much."""
    keep = limits.keep()
    for shape in SHAPES:
        oldest = int((now - keep[shape.number]) // shape.block)
        connection.execute("DELETE FROM block WHERE tier = ? AND number < ?", (shape.number, oldest))
    lasts = " ".join(f"WHEN {shape.number} THEN {shape.block}" for shape in SHAPES)
    connection.execute(
        "DELETE FROM block WHERE rowid IN (SELECT rowid FROM (SELECT rowid, sum(length(data)) OVER "
        f"(ORDER BY (number + 1) * CASE tier {lasts} END DESC, rowid DESC) AS held FROM block) WHERE held > ?)",
        (limits.bytes,),
    )
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (empty,) = connection.execute("PRAGMA freelist_count").fetchone()
    if empty > max(_SMALL, pages // _WASTE):
        connection.execute("VACUUM")
