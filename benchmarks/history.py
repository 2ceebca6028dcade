"""A month of kept history of eight GPUs, and a day of the same values in SQLite, Parquet and Prometheus.

Time is accelerated: the ticks of a month are taken one after the other, through the code of the daemon. A month takes
some ten minutes, so that it is made once: `python -m benchmarks history --prepared DIR` keeps it in a directory, and
takes it from there the next time. Without one, a day is kept, and the size of a month is worked out from it.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks import history_peer as peers
from benchmarks.history_daemon import BLOCK, WITH, WITHOUT, Daemons, watch
from benchmarks.history_peer import GPU, METRIC, Question
from benchmarks.history_tables import PARQUET, ROWS
from benchmarks.month import Filled, Month, fill, prepared
from benchmarks.month_values import DAYS, STALL, UUIDS, hours
from benchmarks.prometheus import PROMETHEUS
from benchmarks.report import Budget, Result, number
from benchmarks.stage import GPUS, Effort, Stage
from gpumon.storage.history.open import open_history
from gpumon.storage.history.overview import overview
from gpumon.storage.history.query import MAX_POINTS, Query, Series
from gpumon.storage.history.tiers import DAY, HOUR, SHAPES

_REPEATS = 9


class _Window(NamedTuple):
    label: str
    seconds: int
    ago: int = 0
    """Seconds before the newest value at which it ends."""


_WINDOWS = (
    _Window("31 d", DAYS * DAY), _Window("7 d", 7 * DAY), _Window("24 h", DAY), _Window("6 h", 6 * HOUR),
    _Window("1 h", HOUR), _Window("24 h, 2 weeks ago", DAY, 14 * DAY), _Window("1 h, 2 weeks ago", HOUR, 14 * DAY),
)  # fmt: skip
_OF_A_DAY = (_WINDOWS[2], _WINDOWS[4])


class _Line(NamedTuple):
    """A line that was asked for, and the ms of CPU that it took."""

    first: float
    """With the file closed, and nothing of it decoded."""
    again: float
    points: int

    def cells(self) -> tuple[str, str, str]:
        return number(self.first), number(self.again), str(self.points)


def measure(stage: Stage, effort: Effort) -> Result:
    """Keep it, ask for windows, do the same with the peers, and run daemons with and without history."""
    with _directory(effort) as directory:
        month = prepared(directory, DAYS if effort.prepared else max(0.1, min(1.0, effort.scale)))
        result = Result(
            "A month of history", ("kept in", "asked for", "MB on disk", "first, CPU ms", "again, CPU ms", "points")
        )
        _sizes_and_lines(result, month)
        _peers(result, month, directory)
        _daemons(result, watch(stage, effort, month.path), _next_hour(stage.scratch, month))
        others = os.path.getsize(month.path) - month.of_tiers
        result.notes.append(f"Of the month's file, {number(others / 1e6)} MB are accounts and events of a year.")
    result.notes.append("Daemons killed at random moments are a test: tests/integration/test_history_kills.py.")
    if month.grown == month.grown:
        result.notes.append(f"The process that kept the last days grew by {month.grown:.1f} MB after the first.")
    return result


@contextmanager
def _directory(effort: Effort) -> Iterator[Path]:
    if effort.prepared:
        path = Path(effort.prepared)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield path
    else:
        with TemporaryDirectory(prefix="gpumon-history-") as scratch:
            yield Path(scratch)


def _sizes_and_lines(result: Result, month: Month) -> None:
    whole, day = _sizes(month)
    found = {window: _asked(month, window) for window in _WINDOWS if window.ago + window.seconds <= month.days * DAY}
    lines = [line for line, _ in found.values()]
    _add(result, f"gpumon, {month.days:g} days", overview(month.path).bytes, dict(zip(found, lines, strict=True)))
    of_day = {window: found[window][0] for window in _OF_A_DAY if window in found}
    _add(result, f"gpumon, {_length(month)} of it", day, of_day)
    made = "" if month.days == DAYS else f", worked out from {month.days:g}"
    result.budgets.append(Budget(f"{DAYS} days of {GPUS} GPUs{made}", whole / 1e6, 150, " MB"))
    result.budgets.append(Budget("a line of any window, first", max(line.first for line in lines), 50, " ms"))
    result.budgets.append(Budget("a line of any window, decoded", max(line.again for line in lines), 5, " ms"))
    if month.days == DAYS:
        lacking = 0 if _shows_stall(found[_WINDOWS[0]][1], month) else 1
        result.budgets.append(Budget("stalls of a second on day 3 that the month's line lacks", lacking, 0))


def _add(result: Result, name: str, size: float, lines: Mapping[_Window, _Line]) -> None:
    heads = [(name, number(size / 1e6)), *[("", "")] * len(lines)]
    for (window, line), (head, megabytes) in zip(lines.items(), heads, strict=False):
        result.rows.append((head, window.label, megabytes, *line.cells()))


def _length(month: Month) -> str:
    return "a day" if month.days >= 1 else f"{month.days * DAY / HOUR:g} h"


def _sizes(month: Month) -> tuple[float, float]:
    """Bytes on disk of 31 days, and of the last day (or all, where that is less) by itself."""
    day = min(DAY, month.days * DAY)
    with closing(sqlite3.connect(month.path)) as db:
        ((blocks,),) = db.execute("SELECT sum(length(data)) FROM block").fetchall()
        of_day = sum(
            db.execute(
                "SELECT coalesce(sum(length(data)), 0) FROM block WHERE tier = ? AND (number + 1) * ? > ?",
                (shape.number, shape.block, month.end - day),
            ).fetchone()[0]
            for shape in SHAPES
        )
    found = overview(month.path)
    _, tens, minutes = (size.bytes for size in found.tiers)
    whole = found.bytes + tens * (1 / min(month.days, 1) - 1) + minutes * (DAYS / month.days - 1)
    return whole, of_day * month.of_tiers / blocks


def _asked(month: Month, window: _Window) -> tuple[_Line, Series]:
    """Ask for a line several times, each time twice; what a process loads only once is loaded before."""
    end = month.end - window.ago
    query = Query(UUIDS[GPU], (METRIC,), end - window.seconds, end, MAX_POINTS)
    first, again = [], []
    for _ in range(_REPEATS + 1):
        history = open_history(lambda: month.end)
        begun = time.process_time()
        history.set_path(month.path)
        series = history.query(query)[METRIC]
        between = time.process_time()
        history.query(query)
        again.append((time.process_time() - between) * 1000)
        first.append((between - begun) * 1000)
        history.set_path("")
    return _Line(statistics.median(first[1:]), statistics.median(again[1:]), len(series.times)), series


def _shows_stall(series: Series, month: Month) -> bool:
    """Whether the bucket of the stall goes down to 0 in the midst of work, and those beside it do not."""
    begin = series.times[0] - series.step / 2
    place = int((month.begin + STALL + 0.5 - begin) // series.step)
    before, there, after = series.low[place - 1 : place + 2]
    return there == 0.0 and series.mean[place] > 0.5 and min(before, after) > 0.0


def _peers(result: Result, month: Month, directory: Path) -> None:
    day = min(DAY, round(month.days * DAY))
    end = round(month.end)
    for peer in (ROWS, PARQUET, PROMETHEUS):
        if missing := peer.missing():
            result.notes.append(f"{peer.name} is not measured: {missing}")
            continue
        path = peers.prepared(peer, directory, month.begin, lambda: hours(DAYS * DAY - day, DAYS * DAY))
        windows = [window for window in _OF_A_DAY if window.seconds <= day]
        lines = {window: _asked_of(peer, path, end, window) for window in windows}
        _add(result, f"{peer.name}, {_length(month)}", peers.size(path), lines)
    result.notes.append(
        "Asked for: low, mean and high of one GPU's utilization, at most 2,000 points. gpumon keeps seconds for an "
        "hour, 10 s for a day and 5 min for a month; the others have each second, and nothing summed up. CPU is that "
        "of whoever answers: of Prometheus, the server's."
    )


def _asked_of(peer: peers.Peer, path: Path, end: int, window: _Window) -> _Line:
    question = Question(end - window.seconds, end, -(-window.seconds // MAX_POINTS))
    with peer.opened(path) as ask:
        first, *others = (ask(question) for _ in range(_REPEATS))
    return _Line(first.cpu * 1000, statistics.median(answer.cpu for answer in others) * 1000, first.points)


def _next_hour(scratch: Path, month: Month) -> Filled:
    """Keep one more hour in a copy of the file."""
    copy = shutil.copy(month.path, scratch / "next-hour.sqlite")
    return fill(str(copy), month.begin, DAYS * DAY, DAYS * DAY + HOUR)


def _daemons(result: Result, daemons: Daemons, hour: Filled) -> None:
    kept, bare = daemons.median(WITH), daemons.median(WITHOUT)
    writing = 60 * hour.writing if daemons.seconds < BLOCK else 0.0
    result.budgets.append(Budget("the daemon's CPU, more with history", (kept + writing - bare) / bare * 100, 30, " %"))
    result.budgets.append(Budget("the daemon's memory with it (RSS)", daemons.memory[WITH], 60, " MB"))
    spread = {kind: f"{number(min(each))}–{number(max(each))}" for kind, each in daemons.cpu.items()}
    share = f" and {number(writing)} s for writing, which is left out of a window that short" if writing else ""
    result.notes.append(
        f"Daemons side by side for {daemons.seconds:g} s: {number(kept)} s of CPU a minute with history "
        f"({spread[WITH]}){share}, {number(bare)} s without ({spread[WITHOUT]}); "
        f"{daemons.memory[WITH]:.1f} and {daemons.memory[WITHOUT]:.1f} MB. With an accelerated clock, a tick took "
        f"{number(1000 * hour.collecting)} ms to collect and {number(1000 * hour.writing)} ms to write. "
        f"Until the window, they took {number(daemons.start(WITH))} s on the month's file, and "
        f"{number(daemons.start(WITHOUT))} s without history."
    )
