"""The parts of a device's memory, one on the other."""

from __future__ import annotations

from typing import Any

from gpumon.analysis.memory import BREAKDOWN_METRICS, PARTS, MemoryBreakdown, memory_breakdown, titles
from gpumon.common.numbers import NAN
from gpumon.figures.axes import longest, numbers_of, placed, whole_stretches
from gpumon.figures.run_series import RunSeries
from gpumon.figures.scales import scale_of
from gpumon.model.metrics import Unit
from gpumon.storage.ledger.records import DeviceRow

COLORS = ("@u0/0.85", "@u0/0.4", "@u4/0.6", "@u1/0.65", "@u7/0.1", "@u7/0.35")
"""Of the parts of the device's memory, in the order of `memory.PARTS`."""
_UNDIVIDED = MemoryBreakdown(allocated=NAN, cached=NAN, context=NAN, others=NAN, free=NAN, driver=NAN)
_SCALE = scale_of(Unit.BYTES, rate=False)


def memory_parts(series: RunSeries, device: DeviceRow | None) -> list[dict[str, Any]]:
    """Return the parts of the device's memory, a stack for each stretch between gaps: a stack has no gaps itself."""
    total = device.memory_total if device else NAN
    given = {**{name: [NAN] * series.points for name in BREAKDOWN_METRICS}, "gpu.memory_total": [total] * series.points}
    given |= {name: list(found.mean) for name, found in series.columns.items() if name in given}
    divided = [
        memory_breakdown(*amounts) or _UNDIVIDED
        for amounts in zip(*(given[name] for name in BREAKDOWN_METRICS), strict=True)
    ]
    names = titles(divided)
    stretches = longest(whole_stretches(numbers_of(given["gpu.memory_used"], 1, None)))
    lines: list[dict[str, Any]] = []
    for part, color, values in zip(PARTS, COLORS, zip(*divided, strict=True) if divided else (), strict=bool(divided)):
        cells = numbers_of(values, _SCALE.factor, 2)
        name = names[part.name]
        drawn = [(begin, end) for begin, end in stretches if any(cells[begin:end])]
        lines += [
            {
                "mode": "lines", "line": {"width": 0, "color": color}, "fillcolor": color, "y": cells[begin:end],
                "stackgroup": f"memory{begin}", "stackgaps": "infer zero", "name": name, "legendgroup": name,
                "showlegend": place == 0, "hovertemplate": f"%{{y}}{_SCALE.suffix}", **placed(series, begin),
            }
            for place, (begin, end) in enumerate(drawn)
        ]  # fmt: skip
    return lines
