"""Rows of a slot, of either kind, as samples of devices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from gpumon.common.numbers import NAN
from gpumon.model.device import by_number
from gpumon.model.frame import Sample
from gpumon.model.metrics import GPU_METRICS, HOST_METRICS, Availability
from gpumon.ring.directory import Known

_STATES = frozenset(Availability)
_GPU_NAMES = tuple(metric.name for metric in GPU_METRICS)
_HOST_NAMES = tuple(metric.name for metric in HOST_METRICS)


def read_samples(
    rows: Sequence[tuple[int, ...]], grid: Sequence[float], names: tuple[str, ...], known: Known
) -> tuple[Sample, ...]:
    """The samples of devices that a frame has, by index.

    `rows` are those of `layout.ROWS`; `grid` the values of each of the metrics `names`, row
    by row.
    """
    order = _order(names, _GPU_NAMES)
    count, found = len(rows), []
    for row, device in known.devices.items():
        if not 0 <= row < count:
            continue
        state, tenths, run_id, age, *stamps = rows[row]
        if state == Availability.ABSENT:
            continue
        values = grid[row::count] if order is None else _reorder(grid[row::count], order)
        run = known.runs.get(run_id)
        known_state = Availability(state) if state in _STATES else Availability.FAILED
        sample = Sample(device, known_state, values, run.key if run else "", age / 1000, *stamps)
        found.append(sample._replace(unanswered=(tenths - 1) / 10) if tenths else sample)
    found.sort(key=lambda sample: by_number(sample.device))
    return tuple(found)


def read_host(values: tuple[float, ...], names: tuple[str, ...]) -> tuple[float, ...]:
    """The values of the host's metrics, stored in the order of `names`."""
    order = _order(names, _HOST_NAMES)
    return values if order is None else _reorder(values, order)


@lru_cache(maxsize=8)
def _order(stored: tuple[str, ...], wanted: tuple[str, ...]) -> tuple[int, ...] | None:
    """Where each metric of this version is in a slot of another order; None when nothing moved."""
    if stored == wanted:
        return None
    place = {name: i for i, name in enumerate(stored)}
    return tuple(place.get(name, -1) for name in wanted)


def _reorder(values: Sequence[float], order: tuple[int, ...]) -> tuple[float, ...]:
    return tuple([values[i] if i >= 0 else NAN for i in order])
