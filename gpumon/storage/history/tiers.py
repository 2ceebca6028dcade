"""The tiers of the history file (length of cells, cells per block, retention time), and the removal of old data."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from gpumon.common.clock import SECOND
from gpumon.model.metrics import GPU_METRICS, HOST_METRICS, Kind, Metric

if TYPE_CHECKING:
    import sqlite3


class TierShape(NamedTuple):
    """A tier of the history file.

    Cells and blocks are numbered from 1970 on, so a number can be computed from a time.
    """

    number: int
    """Number of the tier in the file."""
    step: int
    """Length of a cell in seconds."""
    cells: int
    """Number of cells in a block. A block is written and read as a whole."""
    keep: int
    """Age in seconds at which a block may be removed."""

    @property
    def block(self) -> int:
        """Length of a block in seconds."""
        return self.step * self.cells


HOUR, DAY = 3600, 86400
SHAPES = (
    TierShape(1, 1, 300, HOUR + HOUR // 6), TierShape(2, 10, 64, DAY + HOUR), TierShape(3, 300, 64, 32 * DAY),
)  # fmt: skip
"""The tiers of metrics, from the finest to the coarsest. Each cell contains whole cells of the previous tier.

Each tier is kept a little longer than the window for which it is meant. So the start of the window need not come from
the next tier.
"""
PROCESS_SHAPES = (TierShape(1, 10, 6, DAY + HOUR), TierShape(2, 300, 12, 32 * DAY))
"""Tiers of processes. A block contains all processes of one minute in the finer tier, and of one hour in the coarser
tier."""


class TierColumns(NamedTuple):
    """Names of the metrics that are stored for a subject, and the indexes of the counters among them."""

    names: tuple[str, ...]
    counters: tuple[int, ...]
    """Indexes of the counters in `names`. A counter is stored as a rate and as its value at the end of each cell."""


def _columns(metrics: tuple[Metric, ...]) -> TierColumns:
    counters = (index for index, metric in enumerate(metrics) if metric.kind is Kind.COUNTER)
    return TierColumns(tuple(metric.name for metric in metrics), tuple(counters))


GPU_COLUMNS, HOST_COLUMNS = _columns(GPU_METRICS), _columns(HOST_METRICS)


def columns_of(subject: str) -> TierColumns:
    """Return the columns stored for a subject: the UUID of a GPU, or `HOST`."""
    return GPU_COLUMNS if subject else HOST_COLUMNS


MAX_ACCOUNT_DAYS = 366.0
"""Maximum days for which accounts and events are kept."""
MAX_EVENTS = 100_000
"""Maximum number of events. An event has about 600 bytes."""
MAX_ACCOUNTS = 1_000_000
"""Maximum number of account rows. A row has about 130 bytes, and this many rows are sufficient for a year of 16 GPUs
with seven users each."""
MAX_PROCESSES = 100_000
"""Maximum number of processes. A process has about 200 bytes."""
MAX_PROCESS_BYTES = 48 * 2**20
"""Maximum size of all process blocks."""
MAX_DAYS = SHAPES[-1].keep / DAY
"""Maximum age of stored history in days."""
_WASTE = 4
"""The file is vacuumed if more than 1/`_WASTE` of its pages are empty."""
_SMALL = 4096
"""This many empty pages never cause the file to be vacuumed."""


class HistoryLimits(NamedTuple):
    """Limits on the age and size of the data in the history file.

    When a limit is reached, the oldest data is removed.
    """

    days: float = MAX_DAYS
    bytes: int = 512 * 2**20
    """Maximum total size of all blocks in bytes. The file is a little larger."""
    account_days: float = MAX_ACCOUNT_DAYS
    """Maximum age of accounts and events in days."""

    def keep(self) -> Mapping[int, float]:
        """Return, for the number of each tier, for how many seconds the tier's data is kept."""
        return {shape.number: min(shape.keep, self.days * DAY) for shape in SHAPES}


USUAL_LIMITS = HistoryLimits()
"""Default limits of a daemon."""


def prune_old(connection: sqlite3.Connection, now: float, limits: HistoryLimits) -> None:
    """Remove data that is older than the limits allow. `now`: seconds since 1970.

    Must be called only if the clock is certainly right. With a wrong clock, all data could look too old.
    """
    keep = limits.keep()
    for shape in SHAPES:
        oldest = int((now - keep[shape.number]) // shape.block)
        connection.execute("DELETE FROM block WHERE tier = ? AND number < ?", (shape.number, oldest))
    _prune_activity(connection, now, limits)
    _prune_processes(connection, now, limits)


def prune_large(connection: sqlite3.Connection, limits: HistoryLimits) -> None:
    """If the file is too large, remove the oldest blocks of all tiers and return their space to the file system."""
    from sqlite3 import OperationalError  # not needed by commands that only read the limits

    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (page,) = connection.execute("PRAGMA page_size").fetchone()
    if pages * page > limits.bytes:  # otherwise the blocks need not be summed
        lasts = " ".join(f"WHEN {shape.number} THEN {shape.block}" for shape in SHAPES)
        connection.execute(
            "DELETE FROM block WHERE rowid IN (SELECT rowid FROM (SELECT rowid, sum(length(data)) OVER "
            f"(ORDER BY (number + 1) * CASE tier {lasts} END DESC, rowid DESC) AS held FROM block) WHERE held > ?)",
            (limits.bytes,),
        )
    (empty,) = connection.execute("PRAGMA freelist_count").fetchone()
    if empty > max(_SMALL, pages // _WASTE):
        with suppress(OperationalError):  # disk full; later writes reuse the empty pages
            connection.execute("VACUUM")


def _prune_activity(connection: sqlite3.Connection, now: float, limits: HistoryLimits) -> None:
    """Remove accounts and events that are too old. If there are still too many, also remove the oldest of the rest."""
    oldest = now - limits.account_days * DAY
    for table in ("device_hour", "account"):
        connection.execute(f"DELETE FROM {table} WHERE hour < ?", (oldest // HOUR,))
    connection.execute("DELETE FROM event WHERE time < ? AND until IS NULL", (int(oldest) * SECOND,))
    connection.execute(
        "DELETE FROM account WHERE hour <= (SELECT hour FROM account ORDER BY hour DESC LIMIT 1 OFFSET ?)",
        (MAX_ACCOUNTS,),
    )
    connection.execute(
        "DELETE FROM event WHERE until IS NULL"
        " AND time <= (SELECT time FROM event ORDER BY time DESC LIMIT 1 OFFSET ?)",
        (MAX_EVENTS,),
    )


def _prune_processes(connection: sqlite3.Connection, now: float, limits: HistoryLimits) -> None:
    """Remove processes and blocks of processes that are too old.

    If the rest exceeds a limit, also remove the oldest of it.
    """
    for shape in PROCESS_SHAPES:
        oldest = now - min(shape.keep, limits.days * DAY)
        connection.execute("DELETE FROM process_block WHERE tier = ? AND end < ?", (shape.number, int(oldest) * SECOND))
    connection.execute(
        "DELETE FROM process_block WHERE rowid IN (SELECT rowid FROM (SELECT rowid, sum(length(data)) OVER"
        " (ORDER BY end DESC, rowid DESC) AS held FROM process_block) WHERE held > ?)", (MAX_PROCESS_BYTES,),
    )  # fmt: skip
    keep = min(PROCESS_SHAPES[-1].keep, limits.days * DAY)
    connection.execute("DELETE FROM process WHERE last < ?", (int(now - keep) * SECOND,))
    connection.execute(
        "DELETE FROM process WHERE last <= (SELECT last FROM process ORDER BY last DESC LIMIT 1 OFFSET ?)",
        (MAX_PROCESSES,),
    )
