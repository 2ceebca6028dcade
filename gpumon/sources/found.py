"""The devices that sources have found, in words for a log."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.model.frame import Sample
from gpumon.model.origin import Driver, Origin
from gpumon.model.units import counted


def found(origin: Origin, driver: Driver, samples: Sequence[Sample]) -> str:
    """One line, such as `nvml: 8 GPUs, driver 580.65.06`, or why there is none; of several sources, each in turn."""
    if origin.parts:
        return "; ".join(
            found(part.origin, part.driver, [one for one in samples if one.device.source == part.origin.source])
            for part in origin.parts
        )
    number = sum(not sample.device.is_instance for sample in samples)
    parts = [counted(number, "GPU") if number else "no GPU"]
    parts += [f"driver {driver.version}"] if driver.version else []
    parts += [origin.label] if origin.label else []
    return ": ".join(text for text in (origin.source, ", ".join(parts), origin.problem) if text)
