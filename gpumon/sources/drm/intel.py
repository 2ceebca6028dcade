"""Reads one Intel GPU from the files of the drivers i915 and xe.

Sources: Documentation/ABI/testing/sysfs-driver-intel-i915-hwmon and sysfs-driver-intel-xe-hwmon, and the files `gt*` of
both drivers. i915 has no file with the utilization of the GPU. It is then the sum over all clients, which is complete
only if the files of all processes can be read.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model.metrics import Availability
from gpumon.sources.drm import pci
from gpumon.sources.drm.cards import XE, Card
from gpumon.sources.drm.files import KernelFile, list_folder
from gpumon.sources.drm.hwmon import Sensors
from gpumon.sources.drm.pci import PciLink, memory_window
from gpumon.sources.drm.values import MOST_MEMORY, CardValues, EnergyMeter

METRICS = frozenset(
    (
        "gpu.utilization", "gpu.memory_used", "gpu.memory_total", "gpu.power", "gpu.power_limit", "gpu.energy",
        "gpu.temperature", "gpu.temperature_memory", "gpu.clock_sm", *pci.METRICS,
    )
)  # fmt: skip
_MICRO, _MILLI, _MEGA = 1e-6, 1e-3, 1e6
_SLOW_EVERY = 10 * SECOND
_MIN_WINDOW = SECOND // 5
"""Power is the difference of two energies that are at least this many ns apart."""
_MAX_SENSORS = 21
"""Number of temperature sensors that xe has at most."""


@dataclass(frozen=True, slots=True)
class ClientUse:
    """What all clients of a card use together."""

    utilization: float = NAN
    """Share of time in which the busiest engine worked."""
    memory: float = NAN
    """Device memory in bytes."""
    why: Availability = Availability.TOO_EARLY
    """Reason why a value is missing."""


class IntelCard:
    """Reads one GPU."""

    def __init__(self, card: Card, *, is_integrated: bool) -> None:
        self._card = card
        self.uses_host_memory = is_integrated
        self.partition_shares: tuple[float, ...] = ()
        """Empty, because no Intel GPU is divided."""
        self.clients = ClientUse()
        """Replaced by the source's thread whenever it has read the clients."""
        self._link = PciLink(card.folder)
        self._sensors: Sensors | None = None
        self._clocks = [KernelFile(path) for path in _clock_paths(card)]
        self._idle = [IdleTime(path) for path in _idle_paths(card)]
        self._energy = EnergyMeter()
        self._energy_before = (0, NAN)
        self._power = NAN
        self._slow_at = 0

    def read(self, values: CardValues, monotonic_ns: int) -> None:
        """Read all values of a GPU that is awake. Missing values get their reason."""
        if self._sensors is None or not self._sensors.folder:
            self._sensors = Sensors(self._card.folder, self._card.driver)
        sensors = self._sensors
        self._read_activity(values, monotonic_ns)
        self._read_memory(values)
        self._read_power(values, sensors, monotonic_ns)
        _read_temperatures(values, sensors)
        self._read_clock(values)
        if not self.uses_host_memory:  # the link of a GPU in a processor is not real
            self._link.read(values, monotonic_ns)
        if monotonic_ns >= self._slow_at:
            self._slow_at = monotonic_ns + _SLOW_EVERY
            values.read("gpu.power_limit", sensors.first("power1_max", "power1_cap"), _MICRO, lowest=_MICRO)

    def sleep(self) -> None:
        """Close all files, because the GPU is powered down."""
        self.close()
        self._slow_at = 0
        self._energy_before = (0, NAN)
        for idle in self._idle:
            idle.forget()

    def close(self) -> None:
        """Close all files."""
        self._link.close()
        for file in (*self._clocks, *(idle.file for idle in self._idle)):
            file.close()
        if self._sensors is not None:
            self._sensors.close()

    def _read_activity(self, values: CardValues, monotonic_ns: int) -> None:
        shares = [idle.busy_share(monotonic_ns) for idle in self._idle]
        busy = max((share for share in shares if is_known(share)), default=NAN)
        if is_known(busy):
            values.set("gpu.utilization", busy)
        elif any(idle.file.why is Availability.OK for idle in self._idle):
            values.set_missing("gpu.utilization", Availability.TOO_EARLY)
        else:
            values.set("gpu.utilization", self.clients.utilization, self.clients.why, highest=1.0)

    def _read_memory(self, values: CardValues) -> None:
        if self.uses_host_memory:
            for metric in ("gpu.memory_used", "gpu.memory_total"):
                values.set_missing(metric, Availability.SHARED_WITH_HOST)
            return
        total = values.values.get("gpu.memory_total", NAN)
        if not is_known(total):
            total = memory_window(self._card.folder)
        values.set("gpu.memory_total", total, Availability.NOT_SUPPORTED)
        values.set("gpu.memory_used", self.clients.memory, self.clients.why, highest=min(MOST_MEMORY, total))

    def _read_power(self, values: CardValues, sensors: Sensors, monotonic_ns: int) -> None:
        """Read the energy, and compute the power from its difference."""
        file = sensors.labeled("energy", "card", "input") or sensors.file("energy1_input")
        energy = file.number() * _MICRO if file is not None else NAN
        why = file.why if file is not None else Availability.NOT_SUPPORTED
        at, before = self._energy_before
        passed = monotonic_ns - at
        if not is_known(energy):
            self._power = NAN
        elif not is_known(before) or energy < before:
            self._power, self._energy_before = NAN, (monotonic_ns, energy)
            why = Availability.TOO_EARLY
        elif passed >= _MIN_WINDOW:
            self._power, self._energy_before = (energy - before) / passed * SECOND, (monotonic_ns, energy)
        if energy == before and self._power == 0:  # a GPU that answers draws power, so the counter does not work
            values.set_missing("gpu.power", Availability.UNRELIABLE)
        else:
            values.set("gpu.power", self._power, why)
        self._energy.store(values, monotonic_ns, energy, why)

    def _read_clock(self, values: CardValues) -> None:
        why = Availability.NOT_SUPPORTED
        for file in self._clocks:
            number = file.number()
            if is_known(number):
                values.set("gpu.clock_sm", number * _MEGA)
                return
            why = file.why
        values.set_missing("gpu.clock_sm", why)


class IdleTime:
    """Computes the share of time in which a part of the GPU was awake, from the time that it was idle."""

    def __init__(self, path: str) -> None:
        self.file = KernelFile(path)
        self._before = (0, NAN)

    def busy_share(self, monotonic_ns: int) -> float:
        """Return the share since the last call; NaN in the first call, or if the file cannot be read."""
        at, before = self._before
        idle = self.file.number() * _MILLI
        passed = (monotonic_ns - at) / SECOND
        self._before = monotonic_ns, idle
        if not is_known(idle) or not is_known(before) or idle < before or passed <= 0:
            return NAN
        return max(0.0, 1.0 - (idle - before) / passed)

    def forget(self) -> None:
        """Forget the last reading, because the GPU was powered down."""
        self._before = (0, NAN)


def _read_temperatures(values: CardValues, sensors: Sensors) -> None:
    """Read temperatures by label. Without labels, xe has the package in number 2 and the memory in number 3."""
    package = sensors.labeled("temp", "pkg", "input")
    memory = sensors.labeled("temp", "vram", "input")
    if package is None and not any(kind == "temp" for kind, _ in sensors.labels):
        names = [f"temp{number}_input" for number in range(1, _MAX_SENSORS + 1) if sensors.has(f"temp{number}_input")]
        package = sensors.file(names[0]) if names else None
        memory = sensors.file("temp3_input") if names[:1] == ["temp2_input"] else None
    values.read("gpu.temperature", package, _MILLI, lowest=1.0)
    values.read("gpu.temperature_memory", memory, _MILLI, lowest=1.0)


def _clock_paths(card: Card) -> list[str]:
    if card.driver == XE:
        return [f"{card.folder}/tile0/gt0/freq0/act_freq"]
    return [f"{card.node}/gt/gt0/rps_act_freq_mhz", f"{card.node}/gt_act_freq_mhz"]


def _idle_paths(card: Card) -> list[str]:
    """Return the files of xe with the idle time of each part of the GPU that is not for media only."""
    if card.driver != XE:
        return []
    tiles = [name for name in list_folder(card.folder) if name in ("tile0", "tile1")]
    return [f"{card.folder}/{tile}/gt{number}/gtidle/idle_residency_ms" for number, tile in enumerate(tiles)]
