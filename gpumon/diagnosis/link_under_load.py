"""Determines the state of a GPU's PCIe link when the GPU was last under load.

The current state of the link is not sufficient, because the driver slows down the link of an idle GPU. The link is read
only twice a minute. So the period under load must be long, and only the reading at its end is used.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor
from typing import TYPE_CHECKING

from gpumon.analysis.thresholds import JUDGED_OVER, LOADED, LOADED_FOR
from gpumon.common.numbers import NAN, is_known
from gpumon.diagnosis.context import LinkUnderLoad
from gpumon.model.frame import Frame
from gpumon.model.metrics import PCIE_LINK, Availability
from gpumon.storage.history.buckets import max_interval

if TYPE_CHECKING:
    from gpumon.storage.history.recent import RecentHistory

_UTILIZATION = "gpu.utilization"
_SLOTS_PER_LOAD = 8
"""A period under load is divided into this many slots. The GPU must be under load in each slot."""
_SLOT = LOADED_FOR / _SLOTS_PER_LOAD
"""Length of a slot in seconds."""
_SLOTS = round(JUDGED_OVER / _SLOT)
"""Number of newest slots that are searched for a period under load."""
_HOLD = LOADED_FOR / 2
"""The value of a sample is used for later slots without a sample, for at most this many seconds."""
_ALL_POINTS = 1 << 20
"""A number of points so large that a query returns every sample as a separate point."""
_UNKNOWN = (NAN,) * (1 + len(PCIE_LINK))


@dataclass(frozen=True, slots=True)
class LinkSeries:
    """Samples of a GPU, oldest first. A row of NaN stands for a gap."""

    times: Sequence[float]
    """Times of the samples, in seconds since 1970."""
    load: Sequence[float]
    """Utilization of the GPU, 0 to 1."""
    links: Mapping[str, Sequence[float]]
    """Values of the PCIe link, by metric of `PCIE_LINK`."""


def link_series_from_history(history: RecentHistory, uuid: str, now: float) -> LinkSeries:
    """Return the samples of a GPU in the last `JUDGED_OVER` seconds of a history. `now`: current time, s since 1970."""
    from gpumon.storage.history.query import Query  # only needed here, not for frames

    result = history.query(Query(uuid, (_UTILIZATION, *PCIE_LINK), now - JUDGED_OVER, now, points=_ALL_POINTS))
    load = result[_UTILIZATION]
    return LinkSeries(load.times, load.mean, {metric: result[metric].mean for metric in PCIE_LINK})


def link_series_from_frames(frames: Iterable[Frame], uuid: str) -> LinkSeries:
    """Return the samples of a GPU in frames. The frames must be sorted, oldest first."""
    rows: list[tuple[float, ...]] = []
    previous = NAN
    for frame in frames:
        if frame.time - previous > max_interval(frame.interval):
            rows.append(((frame.time + previous) / 2, *_UNKNOWN))
        sample = next((sample for sample in frame.samples if sample.device.uuid == uuid), None)
        answers = sample is not None and sample.state is Availability.OK
        values = [sample.value(metric) for metric in (_UTILIZATION, *PCIE_LINK)] if sample and answers else _UNKNOWN
        rows.append((frame.time, *values))
        previous = frame.time
    times, load, *links = zip(*rows, strict=True) if rows else [()] * (2 + len(PCIE_LINK))
    return LinkSeries(times, load, dict(zip(PCIE_LINK, links, strict=True)))


def link_under_load(series: LinkSeries, now: float) -> LinkUnderLoad:
    """Return the state of the link at the end of the last period under load.

    The result is empty if there was no such period in the last `JUDGED_OVER` seconds. `now`: current time, s since
    1970.
    """
    if not any(share >= LOADED for share in series.load):
        return LinkUnderLoad()
    means = _slot_means(series, floor(now / _SLOT) - _SLOTS + 1)
    for last in range(_SLOTS - 1, _SLOTS_PER_LOAD - 2, -1):
        lowest = min(mean if is_known(mean) else -1.0 for mean in means[last - _SLOTS_PER_LOAD + 1 : last + 1])
        if lowest >= LOADED:
            end = (floor(now / _SLOT) - _SLOTS + 2 + last) * _SLOT
            return LinkUnderLoad(lowest, {metric: _highest_at_end(series, metric, end) for metric in PCIE_LINK})
    return LinkUnderLoad()


def _slot_means(series: LinkSeries, first_slot: int) -> list[float]:
    """Return the mean utilization of each slot from slot number `first_slot` on; NaN for a slot without samples."""
    slots: list[list[float]] = [[] for _ in range(_SLOTS)]
    last_time, last_share, last_slot = NAN, NAN, 0
    for time, share in zip(series.times, series.load, strict=True):
        if not is_known(share):  # a gap: the sample before it is not used for later slots
            last_time = NAN
            continue
        slot = int(time // _SLOT) - first_slot
        if slot - last_slot > 1 and time - last_time <= _HOLD:
            _fill(slots, last_share, range(last_slot + 1, slot))
        if 0 <= slot < _SLOTS:
            slots[slot].append(share)
        last_time, last_share, last_slot = time, share, slot
    if is_known(last_time):
        _fill(slots, last_share, range(last_slot + 1, last_slot + round(_HOLD / _SLOT)))
    return [sum(shares) / len(shares) if shares else NAN for shares in slots]


def _fill(slots: Sequence[list[float]], share: float, empty: Iterable[int]) -> None:
    """Add the utilization `share` of an earlier sample to the slots in `empty`, which have no sample."""
    for slot in empty:
        if 0 <= slot < _SLOTS:
            slots[slot].append(share)


def _highest_at_end(series: LinkSeries, metric: str, end: float) -> float:
    """Return the highest value of a metric in the last slot before `end` (s since 1970).

    The highest value is used so that a link that has recovered in this slot is not reported.
    """
    rows = range(bisect_left(series.times, end - _HOLD - _SLOT), bisect_left(series.times, end))
    known = [(series.times[row], series.links[metric][row]) for row in rows if is_known(series.links[metric][row])]
    since = min(known[-1][0], end - _SLOT) if known else NAN
    return max((value for time, value in known if time >= since), default=NAN)
