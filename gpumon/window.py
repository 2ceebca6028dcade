"""A window of the past as arrays, for scripts and notebooks. The one reader that needs numpy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from math import floor, inf, nextafter
from typing import TYPE_CHECKING, Any

from gpumon.common.clock import SECOND
from gpumon.common.errors import MissingPackage, UsageError
from gpumon.common.numbers import is_known
from gpumon.model.device import Device
from gpumon.model.frame import Frame
from gpumon.model.metrics import BY_NAME, METRICS, Kind, Scope
from gpumon.storage.history.devices import Wanted, chosen, devices_in, devices_of, named
from gpumon.storage.history.grid import Grid, WindowSpan, span_of
from gpumon.storage.history.open import kept_devices, open_history, subjects_of
from gpumon.storage.history.query import HOST, Query, Series
from gpumon.storage.history.recent import KEEP

try:
    import numpy as np
except ImportError as error:
    raise MissingPackage("live.window", "numpy") from error

ROWS = 4000
"""Rows of a window unless another number is asked for: all samples that a ring holds."""
_ANY = "host.load"
"""The metric that is asked for the times of the rows."""

if TYPE_CHECKING:
    import numpy.typing as npt

    from gpumon.storage.history.grid import Moment

    Column = npt.NDArray[np.float64]


class Window:
    """Metrics over time: `window["gpu.power"]` is an array of time × device, `window["host.load"]` of time.

    `time` is seconds since 1970: of each sample where there are few, else the middle of each stretch of `step` seconds,
    at fixed places in absolute time. `window[metric]` is the mean of each stretch; `low`, `high` and `seen` say more.
    What is missing is NaN. Counters are rates, in their unit per second. A metric is read when it is first asked for.
    """

    def __init__(
        self, span: WindowSpan, frames: Sequence[Frame] = (), devices: Sequence[Device] = (), *,
        fed: Sequence[Frame] = (), path: str = "", metrics: Sequence[str] | None = None, points: int = ROWS,
    ) -> None:  # fmt: skip
        """`frames` are those of the window; `fed` all that it may read, in the order of time, `path` what is older."""
        self.span = span
        """From when to when it was asked for, in seconds since 1970."""
        self.frames = frames
        """The frames that the ring still holds of it."""
        self.devices: tuple[Device, ...] = tuple(devices)
        """The columns."""
        self._fed, self._path, self._points = fed, path, points
        self._grid: Grid | None = None
        named_alone = (metrics,) if isinstance(metrics, str) else metrics
        self.problem = ""
        """Why kept history cannot be read, so that its part is NaN, or nothing is known at all; else empty."""
        self._wanted = [_known(name) for name in named_alone or ()]
        self._series: dict[str, list[Series]] = {}
        (base,) = self._read([_ANY], [HOST])[_ANY]
        self.time: Column = np.array(base.times, dtype=np.float64)
        self.step = base.step
        """Seconds in each stretch; 0 where each sample is by itself."""
        if base.step:
            self._grid = Grid(floor(base.times[0] / base.step), base.step, len(base.times))
        else:
            self._path = ""  # whatever it will have, these are the rows
        self._load(self._wanted)

    @classmethod
    def ask(
        cls, frames: Sequence[Frame], path: str, now: float, *, length: str | float | None = None,
        begin: Moment | None = None, end: Moment | None = None, metrics: Sequence[str] | None = None,
        devices: Wanted | Iterable[Wanted] | None = None, points: int = ROWS,
    ) -> Window:  # fmt: skip
        """Return a window of `frames` and of the history at `path`, as `Live.window` describes. Raises UsageError."""
        if points < 1:
            raise UsageError(f"points must be at least 1, not {points}")
        span = span_of(length, begin, end, now)
        inside = [place for place, frame in enumerate(frames) if span.begin < frame.time <= span.end]
        fed = frames[max(0, inside[0] - 1) : inside[-1] + 1] if inside else ()
        there = devices_of(fed)
        known = {**there, **devices_of(frames[-1:])}
        wanted = chosen(devices, known, lambda: kept_devices(path, frames)) or [
            *there, *([] if fed and fed[0].time <= span.begin else subjects_of(path, span))
        ]  # fmt: skip
        own = [frames[place] for place in inside]
        if frames and length is not None and begin is None and end is None and now == frames[-1].time:
            # As long as it says also where the time of day has been set meanwhile.
            since = frames[-1].monotonic_ns - round((span.end - span.begin) * SECOND)
            own = [frame for frame in frames if frame.monotonic_ns > since]
        return cls(
            span, own, named(wanted, known, lambda: devices_in(path)), fed=fed, path=path, metrics=metrics,
            points=points,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.time)

    def __getitem__(self, metric: str) -> Column:
        """The mean of one metric by its name. Raises UsageError for an unknown one."""
        return self._column(metric, [series.mean for series in self._of(metric)])

    def low(self, metric: str) -> Column:
        """Return the lowest value in each stretch."""
        return self._column(metric, [series.low for series in self._of(metric)])

    def high(self, metric: str) -> Column:
        """Return the highest value in each stretch."""
        return self._column(metric, [series.high for series in self._of(metric)])

    def seen(self, metric: str) -> Column:
        """Return the share of each stretch that is known, from 0 to 1; of a sample, 1 where it has a value."""
        return self._column(metric, [_share(series) for series in self._of(metric)])

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that were asked for, else those that have any value."""
        if self._wanted:
            return tuple(self._wanted)
        self._load([metric.name for metric in METRICS])
        known = (name for name in self._series if any(map(_has_any, self._series[name])))
        return tuple(sorted(known, key=list(BY_NAME).index))

    def epochs(self) -> list[dict[str, Any]]:
        """Exact epoch boundaries that became known in this window: run, epoch, mark, time (s since 1970)."""
        seen = {(boundary.run, boundary.number): boundary for frame in self.frames for boundary in frame.boundaries}
        return [
            {"run": b.run, "epoch": b.epoch, "mark": b.mark.name.lower(), "phase": b.phase, "time": b.time_ns / 1e9}
            for b in sorted(seen.values(), key=lambda boundary: boundary.time_ns)
        ]

    def to_pandas(self, value: str = "mean") -> Any:
        """Return a pandas DataFrame: rows by time (UTC), columns by metric and UUID of the device, of the host "".

        `value` is `mean`, `low`, `high` or `seen`. Raises MissingPackage without pandas, UsageError for another value.
        """

        return to_pandas(self, value)

    def to_arrow(self) -> Any:
        """Return a pyarrow Table, a row for each time, device and metric: `window_tables.FIELDS`; null is missing.

        Raises MissingPackage without pyarrow.
        """

        return to_arrow(self)

    def uuids(self, metric: str) -> list[str]:
        """Return the devices of a metric's columns: UUIDs, or "" alone for one of the host. Raises UsageError."""
        return [HOST] if BY_NAME[_known(metric)].scope is Scope.HOST else [device.uuid for device in self.devices]

    def _column(self, metric: str, columns: Sequence[Sequence[float]]) -> Column:
        if BY_NAME[metric].scope is Scope.HOST:
            return np.array(columns[0], dtype=np.float64)
        made = np.array(columns, dtype=np.float64).reshape(len(columns), len(self.time))
        return np.ascontiguousarray(made.T)

    def _of(self, metric: str) -> list[Series]:
        self._load([_known(metric)])
        return self._series[metric]

    def _load(self, names: Sequence[str]) -> None:
        """Read metrics that were not read before."""
        for scope in Scope:
            new = [name for name in names if name not in self._series and BY_NAME[name].scope is scope]
            if new:
                self._series.update(self._read(new, self.uuids(new[0])))

    def _read(self, names: Sequence[str], subjects: Sequence[str]) -> dict[str, list[Series]]:
        """Ask the history for metrics of one scope: by name, a series for each subject."""
        history = open_history(keep=max(KEEP, len(self._fed)), metrics=names)
        history.look_in(self._path)
        for frame in self._fed:
            history.add(frame)
        begin, end = nextafter(self.span.begin, inf), self.span.end
        found: dict[str, list[Series]] = {name: [] for name in names}
        for subject in subjects:
            query = Query(subject, names, begin, end, self._points, self._grid, seen=True)
            for name, series in history.query(query).items():
                found[name].append(series)
        self.problem = self.problem or history.problem
        history.close()
        return found


def _known(name: str) -> str:
    if name not in BY_NAME:
        raise UsageError(f"no such metric: '{name}'. See gpumon.model.metrics.METRICS")
    return name


def _has_any(series: Series) -> bool:
    return any(map(is_known, series.mean))


def _share(series: Series) -> list[float]:
    """The share of each stretch that is known."""
    if not series.step:
        return [float(is_known(value)) for value in series.mean]
    return [min(seconds / series.step, 1.0) for seconds in series.seen] or [0.0] * len(series.mean)


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
