"""Reads one AMD card from the files of the amdgpu driver.

Sources: Documentation/gpu/amdgpu/thermal.rst and driver-misc.rst. Which of two files exists, and whether it returns a
number, differs between cards. `pcie_bw` is never read, because it measures for a second.
"""

from __future__ import annotations

import re

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model.metrics import Availability
from gpumon.sources.drm import pci
from gpumon.sources.drm.cards import AMDGPU, Card
from gpumon.sources.drm.files import KernelFile, list_folder, read_bytes
from gpumon.sources.drm.hwmon import Sensors
from gpumon.sources.drm.intel import ClientUse
from gpumon.sources.drm.metrics_table import JOULES, LONGEST, MetricsTable, parse_table, throttle_causes
from gpumon.sources.drm.pci import PciLink
from gpumon.sources.drm.values import MOST_MEMORY, CardValues, EnergyMeter

_RESIDENCIES: dict[str, tuple[str, ...]] = {
    "gpu.throttled_sw_power": ("ppt_residency_acc",),
    "gpu.throttled_hw_thermal": ("socket_thm_residency_acc", "vr_thm_residency_acc", "hbm_thm_residency_acc"),
    "gpu.throttled_hw_power_brake": ("prochot_residency_acc",),
}
"""Fields of the table by metric. If several sensors throttle at once, the longest time counts."""
_ECC = ("gpu.ecc_corrected", "gpu.ecc_uncorrected")
_CYCLES = "accumulation_counter"
_LONGEST_GAP = 60 * SECOND
"""After more than this many ns without a reading, the counters of 32 bits may have wrapped."""
METRICS = frozenset(
    (
        "gpu.utilization", "gpu.memory_utilization", "gpu.memory_used", "gpu.memory_total", "gpu.power",
        "gpu.power_instant", "gpu.power_limit", "gpu.energy", "gpu.temperature", "gpu.temperature_memory",
        "gpu.temperature_slowdown", "gpu.temperature_shutdown", "gpu.temperature_margin", "gpu.clock_sm",
        "gpu.clock_memory", "gpu.fan", "gpu.pcie_replays", "gpu.event_reasons", *pci.METRICS, *_RESIDENCIES, *_ECC,
    )
)  # fmt: skip
_PERCENT, _MICRO, _MILLI = 1e-2, 1e-6, 1e-3
_SLOW_EVERY = 10 * SECOND
"""ns between two reads of values that hardly change."""
_ERRORS_EVERY = 30 * SECOND
"""ns between two reads of the ECC errors, for which the driver asks each block of the card."""
_SECOND_DIES = frozenset(("7408", "740c"))
"""Device ids of MI250X and MI250. Each die is a device, but only the first one reports the power, of both dies."""
_COLD = 20.0
"""A card that is this many degrees below its limit is not throttled by heat, whatever the table says. RDNA3 cards set
the bit of the hot spot even when they are idle."""


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


class AmdCard:
    """Reads one card. All files that change are kept open."""

    def __init__(self, card: Card, *, is_integrated: bool = False) -> None:
        self._card = card
        self.uses_host_memory = is_integrated
        """Whether the GPU is part of a processor, so that the memory of programs is the host's."""
        self.partition_shares: tuple[float, ...] = ()
        """Utilization of each partition at the last read, if the table has it."""
        self.clients = ClientUse()
        """Not used, because the driver reports the use of the whole card."""
        self._sensors: Sensors | None = None
        """None until the card was awake for the first time."""
        folder = card.folder
        names = ("gpu_busy_percent", "mem_busy_percent", "gpu_metrics", "pcie_replay_count")
        memory = ("mem_info_vram_used", "mem_info_vram_total", "mem_info_gtt_used", "mem_info_gtt_total")
        self._files = {name: KernelFile(f"{folder}/{name}") for name in (*names, *memory)}
        self._link = PciLink(folder)
        self._energy = EnergyMeter()
        self._throttled = ThrottleTimes()
        self._slow_at = self._errors_at = 0

    def read(self, values: CardValues, monotonic_ns: int) -> None:
        """Read all values of a card that is awake. Missing values get their reason."""
        if self._sensors is None or not self._sensors.folder:
            self._sensors = Sensors(self._card.folder, AMDGPU)
        sensors, files = self._sensors, self._files
        data = files["gpu_metrics"].read(LONGEST)
        table = parse_table(data) if data else MetricsTable(why=files["gpu_metrics"].why)
        self.partition_shares = table.partition_shares
        if table.values is not None:
            self.uses_host_memory = table.is_apu
        is_slow_due = monotonic_ns >= self._slow_at
        self._read_activity(values, table)
        self._read_memory(values)
        self._read_power(values, sensors, table, monotonic_ns, read_limit=is_slow_due)
        self._read_temperatures(values, sensors, table, read_limits=is_slow_due)
        self._read_clocks(values, sensors, table)
        _read_fan(values, sensors)
        self._link.read(values, monotonic_ns)
        values.read("gpu.pcie_replays", self._files["pcie_replay_count"], 1.0)
        _store_throttling(values, table)
        self._throttled.store(values, table, monotonic_ns)
        if is_slow_due:
            self._slow_at = monotonic_ns + _SLOW_EVERY
        if monotonic_ns >= self._errors_at:
            self._errors_at = monotonic_ns + _ERRORS_EVERY
            _store_errors(values, self._card.folder)

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._link.close()
        if self._sensors is not None:
            self._sensors.close()

    def sleep(self) -> None:
        """Close all files, because the card is powered down. Slow values are read again when it wakes."""
        self.close()
        self._slow_at = self._errors_at = 0

    def _read_activity(self, values: CardValues, table: MetricsTable) -> None:
        for metric, name, field in (
            ("gpu.utilization", "gpu_busy_percent", "gfx_activity"),
            ("gpu.memory_utilization", "mem_busy_percent", "umc_activity"),
        ):
            file = self._files[name]
            percent = file.number()
            if not is_known(percent):
                percent = _number(table, field)
            values.set(metric, percent * _PERCENT, file.why, highest=1.0)

    def _read_memory(self, values: CardValues) -> None:
        """Read the memory. On an APU, the memory of programs is the host's (GTT). VRAM is only a small part of it."""
        for metric, kind in (("gpu.memory_used", "used"), ("gpu.memory_total", "total")):
            vram = self._files[f"mem_info_vram_{kind}"]
            amount, why = vram.number(), vram.why
            if self.uses_host_memory:
                shared = self._files[f"mem_info_gtt_{kind}"]
                amount += shared.number()
                why = why if why is not Availability.OK else shared.why
            values.set(metric, amount, why, lowest=1.0 if kind == "total" else 0.0, highest=MOST_MEMORY)

    def _read_power(
        self, values: CardValues, sensors: Sensors, table: MetricsTable, monotonic_ns: int, *, read_limit: bool
    ) -> None:
        """Read power and energy. Cards have the mean, the momentary power or both."""
        mean, instant = sensors.file("power1_average"), sensors.file("power1_input")
        # No card that answers draws 0 W, so a 0 means that the value is not available.
        power = values.read("gpu.power", mean, _MICRO, lowest=_MICRO)
        now = values.read("gpu.power_instant", instant, _MICRO, lowest=_MICRO)
        if not is_known(power) and is_known(now):
            values.set("gpu.power", now)
        elif not is_known(power):
            values.set("gpu.power", _number(table, "socket_power"), values.missing["gpu.power"], lowest=_MICRO)
        if self._card.device_id in _SECOND_DIES and "gpu.power" not in values.values:
            for metric in ("gpu.power", "gpu.power_instant"):
                values.set_missing(metric, Availability.OF_OTHER_DIE)
        if read_limit:
            values.read("gpu.power_limit", sensors.file("power1_cap"), _MICRO, lowest=_MICRO)
        count = table.get("energy_accumulator") or 0  # 0 on the second die, and where the firmware has no counter
        self._energy.store(values, monotonic_ns, count * JOULES if count else NAN, table.why)

    def _read_temperatures(
        self, values: CardValues, sensors: Sensors, table: MetricsTable, *, read_limits: bool
    ) -> None:
        """Read temperatures by label. MI300 has no edge sensor, and APUs have only edge."""
        label = "edge" if ("temp", "edge") in sensors.labels else "junction"
        core = sensors.labeled("temp", label, "input")
        values.read("gpu.temperature", core, _MILLI, lowest=1.0)
        number = _number(table, "temperature_edge")
        _fall_back(values, "gpu.temperature", number if is_known(number) else _number(table, "temperature_hotspot"))
        values.read("gpu.temperature_memory", sensors.labeled("temp", "mem", "input"), _MILLI, lowest=1.0)
        _fall_back(values, "gpu.temperature_memory", _number(table, "temperature_mem"))
        if read_limits:
            for metric, suffix in (("gpu.temperature_slowdown", "crit"), ("gpu.temperature_shutdown", "emergency")):
                values.read(metric, sensors.labeled("temp", label, suffix), _MILLI, lowest=1.0)
        limit, now = (values.values.get(name, NAN) for name in ("gpu.temperature_slowdown", "gpu.temperature"))
        values.set("gpu.temperature_margin", limit - now, Availability.NOT_SUPPORTED, lowest=-200.0)

    def _read_clocks(self, values: CardValues, sensors: Sensors, table: MetricsTable) -> None:
        for metric, label, field in (
            ("gpu.clock_sm", "sclk", "current_gfxclk"), ("gpu.clock_memory", "mclk", "current_uclk"),
        ):  # fmt: skip
            values.read(metric, sensors.labeled("freq", label, "input"), 1.0)
            _fall_back(values, metric, _number(table, field) * 1e6, lowest=0.0)


def _number(table: MetricsTable, field: str) -> float:
    number = table.get(field)
    return NAN if number is None else float(number)


def _fall_back(values: CardValues, metric: str, number: float, lowest: float = 1.0) -> None:
    """Store the number in the table for a metric that the sensors of the card lack."""
    if metric not in values.values:
        values.set(metric, number, values.missing[metric], lowest=lowest)


def _read_fan(values: CardValues, sensors: Sensors) -> None:
    """Read the requested speed of the fan, or else its measured speed. Accelerators have no fan."""
    for name, maximum in (("pwm1", "pwm1_max"), ("fan1_input", "fan1_max")):
        file, top = sensors.file(name), sensors.file(maximum)
        highest = top.number() if top is not None else 255.0 if name == "pwm1" else NAN
        if file is not None and highest > 0:
            values.read("gpu.fan", file, 1 / highest)
            if "gpu.fan" in values.values:
                return
    if "gpu.fan" not in values.missing:
        values.set_missing("gpu.fan", Availability.NOT_SUPPORTED)


def _store_throttling(values: CardValues, table: MetricsTable) -> None:
    status = table.get("indep_throttle_status")
    if status is None:
        values.set_missing("gpu.event_reasons", table.why)
        return
    is_cold = values.values.get("gpu.temperature_margin", 0.0) > _COLD
    values.set("gpu.event_reasons", float(throttle_causes(status, without_heat=is_cold)))


_COUNT = re.compile(rb"^(ue|ce):\s*(\d{1,18})\s*$", re.MULTILINE)
_MAX_BLOCKS = 64


def _store_errors(values: CardValues, card_folder: str) -> None:
    """Read the ECC errors of all blocks of the card that count them (RAS)."""
    folder = f"{card_folder}/ras"
    totals: dict[bytes, int] = {}
    for name in [name for name in list_folder(folder) if name.endswith("_err_count")][:_MAX_BLOCKS]:
        for kind, count in _COUNT.findall(read_bytes(f"{folder}/{name}", 256)):
            totals[kind] = totals.get(kind, 0) + int(count)
    for metric, kind in zip(_ECC, (b"ce", b"ue"), strict=True):
        if kind in totals:
            values.set(metric, float(totals[kind]))
        else:
            values.set_missing(metric, Availability.NOT_SUPPORTED)
