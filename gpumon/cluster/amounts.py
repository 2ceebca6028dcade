"""Power, energy and time of a whole cluster as text."""

from __future__ import annotations

from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.metrics import Unit

_KILO, _MEGA = 1e3, 1e6
_KWH = 3.6e6
_LITTLE = 0.1
"""kWh below which two digits behind the point say too little."""


def watts(value: float) -> str:
    """Power: `4.62 MW`, `168 kW`, `650 W`."""
    return _scaled(value, "W") if is_known(value) else units.MISSING


def watts_of(value: float, limit: float) -> str:
    """Power beside its limit, in one unit: `168 / 224 kW`."""
    if not is_known(value) or not is_known(limit):
        return watts(value)
    scale, unit = (_MEGA, "MW") if limit >= _MEGA else (_KILO, "kW") if limit >= _KILO else (1.0, "W")
    digits = 2 if scale == _MEGA else 0
    return f"{value / scale:,.{digits}f} / {limit / scale:,.{digits}f} {unit}"


def energy(joules: float) -> str:
    """Energy: `3.9 MWh`, `121 kWh`; less as elsewhere."""
    if not is_known(joules):
        return units.MISSING
    kwh = joules / _KWH
    if kwh >= 1000:
        return f"{kwh / 1000:,.1f} MWh"
    return f"{kwh:,.0f} kWh" if kwh >= 100 else units.number(joules, Unit.JOULES)


def kwh(joules: float) -> str:
    """Energy as a column has it, in one unit but for what is little: `3,900 kWh`, `0.67 kWh`, `4.2 Wh`."""
    if not is_known(joules):
        return units.MISSING
    value = joules / _KWH
    if 0 < value < _LITTLE:
        return f"{1000 * value:.{1 if value >= 0.001 else 2}f} Wh"
    return f"{value:,.{0 if value >= 100 or value == 0 else 1 if value >= 10 else 2}f} kWh"


def hours(seconds: float) -> str:
    """GPU-hours: `118,400 h`, `14.2 h`."""
    if is_known(seconds) and seconds >= 100 * 3600:
        return f"{seconds / 3600:,.0f} h"
    return units.hours(seconds)


def _scaled(value: float, unit: str) -> str:
    if abs(value) >= _MEGA:
        return f"{value / _MEGA:,.2f} M{unit}"
    return f"{value / _KILO:,.0f} k{unit}" if abs(value) >= 10 * _KILO else f"{value:,.0f} {unit}"
