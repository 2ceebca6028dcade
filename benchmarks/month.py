"""A file of kept history that is filled by ticks, as a daemon does it, with an accelerated clock.

The last days go into the file itself. Those before are collected in portions, by as many processes as there are cores,
as if the daemon had been restarted between two of them; what is too old at the end is not written in the first place.
Accounts and events of a year are added.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from itertools import islice
from math import nan
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from benchmarks.month_values import DAYS, ticks
from benchmarks.usage import memory
from benchmarks.year import keep_year
from gpumon.common.clock import SECOND
from gpumon.storage.history.schema import HISTORY_FILE
from gpumon.storage.history.tier_aggregator import Aggregator, Block
from gpumon.storage.history.tiers import DAY, HOUR, SHAPES, USUAL_LIMITS, prune_large, prune_old
from gpumon.storage.history.write import SealedBlock, seal, write
from gpumon.storage.sqlite.write import open_to_write

_BATCH = 300
"""Ticks between two writes: as many as make a block of the finest tier."""
_DIRECT = 3
"""Days at the end that go into the file itself, so that it is used as by a daemon: what is too old leaves it."""
_PORTION = 2
_BOOT = "0" * 32


class Month(NamedTuple):
    """A file of history, and how it was made."""

    path: str
    end: float
    """When the newest tick was taken (s since 1970)."""
    days: float
    of_tiers: int
    """Bytes of it without accounts and events."""
    grown: float
    """MB by which the process that kept the last days grew after the first of them; NaN of a shorter file."""

    @property
    def begin(self) -> float:
        """When the month begins of which these are the last days (s since 1970)."""
        return self.end - DAYS * DAY


class Filled(NamedTuple):
    """Cost of filling a file."""

    collecting: float
    """Seconds of CPU for each tick."""
    writing: float
    """Seconds of CPU for each tick: blocks are sealed and written, and old ones removed."""
    grown: float
    """As in `Month`."""


def prepared(directory: Path, days: float) -> Month:
    """Return the file of some days in a directory, made first where it is not there yet."""
    notes = directory / f"history-{days:g}-days.json"
    if notes.exists():
        return Month(**json.loads(notes.read_text()))
    month = make(directory / f"history-{days:g}-days.sqlite", days)
    notes.write_text(json.dumps(month._asdict()))
    return month


def make(path: Path, days: float) -> Month:
    """Fill a file with the last `days` of a month that ends now."""
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    end = float(time.time() // DAY * DAY)
    last, begin = DAYS * DAY, round((DAYS - days) * DAY)
    direct = max(begin, last - _DIRECT * DAY)
    portions = [(first, min(first + _PORTION * DAY, direct)) for first in range(begin, direct, _PORTION * DAY)]
    # A process each, and each fresh: what one has left in memory is not taken for what the next one needs.
    with ProcessPoolExecutor(
        max_workers=os.cpu_count(), mp_context=get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        newest = pool.submit(fill, str(path), end - last, direct, last)
        before = [pool.submit(_coarsest, end - last, *portion) for portion in portions]
        for number, each in enumerate(before):
            each.result()
            print(f"... {number + 1} of {len(before)} portions of the month collected", file=sys.stderr, flush=True)
        filled = newest.result()
    with closing(_opened(str(path))) as connection:
        for each in before:
            write(connection, each.result(), _BOOT)
        prune_old(connection, end, USUAL_LIMITS)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        of_tiers = os.path.getsize(path)
        keep_year(connection, end)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Month(str(path), end, days, of_tiers, filled.grown)


def fill(path: str, month: float, first: int, last: int) -> Filled:
    """Keep the ticks from second `first` to `last` of the month that begins at a time (s since 1970)."""
    blocks: list[Block] = []
    aggregator, count, sizes = Aggregator(blocks.append), 0, []
    source, collecting, writing = ticks(month, first, last), 0.0, 0.0
    with closing(_opened(path)) as connection:
        while some := list(islice(source, _BATCH)):
            begun = time.process_time()
            for tick in some:
                aggregator.add(tick)
            count += len(some)
            if count == last - first:
                aggregator.finish()
            collected = time.process_time()
            if blocks:
                write(connection, map(seal, blocks), _BOOT)
                blocks.clear()
                if count % HOUR == 0:
                    prune_old(connection, some[-1].time_ns / SECOND, USUAL_LIMITS)
                prune_large(connection, USUAL_LIMITS)
            collecting, writing = collecting + collected - begun, writing + time.process_time() - collected
            if count % DAY == 0:
                sizes.append(memory(os.getpid())[0])
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Filled(collecting / count, writing / count, max(sizes) - sizes[0] if len(sizes) > 1 else nan)


def _coarsest(month: float, first: int, last: int) -> list[SealedBlock]:
    """The blocks that are kept for a month, from second `first` to `last` of it."""
    found: list[SealedBlock] = []

    def take(block: Block) -> None:
        if block.shape == SHAPES[-1]:
            found.append(seal(block))

    aggregator = Aggregator(take)
    for tick in ticks(month, first, last):
        aggregator.add(tick)
    aggregator.finish()
    return found


def _opened(path: str) -> sqlite3.Connection:
    return open_to_write(path, HISTORY_FILE, shared=False, uid=os.getuid(), log=print)
