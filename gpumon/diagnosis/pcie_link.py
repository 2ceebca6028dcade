"""The PCIe link of a GPU when it was last under load: an idle link steps down, and tells nothing of a fault.

The driver tells of a link twice a minute, so that only the end of a time under load tells of that time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from math import floor
from typing import TYPE_CHECKING, NamedTuple

from gpumon.analysis.thresholds import JUDGED_OVER, LOADED, LOADED_FOR
from gpumon.common.numbers import NAN, is_known
from gpumon.diagnosis.context import LinkUnderLoad
from gpumon.model.frame import Frame
from gpumon.model.metrics import PCIE_LINK, Availability
from gpumon.storage.history.grid import longest

if TYPE_CHECKING:
    from gpumon.storage.history.recent import RecentHistory

_UTILIZATION = "gpu.utilization"
_PARTS = 8
"""Parts of the time in each of which a loaded GPU must have been loaded."""
_PART = LOADED_FOR / _PARTS
_LOOKED_AT = round(JUDGED_OVER / _PART)
"""Parts of the time before now among which a loaded time is looked for."""
_HOLD = LOADED_FOR / 2
"""Seconds for which a sample may stand for parts without one: what is sampled more rarely is not known to be loaded."""
_ALL = 1 << 20
"""Points: each sample by itself."""
_UNKNOWN = (NAN,) * (1 + len(PCIE_LINK))


class LinkSeries(NamedTuple):
    """Samples of a GPU, oldest first; a row of NaN stands where nobody sampled."""

    times: Sequence[float]
    """Seconds since 1970."""
    load: Sequence[float]
    """Utilization, as share."""
    links: Mapping[str, Sequence[float]]
    """The values of `PCIE_LINK`."""


def link_series_from_history(history: RecentHistory, uuid: str, now: float) -> LinkSeries:
    """Return what a history has of a GPU."""
    from gpumon.storage.history.query import Query  # a look at frames does without

    found = history.query(Query(uuid, (_UTILIZATION, *PCIE_LINK), now - JUDGED_OVER, now, points=_ALL))
    load = found[_UTILIZATION]
    return LinkSeries(load.times, load.mean, {metric: found[metric].mean for metric in PCIE_LINK})


def link_series_from_frames(frames: Iterable[Frame], uuid: str) -> LinkSeries:
    """Return what frames, oldest first, tell of a GPU."""
    rows: list[tuple[float, ...]] = []
    before = NAN
    for frame in frames:
        if frame.time - before > longest(frame.interval):
            rows.append(((frame.time + before) / 2, *_UNKNOWN))
        sample = next((one for one in frame.samples if one.device.uuid == uuid), None)
        answers = sample is not None and sample.state is Availability.OK
        told = [sample.value(metric) for metric in (_UTILIZATION, *PCIE_LINK)] if sample and answers else _UNKNOWN
        rows.append((frame.time, *told))
        before = frame.time
    times, load, *links = zip(*rows, strict=True) if rows else [()] * (2 + len(PCIE_LINK))
    return LinkSeries(times, load, dict(zip(PCIE_LINK, links, strict=True)))


def link_under_load(course: LinkSeries, now: float) -> LinkUnderLoad:
    """Return the PCIe link of a GPU at the end of the last time under load, if that was lately."""
    if not any(share >= LOADED for share in course.load):
        return LinkUnderLoad()
    means = _means(course, floor(now / _PART) - _LOOKED_AT + 1)
    for last in range(_LOOKED_AT - 1, _PARTS - 2, -1):
        lowest = min(mean if is_known(mean) else -1.0 for mean in means[last - _PARTS + 1 : last + 1])
        if lowest >= LOADED:
            end = (floor(now / _PART) - _LOOKED_AT + 2 + last) * _PART
            return LinkUnderLoad(lowest, {metric: _highest(course, metric, end) for metric in PCIE_LINK})
    return LinkUnderLoad()


def _means(course: LinkSeries, first: int) -> list[float]:
    """The mean load of each part of the time from the part `first` on; NaN where it is unknown."""
    parts: list[list[float]] = [[] for _ in range(_LOOKED_AT)]
    before, stood, since = NAN, NAN, 0
    for time, share in zip(course.times, course.load, strict=True):
        if not is_known(share):  # nobody knows from the sample before it on
            before = NAN
            continue
        part = int(time // _PART) - first
        if part - since > 1 and time - before <= _HOLD:
            _hold(parts, stood, range(since + 1, part))
        if 0 <= part < _LOOKED_AT:
            parts[part].append(share)
        before, stood, since = time, share, part
    if is_known(before):
        _hold(parts, stood, range(since + 1, since + round(_HOLD / _PART)))
    return [sum(shares) / len(shares) if shares else NAN for shares in parts]


def _hold(parts: Sequence[list[float]], share: float, without: Iterable[int]) -> None:
    """Let a sample stand for the parts behind its own that have none."""
    for part in without:
        if 0 <= part < _LOOKED_AT:
            parts[part].append(share)


def _highest(course: LinkSeries, metric: str, end: float) -> float:
    """The highest value of the last part of a time: of a link that got well meanwhile nothing is claimed."""
    rows = range(bisect_left(course.times, end - _HOLD - _PART), bisect_left(course.times, end))
    known = [(course.times[row], course.links[metric][row]) for row in rows if is_known(course.links[metric][row])]
    since = min(known[-1][0], end - _PART) if known else NAN
    return max((value for time, value in known if time >= since), default=NAN)
