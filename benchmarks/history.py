"""Kept history of eight GPUs at one sample a second, beside a day of the same in SQLite, Parquet and Prometheus.

Time is accelerated: the ticks of a day are taken one after the other. `python -m benchmarks.history --days 31` takes a
whole month, and half an hour; peers get the last day of it. Prometheus is asked where its `promtool` is installed.
"""

from __future__ import annotations

import argparse
import os
import random
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib import import_module
from itertools import islice
from math import nan
from pathlib import Path
from subprocess import DEVNULL, run
from tempfile import TemporaryDirectory

from benchmarks.report import Budget, Result, number
from benchmarks.stage import GPUS, Effort, Stage, tool
from gpumon.clock import SECOND
from gpumon.database.write import open_to_write
from gpumon.history.collect import Block, Collector, SubjectValues, TickValues
from gpumon.history.limits import USUAL_LIMITS, prune
from gpumon.history.migrations import HISTORY_FILE
from gpumon.history.open import open_history
from gpumon.history.overview import overview
from gpumon.history.query import HOST, MOST, Query
from gpumon.history.tiers import DAY, HOUR
from gpumon.history.write import seal, write
from gpumon.metrics import FROM_TRAININGS, GPU_METRICS, HOST_METRICS, Kind, Unit

MONTH = 31
UUIDS = [f"GPU-{index:04}" for index in range(GPUS)]
METRIC = "gpu.utilization"
PLACE = next(place for place, metric in enumerate(GPU_METRICS) if metric.name == METRIC)
STALL = 2.5 * DAY
"""Seconds after the begin at which the first GPU stands still for one."""
_LOOP = HOUR
"""Seconds after which gauges repeat; counters go on."""
_LABELS = {DAY: "24 h", 7 * DAY: "7 d", MONTH * DAY: "31 d", HOUR: "1 h"}


def measure(_: Stage, effort: Effort) -> Result:
    """Keep a day, ask for windows, and do the same with the peers."""
    return kept(max(0.1, effort.scale))


def kept(days: float) -> Result:
    """Keep some days that end now."""
    result = Result("History", ("what", "MB on disk (ours: a month)", "first time, ms", "decoded, ms", "points"))
    end = time.time() // 300 * 300
    begin = end - days * DAY
    with TemporaryDirectory(prefix="gpumon-history-") as directory:
        os.chmod(directory, 0o700)
        path = Path(directory) / "history.sqlite"
        per_tick = fill(path, begin, end)
        found = overview(str(path))
        _, of_tenths, of_minutes = (size.bytes for size in found.tiers)
        month = found.bytes + of_tenths * (1 / min(days, 1) - 1) + of_minutes * (MONTH / days - 1)
        for length in sorted(_LABELS):
            if length <= days * DAY:
                first, again, points = asked(path, end, length)
                result.rows.append(
                    (f"gpumon, {_LABELS[length]}", number(month / 1e6), number(first), number(again), str(points))
                )
                result.budgets.append(Budget(f"a line of {_LABELS[length]}, first", first, 50, " ms"))
                result.budgets.append(Budget(f"a line of {_LABELS[length]}, decoded", again, 5, " ms"))
        day = min(days * DAY, DAY)
        for name, peer in (("SQLite rows", _rows), ("Parquet", _parquet), ("Prometheus", _prometheus)):
            answer = peer(Path(directory), end - day, end)
            if answer:
                size, took = answer
                result.rows.append((f"{name}, a day", number(size * DAY / day / 1e6), number(took), "", ""))
            else:
                result.notes.append(f"{name}: not installed.")
    result.budgets.append(Budget(f"{MONTH} days of {GPUS} GPUs", month / 1e6, 150, " MB"))
    result.budgets.append(Budget("keeping a tick", per_tick, 0.5, " ms"))
    return result


def ticks(begin: float, end: float) -> Iterator[TickValues]:
    """Yield values as a driver rounds them, at one a second."""
    chance = random.Random(1)
    base = [[_gauges(chance) for _ in range(GPUS)] for _ in range(_LOOP)]
    counters = [place for place, metric in enumerate(GPU_METRICS) if metric.kind is Kind.COUNTER]
    host = [0.5 if metric.unit is Unit.RATIO else 1e9 for metric in HOST_METRICS]
    for second in range(round(end - begin)):
        monotonic = (1000 + second) * SECOND
        rows = [SubjectValues(HOST, host, monotonic)]
        for uuid, values in zip(UUIDS, base[second % _LOOP], strict=True):
            row = values[:]
            for place in counters:
                row[place] = 412.5 * second if place % 2 else 0.0
            if second == STALL and uuid == UUIDS[0]:
                row[PLACE] = 0.0
            rows.append(SubjectValues(uuid, row, monotonic))
        yield TickValues(round((begin + second) * SECOND), monotonic, SECOND, rows)


def _gauges(chance: random.Random) -> list[float]:
    found = []
    for metric in GPU_METRICS:
        if metric.name in FROM_TRAININGS:
            found.append(nan)
        elif metric.unit is Unit.RATIO:
            found.append(chance.randrange(85, 100) / 100)
        elif metric.unit is Unit.WATTS:
            found.append(chance.randrange(600_000, 680_000) / 1000)
        elif metric.unit is Unit.CELSIUS:
            found.append(float(chance.randrange(62, 67)))
        else:
            found.append(1e9)
    return found


def fill(path: Path, begin: float, end: float) -> float:
    """Keep a stretch of time as the daemon does; gives ms of CPU for each tick."""
    blocks: list[Block] = []
    collector, spent, count = Collector(blocks.append), 0.0, 0
    source = ticks(begin, end)
    with closing(open_to_write(str(path), HISTORY_FILE, shared=False, uid=os.getuid(), log=print)) as connection:
        while some := list(islice(source, 600)):
            begun = time.process_time()
            for values in some:
                collector.add(values)
            if len(some) < 600:
                collector.finish()
            write(connection, map(seal, blocks), "0" * 32)
            blocks.clear()
            prune(connection, some[-1].time_ns / SECOND, USUAL_LIMITS)
            spent, count = spent + time.process_time() - begun, count + len(some)
        collector.finish()
        write(connection, map(seal, blocks), "0" * 32)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return spent / count * 1000


def asked(path: Path, end: float, length: float) -> tuple[float, float, int]:
    """The ms of CPU of a line over the last `length` seconds: the first time, and once decoded; and its points."""
    history = open_history()
    history.look_in(str(path))
    history.has(UUIDS[0], METRIC)  # the file is open
    query, took = Query(UUIDS[0], (METRIC,), end - length, end, MOST), []
    for _ in range(6):
        begun = time.process_time()
        series = history.query(query)[METRIC]
        took.append((time.process_time() - begun) * 1000)
    history.look_in("")
    if length == MONTH * DAY and min(series.low) > 0.0:
        raise AssertionError("the stall of a second is not in the month's line")
    return took[0], min(took[1:]), len(series.times)


def _samples(begin: float, end: float) -> Iterator[tuple[int, str, Sequence[float]]]:
    for values in ticks(begin, end):
        for row in values.rows:
            if row.subject:
                yield values.time_ns // SECOND, row.subject, row.values


def _rows(directory: Path, begin: float, end: float) -> tuple[int, float]:
    """A row for each GPU and second, with a column for each metric."""
    path = directory / "rows.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"CREATE TABLE sample (time, gpu, {', '.join(metric.key for metric in GPU_METRICS)})")
        marks = ", ".join("?" * (2 + len(GPU_METRICS)))
        db.executemany(
            f"INSERT INTO sample VALUES ({marks})", ((at, gpu, *row) for at, gpu, row in _samples(begin, end))
        )
        db.execute("CREATE INDEX by_gpu ON sample (gpu, time)")
        db.commit()
        begun = time.process_time()
        db.execute(
            "SELECT time / 44, min(utilization), avg(utilization), max(utilization) FROM sample"
            " WHERE gpu = ? GROUP BY 1",
            (UUIDS[0],),
        ).fetchall()
        took = (time.process_time() - begun) * 1000
    return path.stat().st_size, took


def _parquet(directory: Path, begin: float, end: float) -> tuple[int, float] | None:
    try:
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        return None
    columns = list(zip(*((at, gpu, *row) for at, gpu, row in _samples(begin, end)), strict=True))
    names = ["time", "gpu", *(metric.key for metric in GPU_METRICS)]
    path = directory / "day.parquet"
    parquet.write_table(pyarrow.table(dict(zip(names, columns, strict=True))), path, compression="zstd")
    begun = time.process_time()
    table = parquet.read_table(path, columns=["time", "utilization"], filters=[("gpu", "=", UUIDS[0])])
    assert table.num_rows
    return path.stat().st_size, (time.process_time() - begun) * 1000


def _prometheus(directory: Path, begin: float, end: float) -> tuple[int, float] | None:
    """Blocks made by promtool from OpenMetrics, and its own query of one series."""
    promtool = tool("promtool")
    if not promtool:
        return None
    text, blocks = directory / "day.om", directory / "prometheus"
    with text.open("w") as file:
        for place, metric in enumerate(GPU_METRICS):
            name = metric.name.replace(".", "_")
            file.write(f"# TYPE {name} gauge\n")
            for at, gpu, row in _samples(begin, end):
                if row[place] == row[place]:
                    file.write(f'{name}{{gpu="{gpu}"}} {row[place]!r} {at}\n')
        file.write("# EOF\n")
    run([promtool, "tsdb", "create-blocks-from", "openmetrics", text, blocks], check=True, stdout=DEVNULL)
    match = f'--match=gpu_utilization{{gpu="{UUIDS[0]}"}}'
    begun = time.perf_counter()
    run([promtool, "tsdb", "dump", match, blocks], check=True, stdout=DEVNULL)
    took = (time.perf_counter() - begun) * 1000
    return sum(path.stat().st_size for path in blocks.rglob("*") if path.is_file()), took


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history", description=__doc__)
    parser.add_argument("--days", type=float, default=MONTH, help="days to keep (default: 31)")
    print(kept(parser.parse_args().days).text())
    sys.exit(0)
