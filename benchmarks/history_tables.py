"""A row in SQLite for each GPU and second, and Parquet files of the same columns.

Both are set up so that a line of one GPU is cheap: rows have an index, the Parquet file has a row group for each GPU.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.history_peer import GPU, Answer, Ask, Peer, Question
from benchmarks.month_values import Array, Hour
from benchmarks.stage import GPUS
from gpumon.model.metrics import GPU_METRICS, HOST_METRICS, Kind, Metric


def _columns(metrics: Sequence[Metric]) -> list[str]:
    return [metric.key for metric in metrics]


def _keep_rows(directory: Path, month: float, hours: Iterator[Hour]) -> None:
    with closing(sqlite3.connect(directory / "rows.sqlite")) as db:
        for table, metrics in (("gpu", GPU_METRICS), ("host", HOST_METRICS)):
            db.execute(f"CREATE TABLE {table} (time INTEGER, gpu INTEGER, {' REAL, '.join(_columns(metrics))} REAL)")
        for hour in hours:
            begin = round(month) + hour.first
            gpus = enumerate(hour.gpus.tolist(), begin)
            rows = ((at, gpu, *row) for at, values in gpus for gpu, row in enumerate(values))
            db.executemany(f"INSERT INTO gpu VALUES ({', '.join('?' * (2 + len(GPU_METRICS)))})", rows)
            host = ((at, None, *row) for at, row in enumerate(hour.host.tolist(), begin))
            db.executemany(f"INSERT INTO host VALUES ({', '.join('?' * (2 + len(HOST_METRICS)))})", host)
        db.execute("CREATE INDEX by_gpu ON gpu (gpu, time)")
        db.commit()


@contextmanager
def _open_rows(directory: Path) -> Iterator[Ask]:
    db: list[sqlite3.Connection] = []

    def ask(question: Question) -> Answer:
        begun = time.process_time()
        if not db:
            db.append(sqlite3.connect(directory / "rows.sqlite"))
        found = db[0].execute(
            "SELECT time / ?, min(utilization), avg(utilization), max(utilization) FROM gpu"
            " WHERE gpu = ? AND time >= ? AND time < ? GROUP BY 1",
            (question.step, GPU, question.begin, question.end),
        )
        return Answer(len(found.fetchall()), time.process_time() - begun)

    yield ask
    for connection in db:
        connection.close()


def _keep_parquet(directory: Path, month: float, hours: Iterator[Hour]) -> None:
    pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    all_hours = list(hours)
    begin = round(month) + all_hours[0].first
    gpus, host = (np.concatenate([getattr(hour, name) for hour in all_hours]) for name in ("gpus", "host"))
    times = np.arange(begin, begin + len(host))

    def table(metrics: Sequence[Metric], values: Array) -> Any:
        columns = {
            metric.key: values[:, place] if metric.kind is Kind.COUNTER else values[:, place].astype("f4")
            for place, metric in enumerate(metrics)
        }
        return pyarrow.table({"time": times[: len(values)], **columns})

    parquet.write_table(table(HOST_METRICS, host), directory / "host.parquet", compression="zstd")
    with parquet.ParquetWriter(
        directory / "gpus.parquet", table(GPU_METRICS, gpus[:0, 0]).schema, compression="zstd"
    ) as file:
        for gpu in range(GPUS):
            file.write_table(table(GPU_METRICS, gpus[:, gpu]), row_group_size=len(times))


@contextmanager
def _open_parquet(directory: Path) -> Iterator[Ask]:
    compute, parquet = import_module("pyarrow.compute"), import_module("pyarrow.parquet")
    open_files = list[Any]()

    def ask(question: Question) -> Answer:
        begun = time.process_time()
        if not open_files:
            open_files.append(parquet.ParquetFile(directory / "gpus.parquet"))
        table = open_files[0].read_row_group(GPU, columns=["time", "utilization"])
        at = table["time"]
        table = table.filter(compute.and_(compute.greater_equal(at, question.begin), compute.less(at, question.end)))
        bucket = compute.divide(table["time"], question.step)
        groups = table.append_column("bucket", bucket).group_by("bucket")
        found = groups.aggregate([("utilization", name) for name in ("min", "mean", "max")])
        return Answer(found.num_rows, time.process_time() - begun)

    yield ask
    for file in open_files:
        file.close()


def _missing_parquet() -> str:
    try:
        import_module("pyarrow.parquet")
    except ImportError:
        return "pip install pyarrow"
    return ""


ROWS = Peer("SQLite rows", str, _keep_rows, _open_rows)
PARQUET = Peer("Parquet", _missing_parquet, _keep_parquet, _open_parquet)
