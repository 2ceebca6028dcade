"""Values as axes show them: one unit for a whole panel, so that its ticks are round numbers."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.model.metrics import Unit


class Scale(NamedTuple):
    """Conversion from base units to those of an axis."""

    factor: float
    suffix: str
    """Behind each number on the axis, with its space."""
    digits: int
    """Behind the point, where the pointer is."""


_SCALES = {
    Unit.RATIO: Scale(100.0, " %", 0),
    Unit.BYTES: Scale(2.0**-30, " GiB", 1),
    Unit.WATTS: Scale(1.0, " W", 0),
    Unit.CELSIUS: Scale(1.0, " °C", 0),
    Unit.HERTZ: Scale(1e-6, " MHz", 0),
    Unit.BYTES_PER_SECOND: Scale(2.0**-30, " GiB/s", 2),
}
_PER_SECOND = {
    Unit.BYTES: _SCALES[Unit.BYTES_PER_SECOND],
    Unit.JOULES: _SCALES[Unit.WATTS],
    Unit.SECONDS: _SCALES[Unit.RATIO],
}
_BARE = Scale(1.0, "", 2)


def scale_of(unit: Unit, *, rate: bool) -> Scale:
    """The scale of an axis of `unit`, or of `unit` each second."""
    return (_PER_SECOND if rate else _SCALES).get(unit, _BARE)
