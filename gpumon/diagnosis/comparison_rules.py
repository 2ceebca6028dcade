"""Reasons for which two runs are not comparable, in sentences for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gpumon import units
from gpumon.frame import NAN
from gpumon.ledger.aggregate import EpochSummary
from gpumon.ledger.records import DeviceRow, Record
from gpumon.ledger.schema import WHOLE_RUN
from gpumon.metrics import Unit
from gpumon.missing import is_known

HEAT = 10.0
"""°C between the temperatures at which two runs began, from which on one was hot and one cold."""
OTHERS = 2.0**30
"""Bytes that other processes may hold on a GPU before they are named."""
SAMPLED = 0.95
"""Share of the time that must have been seen."""


def doubts(records: Sequence[Record], epochs: Sequence[Sequence[EpochSummary]]) -> list[str]:
    """Why these runs may not be comparable; `epochs` are those of each that count."""
    names = letters(len(records))
    found = [
        *_differ("different GPUs", names, [_models(record.devices) for record in records]),
        *_differ("different numbers of GPUs", names, [str(len(record.devices)) for record in records]),
        *_differ("different power limits", names, [_limits(record.devices) for record in records]),
        *_differ("different drivers", names, [record.run.driver for record in records]),
        *_differ("different numbers of planned epochs", names, [str(record.run.epochs or "") for record in records]),
        *_differ("different numbers of steps per epoch", names, [_steps(counted) for counted in epochs]),
        *_differ("not all measured on real GPUs", names, [record.run.label or "live" for record in records]),
        *_differ("peak tensor memory from different sources", names, [_peaks(counted) for counted in epochs]),
        *_heat(names, records),
    ]
    for name, record, counted in zip(names, records, epochs, strict=True):
        found += _alone(name, record, counted)
    return found


def letters(count: int) -> list[str]:
    """Return the letters of runs in a comparison: A, B, C …"""
    return [chr(ord("A") + i) if i < 26 else f"Z{i - 25}" for i in range(count)]


def _differ(what: str, names: Sequence[str], values: Sequence[str]) -> Iterator[str]:
    """A sentence when two that are known differ."""
    if len({value for value in values if value}) > 1:
        yield f"{what}: " + ", ".join(f"{name} {value or '?'}" for name, value in zip(names, values, strict=True))


def _models(devices: Sequence[DeviceRow]) -> str:
    return " and ".join(sorted({device.name for device in devices if device.name}))


def _limits(devices: Sequence[DeviceRow]) -> str:
    return " and ".join(
        units.number(limit, Unit.WATTS)
        for limit in sorted({device.power_limit for device in devices if is_known(device.power_limit)})
    )


def _steps(epochs: Sequence[EpochSummary]) -> str:
    """Of most epochs."""
    counts = [epoch.steps for epoch in epochs if epoch.steps]
    return str(max(set(counts), key=lambda steps: (counts.count(steps), steps))) if counts else ""


def _peaks(epochs: Sequence[EpochSummary]) -> str:
    """Where the most in live tensors is from; empty where nobody tells."""
    if any(is_known(epoch.live_peak.value) for epoch in epochs):
        return "the framework's own"
    read = any(is_known(epoch.value("run_allocated_peak")) for epoch in epochs)
    return "read between steps, where activations are freed" if read else ""


def _heat(names: Sequence[str], records: Sequence[Record]) -> Iterator[str]:
    starts = [_first(record, lambda values: values.value("temperature_start")) for record in records]
    known = [start for start in starts if is_known(start)]
    if known and max(known) - min(known) > HEAT:
        each = ", ".join(
            f"{name} at {units.number(start, Unit.CELSIUS)}" for name, start in zip(names, starts, strict=True)
        )
        yield f"GPU start temperatures differ by more than {units.number(HEAT, Unit.CELSIUS)}: {each}"


def _first(record: Record, value: Callable[..., float]) -> float:
    """Of the whole run, else of its first epoch; the hottest device's."""
    rows = [row for row in record.whole_epochs if row.ordinal == WHOLE_RUN] or [
        row for row in record.whole_epochs if row.ordinal == 0
    ]
    return max((one for row in rows if is_known(one := value(row))), default=NAN)


def _alone(name: str, record: Record, epochs: Sequence[EpochSummary]) -> Iterator[str]:
    others = max(
        (
            more
            for row in record.whole_epochs
            if is_known(more := row.value("memory_used_peak") - row.value("run_used_peak"))
        ),
        default=0.0,
    )
    if others > OTHERS:
        yield f"other processes held up to {units.number(others, Unit.BYTES)} on a GPU of {name}"
    missed = [epoch for epoch in epochs if epoch.sampled_share < SAMPLED]
    if missed:
        yield f"{name}: {len(missed)} of {len(epochs)} epochs are incompletely sampled"
    if not epochs:
        yield f"{name}: no epoch has ended"
