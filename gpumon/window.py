"""`Window`: metrics of a period as numpy arrays, for scripts and notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from math import floor, inf, nextafter
from typing import TYPE_CHECKING, Any

from gpumon.common.clock import SECOND
from gpumon.common.errors import MissingPackage, UsageError, converts_os_errors
from gpumon.common.numbers import is_known
from gpumon.model.device import Device
from gpumon.model.frame import Frame
from gpumon.model.metrics import BY_NAME, METRICS, Kind, Scope
from gpumon.storage.history.buckets import Grid, WindowSpan, resolve_window
from gpumon.storage.history.devices import Wanted, devices_of, read_devices, resolve_devices, sort_devices
from gpumon.storage.history.open import open_history, stored_devices, stored_subjects
from gpumon.storage.history.query import HOST, Query, Series
from gpumon.storage.history.recent import KEEP

try:
    import numpy as np
except ImportError as error:
    raise MissingPackage("live.window", "numpy") from error

ROWS = 4000
"""Default for the maximum number of rows of a window. It is sufficient for all samples in a ring."""
_TIME_METRIC = "host.load"
"""The metric whose samples determine the times of the rows."""

if TYPE_CHECKING:
    import numpy.typing as npt

    from gpumon.storage.history.buckets import Moment

    Column = npt.NDArray[np.float64]


class Window:
    """Metrics over time, as arrays.

    `window["gpu.power"]` is an array of time × device, and `window["host.load"]` is an array of time.

    `time` has times in seconds since 1970. If there are few samples, these are the times of the samples. Otherwise,
    they are the middles of intervals of `step` seconds. The intervals are aligned to absolute time. `window[metric]` is
    the mean in each interval; see also `low`, `high` and `seen`. Missing values are NaN. Counters become rates, in
    their unit per second. A metric is read when it is first accessed.
    """

    def __init__(
        self, span: WindowSpan, frames: Sequence[Frame] = (), devices: Sequence[Device] = (), *,
        fed: Sequence[Frame] = (), path: str = "", metrics: Sequence[str] | None = None, points: int = ROWS,
    ) -> None:  # fmt: skip
        """Read the times of the rows and the requested metrics.

        `frames`: the frames in the window. `fed`: all frames from which values may be read. `path`: history file for
        the time before these frames.
        """
        self.span = span
        """The requested start and end, in seconds since 1970."""
        self.frames = frames
        """The frames of the window that are still in the ring."""
        self.devices: tuple[Device, ...] = tuple(devices)
        """The devices to which the columns of GPU metrics belong."""
        self._fed, self._path, self._points = fed, path, points
        self._grid: Grid | None = None
        requested = (metrics,) if isinstance(metrics, str) else metrics
        self.problem = ""
        """Reason why the history cannot be read, or why there is no data; empty if there is no problem. If the history
        cannot be read, values that would come from it are NaN."""
        self._requested = [_check(name) for name in requested or ()]
        self._series: dict[str, list[Series]] = {}
        (base,) = self._read([_TIME_METRIC], [HOST])[_TIME_METRIC]
        self.time: Column = np.array(base.times, dtype=np.float64)
        self.step = base.step
        """Seconds per interval; 0 if each row is a sample."""
        if base.step:
            self._grid = Grid(floor(base.times[0] / base.step), base.step, len(base.times))
        else:
            self._path = ""  # data that is added to the history later must not change rows
        self._load(self._requested)

    @classmethod
    def ask(
        cls, frames: Sequence[Frame], path: str, now: float, *, length: str | float | None = None,
        begin: Moment | None = None, end: Moment | None = None, metrics: Sequence[str] | None = None,
        devices: Wanted | Iterable[Wanted] | None = None, points: int = ROWS,
    ) -> Window:  # fmt: skip
        """Return a window from `frames` and the history file `path`, as described in `Live.window`. Raises UsageError.

        `now`: end of a window that is specified by its `length`, in seconds since 1970.
        """
        if points < 1:
            raise UsageError(f"points must be at least 1, not {points}")
        span = resolve_window(length, begin, end, now)
        inside = [index for index, frame in enumerate(frames) if span.begin < frame.time <= span.end]
        fed = frames[max(0, inside[0] - 1) : inside[-1] + 1] if inside else ()
        present = devices_of(fed)
        known = {**present, **devices_of(frames[-1:])}
        wanted = resolve_devices(devices, known, lambda: stored_devices(path, frames)) or [
            *present, *([] if fed and fed[0].time <= span.begin else stored_subjects(path, span))
        ]  # fmt: skip
        own = [frames[index] for index in inside]
        if frames and length is not None and begin is None and end is None and now == frames[-1].time:
            # The monotonic clock is used, so that the length is correct even if the wall clock was set during the
            # window.
            since = frames[-1].monotonic_ns - round((span.end - span.begin) * SECOND)
            own = [frame for frame in frames if frame.monotonic_ns > since]
        return cls(
            span, own, sort_devices(wanted, known, lambda: read_devices(path)), fed=fed, path=path, metrics=metrics,
            points=points,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.time)

    def __getitem__(self, metric: str) -> Column:
        """Return the mean of a metric in each interval. Raises UsageError for an unknown metric."""
        return self._column(metric, [series.mean for series in self._series_of(metric)])

    def low(self, metric: str) -> Column:
        """Return the lowest value in each interval."""
        return self._column(metric, [series.low for series in self._series_of(metric)])

    def high(self, metric: str) -> Column:
        """Return the highest value in each interval."""
        return self._column(metric, [series.high for series in self._series_of(metric)])

    def seen(self, metric: str) -> Column:
        """Return the share (0 to 1) of each interval for which the metric has values.

        For a single sample, it is 0 or 1.
        """
        return self._column(metric, [_known_share(series) for series in self._series_of(metric)])

    @property
    def metrics(self) -> tuple[str, ...]:
        """The requested metrics, or by default all metrics that have a value."""
        if self._requested:
            return tuple(self._requested)
        self._load([metric.name for metric in METRICS])
        known = (name for name in self._series if any(map(_has_value, self._series[name])))
        return tuple(sorted(known, key=list(BY_NAME).index))

    def epochs(self) -> list[dict[str, Any]]:
        """Return the epoch boundaries in this window: run, epoch, mark, phase and time (s since 1970)."""
        boundaries = {(b.run, b.number): b for frame in self.frames for b in frame.boundaries}
        return [
            {"run": b.run, "epoch": b.epoch, "mark": b.mark.name.lower(), "phase": b.phase, "time": b.time_ns / 1e9}
            for b in sorted(boundaries.values(), key=lambda boundary: boundary.time_ns)
        ]

    @converts_os_errors
    def to_pandas(self, value: str = "mean") -> Any:
        """Return a pandas DataFrame: rows by time (UTC), columns by metric and UUID ("" for metrics of the host).

        `value`: `mean`, `low`, `high` or `seen`. Raises MissingPackage without pandas, and UsageError for any other
        value.
        """
        return to_pandas(self, value)

    @converts_os_errors
    def to_arrow(self) -> Any:
        """Return a pyarrow Table with a row per time, device and metric, and with the columns `FIELDS`.

        Missing values are null. Raises MissingPackage without pyarrow.
        """
        return to_arrow(self)

    def uuids(self, metric: str) -> list[str]:
        """Return the UUIDs of a metric's columns, or [""] for a metric of the host. Raises UsageError."""
        return [HOST] if BY_NAME[_check(metric)].scope is Scope.HOST else [device.uuid for device in self.devices]

    def _column(self, metric: str, columns: Sequence[Sequence[float]]) -> Column:
        if BY_NAME[metric].scope is Scope.HOST:
            return np.array(columns[0], dtype=np.float64)
        by_device = np.array(columns, dtype=np.float64).reshape(len(columns), len(self.time))
        return np.ascontiguousarray(by_device.T)

    def _series_of(self, metric: str) -> list[Series]:
        self._load([_check(metric)])
        return self._series[metric]

    def _load(self, names: Sequence[str]) -> None:
        """Read metrics that have not been read yet."""
        for scope in Scope:
            new = [name for name in names if name not in self._series and BY_NAME[name].scope is scope]
            if new:
                self._series.update(self._read(new, self.uuids(new[0])))

    def _read(self, names: Sequence[str], subjects: Sequence[str]) -> dict[str, list[Series]]:
        """Read metrics of the same scope. Return for each metric one series for each of `subjects`.

        `subjects`: UUIDs of devices, or `HOST`.
        """
        history = open_history(keep=max(KEEP, len(self._fed)), metrics=names)
        history.set_path(self._path)
        for frame in self._fed:
            history.add(frame)
        begin, end = nextafter(self.span.begin, inf), self.span.end
        result: dict[str, list[Series]] = {name: [] for name in names}
        for subject in subjects:
            query = Query(subject, names, begin, end, self._points, self._grid, seen=True)
            for name, series in history.query(query).items():
                result[name].append(series)
        self.problem = self.problem or history.problem
        history.close()
        return result


def _check(name: str) -> str:
    """Return `name`. Raises UsageError if there is no metric of this name."""
    if name not in BY_NAME:
        raise UsageError(f"no such metric: '{name}'. See gpumon.model.metrics.METRICS")
    return name


def _has_value(series: Series) -> bool:
    return any(map(is_known, series.mean))


def _known_share(series: Series) -> list[float]:
    if not series.step:
        return [float(is_known(value)) for value in series.mean]
    return [min(seconds / series.step, 1.0) for seconds in series.seen] or [0.0] * len(series.mean)


VALUES = ("mean", "low", "high", "seen")
FIELDS = ("time", "step_seconds", "device", "metric", "unit", *VALUES)
"""Columns of the Arrow table: the middle of the interval (UTC) and its length (0 for a single sample); UUID of the GPU,
empty for the host; the metric and its unit, per second for counters; mean, lowest and highest value; the share of the
interval that has values."""


def to_pandas(window: Window, value: str = "mean") -> Any:
    """Return a DataFrame as described in `Window.to_pandas`."""
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
    """Return a Table as described in `Window.to_arrow`."""
    arrow = _package("pyarrow", "to_arrow")
    import numpy as np

    blocks = [(name, index, uuid) for name in window.metrics for index, uuid in enumerate(window.uuids(name))]
    rows = len(window)
    times = arrow.array((np.tile(window.time, len(blocks)) * 1e6).round().astype("int64"))

    def repeated(texts: list[str]) -> Any:
        encoded = arrow.array(texts, arrow.string()).dictionary_encode()
        indices = arrow.array(np.repeat(encoded.indices.to_numpy(zero_copy_only=False), rows).astype("int32"))
        return arrow.DictionaryArray.from_arrays(indices, encoded.dictionary)

    columns = {
        "time": times.cast(arrow.timestamp("us", tz="UTC")),
        "step_seconds": arrow.array(np.full(rows * len(blocks), window.step)),
        "device": repeated([uuid for _, _, uuid in blocks]),
        "metric": repeated([name for name, _, _ in blocks]),
        "unit": repeated([_unit(name) for name, _, _ in blocks]),
    }
    for value in VALUES:
        parts = [_values(window, name, value).reshape(rows, -1)[:, index] for name, index, _ in blocks]
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
