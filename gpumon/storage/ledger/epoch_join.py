"""Decides which epochs of different ranks are the same epoch of the run.

In the file, each rank numbers its own rows (`epoch.ordinal`). If ranks merge very short epochs or lose boundaries,
their numbers differ. Rows are joined by the following rules:

1. A rank starts over where its epoch number does not increase: a second `fit()`, or an epoch that is repeated. A
   process that follows another one with the same rank number continues its epochs.
2. If no rank has lost boundaries, the n-th start-over of each rank is the n-th of the run, at whatever time: one rank
   may be slower than the others. Otherwise, start-overs of different ranks that follow each other in time are one
   start-over of the run. A rank that did not see it, because boundaries were lost, is behind it from its time on.
3. Two rows are the same epoch if they have the same number and are behind the same start-over of the run. If
   boundaries were lost and a rank has the number several times, their spans must also overlap, or each must be
   clearly the nearest of its rank to the other.

A row that stands for several merged epochs has the number of the first of these epochs. A rank without a row for an
epoch is missing in that epoch.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

_OPEN = 1 << 62
"""Value that stands for the end of a row that has not ended."""
_RANKS = "rank IN (SELECT key FROM rank WHERE run = ?1)"
_UNTIL = f"""
coalesce({{row}}.ended, (SELECT begun FROM main.epoch AS next WHERE next.rank = {{row}}.rank
  AND next.ordinal = {{row}}.ordinal + 1), {_OPEN})
"""
_COUNTED_DIFFERENTLY = f"""
SELECT (SELECT count(*) > count(DISTINCT rank) FROM rank WHERE run = ?1) OR EXISTS(
  SELECT 1 FROM main.epoch AS row CROSS JOIN main.epoch AS longest
  ON longest.rank = (SELECT rank FROM main.epoch WHERE {_RANKS} GROUP BY rank ORDER BY max(ordinal) DESC LIMIT 1)
    AND longest.ordinal = row.ordinal AND longest.rank != row.rank
  WHERE row.{_RANKS} AND (
    row.epoch != longest.epoch
    OR row.begun >= {_UNTIL.format(row="longest")} OR longest.begun >= {_UNTIL.format(row="row")}
  )
)
"""
"""Query that tells whether rows with the same ordinal may be different epochs. If not, `join_epochs` would also return
the ordinal of each row unchanged. Each rank is compared with the rank that has the most rows."""
_ROWS = """
SELECT rank.rank, key, ordinal, epoch, begun, epoch.ended FROM rank JOIN main.epoch ON epoch.rank = key
WHERE run = ?1 AND typeof(ordinal) = 'integer' ORDER BY rank.rank, rank.started, key, ordinal
"""


class Row(NamedTuple):
    """An epoch of one rank. Times are in ns since 1970, and increase within the rank."""

    number: int
    begun: int
    ended: int


class _Place(NamedTuple):
    """Index of a rank, and of a row in the rows of this rank."""

    rank: int
    row: int


def join_epochs(ranks: Sequence[Sequence[Row]], *, has_lost: bool = True) -> list[list[int]]:
    """Return for each row of each rank the ordinal of its epoch in the run, by the rules of this module.

    `ranks`: the rows of each rank in the order in which they began. `has_lost`: whether a rank may have lost
    boundaries. The ordinals of a rank increase. Each ordinal from 0 on belongs to one or more rows, which all have the
    same epoch number.
    """
    own = [[row.begun for before, row in pairwise(rows) if row.number <= before.number] for rows in ranks]
    is_complete = not has_lost and _have_all_start_overs(ranks, own)
    passes = own if is_complete else _start_overs(own)
    if not any(passes):  # this is the usual case, and it is fast
        order = {number: i for i, number in enumerate(sorted({row.number for rows in ranks for row in rows}))}
        return [[order[row.number] for row in rows] for rows in ranks]
    epochs: dict[tuple[int, int], list[_Place]] = {}
    starts: dict[int, list[list[int]]] = {}
    """For each epoch number, the times at which each rank began an epoch with this number."""
    for rank, rows in enumerate(ranks):
        for index, row in enumerate(rows):
            epochs.setdefault((bisect_right(passes[rank], row.begun), row.number), []).append(_Place(rank, index))
            starts.setdefault(row.number, [[] for _ in ranks])[rank].append(row.begun)
    ordinals = [[0] * len(rows) for rows in ranks]
    ordinal = 0
    for (_, number), places in sorted(epochs.items()):
        repeated = not is_complete and any(len(times) > 1 for times in starts[number])
        for same in _divide(ranks, places, starts[number]) if repeated and len(places) > 1 else [places]:
            for place in same:
                ordinals[place.rank][place.row] = ordinal
            ordinal += 1
    return ordinals


def _have_all_start_overs(ranks: Sequence[Sequence[Row]], own: Sequence[Sequence[int]]) -> bool:
    """Return whether each rank has all start-overs up to its last row.

    `own`: the times of the start-overs in the rows of each rank.

    Ranks that merged short epochs may have merged different start-overs, and a slower rank of a running run may not
    have reached the last ones. If the ranks have different numbers of start-overs, their passes must have the same
    epoch numbers.
    """
    if len({len(times) for times, rows in zip(own, ranks, strict=True) if rows}) < 2:
        return True
    passes = [_passes(rows) for rows in ranks if rows]
    longest = max(passes, key=len)
    return all(
        whole == longest[: len(whole)] and newest == longest[len(whole)][: len(newest)] for *whole, newest in passes
    )


def _passes(rows: Sequence[Row]) -> list[list[int]]:
    """Return the numbers of the rows of a rank, divided at its start-overs."""
    passes: list[list[int]] = []
    for row in rows:
        if not passes or row.number <= passes[-1][-1]:
            passes.append([])
        passes[-1].append(row.number)
    return passes


def _start_overs(own: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return for each rank the times from which on it is behind the start-overs of the run, in chronological order.

    `own`: the times of the start-overs in the rows of each rank.
    """
    events: list[dict[int, int]] = []
    """Time of each start-over of the run, by rank."""
    for begun, rank in sorted((begun, rank) for rank, times in enumerate(own) for begun in times):
        if not events or rank in events[-1]:
            events.append({})
        events[-1][rank] = begun
    return [[event.get(rank, min(event.values())) for event in events] for rank in range(len(own))]


def _divide(
    ranks: Sequence[Sequence[Row]], places: Sequence[_Place], starts: Sequence[Sequence[int]]
) -> list[list[_Place]]:  # fmt: skip
    """Divide rows with the same epoch number into groups of rows that are the same epoch.

    The groups are ordered by start. `starts`: the times at which each rank began an epoch with this number.
    """
    divided: list[list[_Place]] = []
    for place in sorted(places, key=lambda place: ranks[place.rank][place.row].begun):
        row = ranks[place.rank][place.row]
        for same in divided:
            first = ranks[same[0].rank][same[0].row]
            is_nearest = _is_nearest(first.begun, row.begun, starts[place.rank]) and _is_nearest(
                row.begun, first.begun, starts[same[0].rank]
            )
            if row.begun < first.ended or is_nearest:
                same.append(place)
                break
        else:
            divided.append([place])
    return divided


def _is_nearest(time: int, start: int, starts: Sequence[int]) -> bool:
    """Return whether `start` is clearly the closest to `time` in the ascending sequence `starts`.

    The other times of the sequence must be more than twice as far away.
    """
    index = bisect_left(starts, start)
    others = (*starts[max(0, index - 1) : index], *starts[index + 1 : index + 2])
    return all(abs(other - time) > 2 * abs(start - time) for other in others)


@dataclass(frozen=True, slots=True)
class _Rank:
    """The epochs of a rank, each with its key and ordinal in the file."""

    number: object
    rows: list[Row] = field(default_factory=list)
    stored: list[tuple[str, int]] = field(default_factory=list)

    def add(self, key: str, ordinal: int, number: object, begun: object, ended: object) -> None:
        """Add the next row.

        In a file of another user, a number or time may have the wrong type. It is then replaced with a value that
        follows the previous row.
        """
        before = self.rows[-1] if self.rows else Row(-1, 0, 0)
        begun_ns = (
            begun if isinstance(begun, int) and begun > before.begun else before.begun + 1
        )  # the clock was set back
        if before.ended == _OPEN:
            self.rows[-1] = before._replace(ended=begun_ns)
        self.rows.append(
            Row(
                number if isinstance(number, int) else before.number + 1,
                begun_ns,
                ended if isinstance(ended, int) else _OPEN,
            )
        )
        self.stored.append((key, ordinal))


def _read_ranks(cells: Iterable[Sequence[Any]]) -> list[_Rank]:
    """Return the ranks of a run. `cells` has the columns of `_ROWS`."""
    ranks: list[_Rank] = []
    for number, key, ordinal, epoch, begun, ended in cells:
        rank = ranks[-1] if ranks else None
        if rank is None or (rank.stored[-1][0] != key and not (rank.number == number and _follows(rank, begun))):
            rank = _Rank(number)
            ranks.append(rank)
        rank.add(key, ordinal, epoch, begun, ended)
    return ranks


def _follows(rank: _Rank, begun: object) -> bool:
    """Return whether a row that began at this time may follow the last row of a rank."""
    last = rank.rows[-1]
    return isinstance(begun, int) and begun >= (last.begun if last.ended == _OPEN else last.ended)


_TABLES = ("epoch", "phase", "usage")


def join_run(db: sqlite3.Connection, run: str) -> bool:
    """Use the ordinals of `join_epochs` for a run until the open transaction ends. `run`: stored id of the run.

    Return whether the numbers of ranks differ. If so, the names `epoch`, `phase` and `usage` refer to temporary views
    without the epochs of other runs, and the tables themselves are `main.epoch` and so on. For each rank and ordinal in
    the rank (`own`), the temporary table `joined` has the ordinal of the epoch in the run (`ordinal`).
    """
    cursor = db.cursor()
    cursor.row_factory = None
    for table in _TABLES:
        cursor.execute(f"DROP VIEW IF EXISTS temp.{table}")
    cursor.execute("DROP TABLE IF EXISTS temp.joined")
    (processes,) = cursor.execute("SELECT count(*) FROM rank WHERE run = ?", (run,)).fetchone()
    if processes < 2 or not cursor.execute(_COUNTED_DIFFERENTLY, (run,)).fetchone()[0]:
        return False
    ranks = _read_ranks(cursor.execute(_ROWS, (run,)))
    (lost,) = cursor.execute("SELECT total(lost_events) FROM rank WHERE run = ?", (run,)).fetchone()
    joined = join_epochs([rank.rows for rank in ranks], has_lost=lost > 0)
    cursor.execute(
        "CREATE TEMP TABLE joined (rank TEXT, own INTEGER, ordinal INTEGER, PRIMARY KEY (rank, own)) WITHOUT ROWID"
    )
    cursor.executemany(
        "INSERT INTO temp.joined VALUES (?, ?, ?)",
        (
            (*stored, ordinal)
            for rank, ordinals in zip(ranks, joined, strict=True)
            for stored, ordinal in zip(rank.stored, ordinals, strict=True)
        ),
    )
    for table in _TABLES:
        names = [name for (name,) in cursor.execute("SELECT name FROM pragma_table_info(?, 'main')", (table,))]
        columns = ", ".join(f'stored."{name}"' for name in names if name != "ordinal" and '"' not in name)
        # Rows with a negative ordinal belong to no epoch.
        cursor.execute(
            f"CREATE TEMP VIEW {table} AS SELECT coalesce(joined.ordinal, stored.ordinal) AS ordinal, {columns}"
            f" FROM main.{table} AS stored"
            " LEFT JOIN temp.joined ON joined.rank = stored.rank AND joined.own = stored.ordinal"
            " WHERE joined.ordinal IS NOT NULL OR stored.ordinal < 0"
        )
    return True
