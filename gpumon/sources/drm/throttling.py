"""Counts for how long a card was throttled, and its ECC errors, from amdgpu's table and its folder `ras`."""

from __future__ import annotations

import re

from gpumon.common.clock import SECOND
from gpumon.model.metrics import Availability
from gpumon.sources.drm.files import list_folder, read_bytes
from gpumon.sources.drm.metrics_table import MetricsTable
from gpumon.sources.drm.values import CardValues

_RESIDENCIES: dict[str, tuple[str, ...]] = {
    "gpu.throttled_sw_power": ("ppt_residency_acc",),
    "gpu.throttled_hw_thermal": ("socket_thm_residency_acc", "vr_thm_residency_acc", "hbm_thm_residency_acc"),
    "gpu.throttled_hw_power_brake": ("prochot_residency_acc",),
}
"""Fields of the table by metric. If several sensors throttle at once, the longest time counts."""
ECC = ("gpu.ecc_corrected", "gpu.ecc_uncorrected")
METRICS = frozenset((*_RESIDENCIES, *ECC))
_CYCLES = "accumulation_counter"
_LONGEST_GAP = 60 * SECOND
"""After more than this many ns without a reading, the counters of 32 bits may have wrapped."""


class ThrottleTimes:
    """Seconds of throttling since the first reading. The table counts cycles, whose length is unknown."""

    def __init__(self) -> None:
        self._at = 0
        self._before: dict[str, int] = {}
        self._seconds = dict.fromkeys(_RESIDENCIES, 0.0)

    def store(self, values: CardValues, table: MetricsTable, monotonic_ns: int) -> None:
        """Add a reading of the table, and store the seconds."""
        cycles = table.get(_CYCLES)
        for metric, fields in _RESIDENCIES.items():
            if cycles is None or any(table.get(field) is None for field in fields):
                values.set_missing(metric, table.why)
                continue
            self._seconds[metric] += max(self._share(table, field) for field in fields) * self._passed(monotonic_ns)
            values.set(metric, self._seconds[metric])
        if cycles is not None:
            self._at, self._before = monotonic_ns, dict(table.values or {})

    def _passed(self, monotonic_ns: int) -> float:
        passed = monotonic_ns - self._at
        return passed / SECOND if self._at and passed <= _LONGEST_GAP else 0.0

    def _share(self, table: MetricsTable, field: str) -> float:
        """Return the share of the time since the last reading; 0 if there is none, or if the counters disagree."""
        grown = [
            ((table.get(name) or 0) - self._before.get(name, 0)) % 2**32 if name in self._before else 0
            for name in (field, _CYCLES)
        ]
        return grown[0] / grown[1] if 0 < grown[0] <= grown[1] else 0.0


_COUNT = re.compile(rb"^(ue|ce):\s*(\d{1,18})\s*$", re.MULTILINE)
_MAX_BLOCKS = 64


def store_errors(values: CardValues, card_folder: str) -> None:
    """Read the ECC errors of all blocks of the card that count them (RAS)."""
    folder = f"{card_folder}/ras"
    totals: dict[bytes, int] = {}
    for name in [name for name in list_folder(folder) if name.endswith("_err_count")][:_MAX_BLOCKS]:
        for kind, count in _COUNT.findall(read_bytes(f"{folder}/{name}", 256)):
            totals[kind] = totals.get(kind, 0) + int(count)
    for metric, kind in zip(ECC, (b"ce", b"ue"), strict=True):
        if kind in totals:
            values.set(metric, float(totals[kind]))
        else:
            values.set_missing(metric, Availability.NOT_SUPPORTED)
