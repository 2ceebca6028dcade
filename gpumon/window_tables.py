"""A window as a table of other packages: pandas, pyarrow."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpumon.common.errors import MissingPackage, UsageError
from gpumon.model.metrics import BY_NAME, Kind

if TYPE_CHECKING:
    from gpumon.window import Column, Window

VALUES = ("mean", "low", "high", "seen")
FIELDS = ("time", "step_seconds", "device", "metric", "unit", *VALUES)
"""The middle of the stretch, UTC, and its length (0: a sample by itself); UUID of the GPU, empty for the host; the
metric and its unit, of counters per second; mean, lowest and highest value; the share of the stretch that is known."""


def to_pandas(window: Window, value: str = "mean") -> Any:
    """Return a DataFrame of one of `VALUES`: rows by time (UTC), columns by metric and device.

    Raises MissingPackage without pandas, UsageError for another value.
    """
    if value not in VALUES:
        raise UsageError(f"no such value: '{value}'. One of {', '.join(VALUES)}")
    pandas = _package("pandas", "to_pandas")
    import numpy as np

    names = window.metrics
    columns = [(name, uuid) for name in names for uuid in window.uuids(name)]
    data = [_values(window, name, value).reshape(len(window), -1) for name in names]
    return pandas.DataFrame(
        np.concatenate(data, axis=1) if data else np.empty((len(window), 0)),
        index=pandas.to_datetime(window.time, unit="s", utc=True).rename("time"),
        columns=pandas.MultiIndex.from_tuples(columns, names=["metric", "device"]),
    )


def to_arrow(window: Window) -> Any:
    """Return a Table with the columns of `FIELDS`, a row for each time, device and metric; what is missing is null.

    Raises MissingPackage without pyarrow.
    """
    arrow = _package("pyarrow", "to_arrow")
    import numpy as np

    blocks = [(name, place, uuid) for name in window.metrics for place, uuid in enumerate(window.uuids(name))]
    rows = len(window)
    times = arrow.array((np.tile(window.time, len(blocks)) * 1e6).round().astype("int64"))

    def repeated(texts: list[str]) -> Any:
        found = arrow.array(texts, arrow.string()).dictionary_encode()
        places = arrow.array(np.repeat(found.indices.to_numpy(zero_copy_only=False), rows).astype("int32"))
        return arrow.DictionaryArray.from_arrays(places, found.dictionary)

    columns = {
        "time": times.cast(arrow.timestamp("us", tz="UTC")),
        "step_seconds": arrow.array(np.full(rows * len(blocks), window.step)),
        "device": repeated([uuid for _, _, uuid in blocks]),
        "metric": repeated([name for name, _, _ in blocks]),
        "unit": repeated([_unit(name) for name, _, _ in blocks]),
    }
    for value in VALUES:
        parts = [_values(window, name, value).reshape(rows, -1)[:, place] for name, place, _ in blocks]
        columns[value] = arrow.array(np.concatenate(parts) if parts else np.empty(0), from_pandas=True)
    return arrow.table(columns)


def _values(window: Window, name: str, value: str) -> Column:
    if value == "mean":
        return window[name]
    return {"low": window.low, "high": window.high, "seen": window.seen}[value](name)


def _unit(name: str) -> str:
    metric = BY_NAME[name]
    return metric.unit.value + ("_per_second" if metric.kind is Kind.COUNTER else "")


def _package(name: str, what: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingPackage(what, name) from error
