"""The time before a frame as rules take it: rates of counters now, and shares of the time of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gpumon.analysis.thresholds import JUDGED_FROM
from gpumon.common.numbers import NAN, is_known
from gpumon.diagnosis.gpu_rules import THERMAL
from gpumon.model.metrics import IDLE
from gpumon.storage.history.query import Query
from gpumon.storage.history.recent import RecentHistory

_UTILIZATION = "gpu.utilization"
_THROTTLED = ("gpu.throttled_sw_thermal", "gpu.throttled_hw_thermal", "gpu.throttled_hw_power_brake")
"""Counters whose sum is the `throttled_share` of the ledger too."""
_ALL = 1 << 20
"""Points: each sample by itself."""


class Shares(NamedTuple):
    """Shares of the time, as mean of the GPUs; NaN where it is unknown, or nobody has watched for long enough."""

    throttled: float = NAN
    """In which heat or a power brake held the clocks down."""
    idle: float = NAN
    """In which no kernel ran."""


def rates(history: RecentHistory, uuid: str, now: float) -> Mapping[str, float]:
    """Return the rates of the counters of heat at `now`, by metric."""
    return {metric.name: history.last(uuid, metric.name, now) for metric in THERMAL}


def shares(history: RecentHistory, uuids: Iterable[str], begin: float, end: float) -> Shares:
    """Return the shares of the time from `begin` to `end` (s since 1970), as far as the history goes back."""
    found = [_of_gpu(history, uuid, begin, end) for uuid in uuids]
    return Shares(_mean([one.throttled for one in found]), _mean([one.idle for one in found]))


def _of_gpu(history: RecentHistory, uuid: str, begin: float, end: float) -> Shares:
    found = history.query(Query(uuid, (_UTILIZATION, *_THROTTLED), begin, end, _ALL))
    series = found[_UTILIZATION]
    times = [time for time, value in zip(series.times, series.mean, strict=True) if is_known(value)]
    if not times or times[-1] - times[0] < JUDGED_FROM:
        return Shares()
    busy = _known(series.mean)
    counters = [values for name in _THROTTLED if (values := _known(found[name].mean))]
    throttled = sum(sum(values) / len(values) for values in counters) if counters else NAN
    return Shares(min(1.0, throttled) if counters else NAN, sum(value < IDLE for value in busy) / len(busy))


def _known(values: Iterable[float]) -> list[float]:
    return [value for value in values if is_known(value)]


def _mean(values: Sequence[float]) -> float:
    known = _known(values)
    return sum(known) / len(known) if known else NAN
