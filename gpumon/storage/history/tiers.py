"""The tiers of kept history: how long their cells are, how many make a block, and how long blocks are kept."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from gpumon.common.clock import SECOND
from gpumon.model.metrics import GPU_METRICS, HOST_METRICS, Kind, Metric

if TYPE_CHECKING:
    import sqlite3


class TierShape(NamedTuple):
    """A tier. Cells and blocks are counted from 1970, so that one of a number is always at the same time."""

    number: int
    """Its number in the file."""
    step: int
    """Seconds in a cell."""
    cells: int
    """Cells in a block, which is written and read as a whole."""
    keep: int
    """Seconds after which a block may go."""

    @property
    def block(self) -> int:
        """Seconds in a block."""
        return self.step * self.cells


HOUR, DAY = 3600, 86400
SHAPES = (
    TierShape(1, 1, 300, HOUR + HOUR // 6), TierShape(2, 10, 64, DAY + HOUR), TierShape(3, 300, 64, 32 * DAY),
)  # fmt: skip
"""From the finest to the coarsest; each cell holds whole cells of the tier before.

Each is kept a little longer than the window that it is for, which would begin in the next one else."""
PROCESS_SHAPES = (TierShape(1, 10, 6, DAY + HOUR), TierShape(2, 300, 12, 32 * DAY))
"""The same of processes. A block has all of them: of the finer tier what is written in a minute, of the coarser an
hour."""


class KeptColumns(NamedTuple):
    """The metrics that are kept of a subject, and which of them are counters."""

    names: tuple[str, ...]
    counters: tuple[int, ...]
    """Places of counters among `names`. They are kept as rates, and as the counter's own value at each cell's end."""


def _columns(metrics: tuple[Metric, ...]) -> KeptColumns:
    places = (place for place, metric in enumerate(metrics) if metric.kind is Kind.COUNTER)
    return KeptColumns(tuple(metric.name for metric in metrics), tuple(places))


OF_GPU, OF_HOST = _columns(GPU_METRICS), _columns(HOST_METRICS)


def columns_of(subject: str) -> KeptColumns:
    """The columns that are kept of a subject."""
    return OF_GPU if subject else OF_HOST


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
