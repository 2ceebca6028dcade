"""Limits of kept history: how long, and how large.

The settings file has them as `history-days`, `history-size` and `account-days`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from gpumon.common.clock import SECOND
from gpumon.history.tiers import DAY, HOUR, PROCESS_SHAPES, SHAPES

if TYPE_CHECKING:
    import sqlite3

YEAR = 366.0
"""Days for which accounts and events are kept at most."""
MOST_EVENTS = 100_000
"""Events that are kept at most, of some 600 bytes each."""
MOST_ACCOUNTS = 1_000_000
"""Hours of users on devices that are kept at most, of some 130 bytes each: a year of 16 GPUs with seven users each."""
MOST_PROCESSES = 100_000
"""Processes that are kept at most, of some 200 bytes each."""
MOST_PROCESS_BYTES = 48 * 2**20
"""Of blocks of processes."""
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
    account_days: float = YEAR
    """Of accounts of users, and of events."""

    def keep(self) -> Mapping[int, float]:
        """Seconds that are kept of each tier, by its number."""
        return {shape.number: min(shape.keep, self.days * DAY) for shape in SHAPES}


USUAL_LIMITS = HistoryLimits()
"""Defaults of a daemon without settings."""


def prune_old(connection: sqlite3.Connection, now: float, limits: HistoryLimits) -> None:
    """Remove what ended too long before `now` (s since 1970). Only for a clock that is known to be right."""
    keep = limits.keep()
    for shape in SHAPES:
        oldest = int((now - keep[shape.number]) // shape.block)
        connection.execute("DELETE FROM block WHERE tier = ? AND number < ?", (shape.number, oldest))
    _prune_activity(connection, now, limits)
    _prune_processes(connection, now, limits)


def prune_large(connection: sqlite3.Connection, limits: HistoryLimits) -> None:
    """Remove the oldest blocks of all tiers while there is too much, and give the disk back what a file has empty."""
    from sqlite3 import OperationalError  # commands want no more of this module than the limits

    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (page,) = connection.execute("PRAGMA page_size").fetchone()
    if pages * page > limits.bytes:  # else there is no need to add up blocks
        lasts = " ".join(f"WHEN {shape.number} THEN {shape.block}" for shape in SHAPES)
        connection.execute(
            "DELETE FROM block WHERE rowid IN (SELECT rowid FROM (SELECT rowid, sum(length(data)) OVER "
            f"(ORDER BY (number + 1) * CASE tier {lasts} END DESC, rowid DESC) AS held FROM block) WHERE held > ?)",
            (limits.bytes,),
        )
    (empty,) = connection.execute("PRAGMA freelist_count").fetchone()
    if empty > max(_SMALL, pages // _WASTE):
        with suppress(OperationalError):  # a full disk: what comes next takes the empty pages
            connection.execute("VACUUM")


def _prune_activity(connection: sqlite3.Connection, now: float, limits: HistoryLimits) -> None:
    """Remove accounts and events that are too old, then the oldest of too many."""
    oldest = now - limits.account_days * DAY
    for table in ("device_hour", "account"):
        connection.execute(f"DELETE FROM {table} WHERE hour < ?", (oldest // HOUR,))
    connection.execute("DELETE FROM event WHERE time < ? AND until IS NULL", (int(oldest) * SECOND,))
    connection.execute(
        "DELETE FROM account WHERE hour <= (SELECT hour FROM account ORDER BY hour DESC LIMIT 1 OFFSET ?)",
        (MOST_ACCOUNTS,),
    )
    connection.execute(
        "DELETE FROM event WHERE until IS NULL"
        " AND time <= (SELECT time FROM event ORDER BY time DESC LIMIT 1 OFFSET ?)",
        (MOST_EVENTS,),
    )


def _prune_processes(connection: sqlite3.Connection, now: float, limits: HistoryLimits) -> None:
    """Remove processes and their blocks that are too old, then the oldest of too many."""
    for shape in PROCESS_SHAPES:
        oldest = now - min(shape.keep, limits.days * DAY)
        connection.execute("DELETE FROM process_block WHERE tier = ? AND end < ?", (shape.number, int(oldest) * SECOND))
    connection.execute(
        "DELETE FROM process_block WHERE rowid IN (SELECT rowid FROM (SELECT rowid, sum(length(data)) OVER"
        " (ORDER BY end DESC, rowid DESC) AS held FROM process_block) WHERE held > ?)", (MOST_PROCESS_BYTES,),
    )  # fmt: skip
    keep = min(PROCESS_SHAPES[-1].keep, limits.days * DAY)
    connection.execute("DELETE FROM process WHERE last < ?", (int(now - keep) * SECOND,))
    connection.execute(
        "DELETE FROM process WHERE last <= (SELECT last FROM process ORDER BY last DESC LIMIT 1 OFFSET ?)",
        (MOST_PROCESSES,),
    )
