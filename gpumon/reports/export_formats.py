"""The table of formats of `gpumon runs export`: options, help and the command derive from `FORMATS`.

To add one: a function that gives the bytes, and a row here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpumon.common.config import Prices
from gpumon.storage.ledger.records import Record, RunTrace


class ExportFormat(NamedTuple):
    """A row of the table."""

    content: str
    """For the help: what one file has."""
    make: Callable[[Record, Sequence[RunTrace], float, Prices | None], bytes]
    """The file of a record and its traces at a time (s since 1970), with its cost by prices.

    Raises GpumonError where it cannot be made."""
    is_binary: bool = False
    """It goes to a file only, and to no terminal."""


def _csv(record: Record, traces: Sequence[RunTrace], now: float, prices: Prices | None = None) -> bytes:
    del traces, now
    from gpumon.reports.export import lines

    return "".join(lines(record, prices)).encode()


def _json(record: Record, traces: Sequence[RunTrace], now: float, prices: Prices | None = None) -> bytes:
    from gpumon.reports.export import document

    return (json.dumps(document(record, traces, now, prices), allow_nan=False) + "\n").encode()


def _parquet(record: Record, traces: Sequence[RunTrace], now: float, prices: Prices | None = None) -> bytes:
    del traces, now
    from gpumon.reports.export import parquet

    return parquet(record, prices)


_ROWS = "one row for each rank, epoch, phase and device"
FORMATS: dict[str, ExportFormat] = {
    "csv": ExportFormat(_ROWS, _csv),
    "json": ExportFormat("everything", _json),
    "parquet": ExportFormat(_ROWS, _parquet, is_binary=True),
}
