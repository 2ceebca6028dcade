"""Logs of `nvidia-smi --query-gpu=... --format=csv`, with or without `nounits`."""

from __future__ import annotations

import csv
import re

from gpumon.common.text import clean
from gpumon.sources.replay.format import (
    CLOCK,
    COUNT,
    ENERGY,
    MEMORY,
    POWER,
    RATIO,
    TEMPERATURE,
    TIME_US,
    BadLine,
    LogColumn,
    Place,
    Row,
    bits,
    chosen,
    fill,
    missing,
    state,
    when,
)  # fmt: skip

_HEADING = re.compile(r"([a-z][a-z0-9_.]*)\s*(?:\[([^\]]*)\])?", re.ASCII)

COLUMNS: dict[str, LogColumn] = {
    "utilization.gpu": LogColumn("gpu.utilization", RATIO),
    "utilization.memory": LogColumn("gpu.memory_utilization", RATIO),
    "utilization.encoder": LogColumn("gpu.encoder_utilization", RATIO),
    "utilization.decoder": LogColumn("gpu.decoder_utilization", RATIO),
    "memory.used": LogColumn("gpu.memory_used", MEMORY),
    "memory.reserved": LogColumn("gpu.memory_reserved", MEMORY),
    "memory.total": LogColumn("gpu.memory_total", MEMORY),
    "power.draw": LogColumn("gpu.power", POWER),
    "power.draw.average": LogColumn("gpu.power", POWER, rank=1),
    "power.draw.instant": LogColumn("gpu.power", POWER, rank=2),
    "enforced.power.limit": LogColumn("gpu.power_limit", POWER),
    "power.limit": LogColumn("gpu.power_limit", POWER, rank=1),
    "power.default_limit": LogColumn("gpu.power_limit", POWER, rank=2),
    "total_energy_consumption": LogColumn("gpu.energy", ENERGY),
    "temperature.gpu": LogColumn("gpu.temperature", TEMPERATURE),
    "temperature.memory": LogColumn("gpu.temperature_memory", TEMPERATURE),
    "clocks.current.sm": LogColumn("gpu.clock_sm", CLOCK),
    "clocks.sm": LogColumn("gpu.clock_sm", CLOCK),
    "clocks.current.graphics": LogColumn("gpu.clock_sm", CLOCK, rank=1),
    "clocks.gr": LogColumn("gpu.clock_sm", CLOCK, rank=1),
    "clocks.current.memory": LogColumn("gpu.clock_memory", CLOCK),
    "clocks.mem": LogColumn("gpu.clock_memory", CLOCK),
    "clocks_event_reasons.active": LogColumn("gpu.event_reasons", COUNT, bits),
    "clocks_throttle_reasons.active": LogColumn("gpu.event_reasons", COUNT, bits),
    "clocks_event_reasons_counters.sw_power_cap": LogColumn("gpu.throttled_sw_power", TIME_US),
    "clocks_event_reasons_counters.sw_thermal_slowdown": LogColumn("gpu.throttled_sw_thermal", TIME_US),
    "clocks_event_reasons_counters.hw_thermal_slowdown": LogColumn("gpu.throttled_hw_thermal", TIME_US),
    "clocks_event_reasons_counters.hw_power_brake_slowdown": LogColumn("gpu.throttled_hw_power_brake", TIME_US),
    "clocks_event_reasons_counters.sync_boost": LogColumn("gpu.throttled_sync_boost", TIME_US),
    "fan.speed": LogColumn("gpu.fan", RATIO),
    "pstate": LogColumn("gpu.performance_state", COUNT, state),
    "pcie.link.gen.gpucurrent": LogColumn("gpu.pcie_generation", COUNT),
    "pcie.link.gen.current": LogColumn("gpu.pcie_generation", COUNT, rank=1),
    "pcie.link.width.current": LogColumn("gpu.pcie_width", COUNT),
    "pcie.link.gen.max": LogColumn("gpu.pcie_generation_max", COUNT),
    "pcie.link.width.max": LogColumn("gpu.pcie_width_max", COUNT),
    "temperature.gpu.tlimit": LogColumn("gpu.temperature_margin", TEMPERATURE),
    "utilization.jpeg": LogColumn("gpu.jpeg_utilization", RATIO),
    "utilization.ofa": LogColumn("gpu.optical_flow_utilization", RATIO),
    "ecc.errors.corrected.volatile.total": LogColumn("gpu.ecc_corrected", COUNT),
    "ecc.errors.uncorrected.volatile.total": LogColumn("gpu.ecc_uncorrected", COUNT),
    "ecc.errors.corrected.aggregate.total": LogColumn("gpu.ecc_corrected_lifetime", COUNT),
    "ecc.errors.uncorrected.aggregate.total": LogColumn("gpu.ecc_uncorrected_lifetime", COUNT),
}
"""nvidia-smi's names for our metrics; other columns are passed over."""

_TIMES = ("timestamp",)
_UUIDS = ("uuid", "gpu_uuid")
_BUSES = ("pci.bus_id", "gpu_bus_id")
_INDEXES = ("index",)
_MODELS = ("name", "gpu_name")
_HOSTS = ("hostname", "host", "node")
"""In logs of several machines, each with a GPU 0."""
_DRIVERS = ("driver_version",)
_KNOWN = {*COLUMNS, *_TIMES, *_UUIDS, *_BUSES, *_INDEXES, *_MODELS, *_DRIVERS}

_FAMILIES = {
    *(name.partition(".")[0] for name in _KNOWN), "accounting", "addressing_mode", "board_id", "c2c", "compute_cap",
    "compute_mode", "count", "display_active", "display_attached", "display_mode", "dramencryptionmode",
    "driver_model", "encoder", "fabric", "gom", "gpu_part_number", "gpu_recovery_action", "gpu_serial", "gsp",
    "hostname", "inforom", "iommu", "mig", "module", "pci", "persistence_mode", "platform", "protected_memory",
    "remapped_rows", "reset_status", "retired_pages", "serial", "vbios_version", "vgpu_device_capability",
    "vgpu_driver_capability",
}  # fmt: skip
"""First parts of nvidia-smi's names. A heading is its own where at least half of the columns have one of these: other
programs write `timestamp` and `name`, too."""


class QueryForm:
    """The columns that a heading line names."""

    def __init__(self, names: list[str], units: list[str]) -> None:
        self._count = len(names)
        self._places = chosen([Place(i, COLUMNS[n], units[i]) for i, n in enumerate(names) if n in COLUMNS])
        self._time = _place(names, _TIMES)
        self._uuid = _place(names, _UUIDS)
        self._bus = _place(names, _BUSES)
        self._index = _place(names, _INDEXES)
        self._model = _place(names, _MODELS)
        self._driver = _place(names, _DRIVERS)
        self._host = _place(names, _HOSTS)
        self.measures = bool(self._places)
        self.timed = self._time >= 0
        self.identified = max(self._uuid, self._bus, self._index) >= 0

    def row(self, line: int, text: str, last: int) -> Row:
        """The row in `text`. Raises BadLine."""
        cells = _cells(text)
        if len(cells) != self._count:
            raise BadLine(f"{len(cells)} cells, but the header has {self._count}")
        time = when(cells[self._time], last) if self.timed else None
        uuid, bus, index = (_word(cells, place) for place in (self._uuid, self._bus, self._index))
        if index and not re.fullmatch("[0-9]{1,4}", index, re.ASCII):
            raise BadLine(f"{index[:40]!r} is not an index")
        host = _word(cells, self._host)
        numbers = (("bus", bus.lower()), ("index", index))
        names = (
            *((f"uuid {uuid}",) if uuid else ()),
            *(f"{kind} {word}{host and f' of {host}'}" for kind, word in numbers if word),
        )
        if self.identified and not names:
            raise BadLine("it names no GPU")
        values, absent, lost = fill(cells, self._places)
        return Row(
            line=line,
            time_ns=time,
            names=names,
            number=int(index) if index else -1,
            uuid=uuid,
            model=_word(cells, self._model),
            driver=_word(cells, self._driver),
            values=values,
            missing=absent,
            rates=(),
            lost=lost,
        )

    def holds_place(self, text: str) -> bool:
        """Whether the line has at least half of the cells: then one GPU's row stood here."""
        return 2 * len(_cells(text)) > self._count > 1


def heading(text: str) -> QueryForm | None:
    """The columns, when `text` is the heading of such a log."""
    names, units = [], []
    for cell in _cells(text):
        match = _HEADING.fullmatch(cell.strip().lower())
        if match is None:
            return None
        names.append(match[1])
        units.append((match[2] or "").strip().lower())
    known = sum(name in _KNOWN or name.partition(".")[0] in _FAMILIES for name in names)
    is_query = _KNOWN.intersection(names) and "pid" not in names and 2 * known >= len(names)
    return QueryForm(names, units) if is_query else None


def _cells(text: str) -> list[str]:
    if '"' not in text:
        return text.split(",")
    try:
        return next(csv.reader([text], skipinitialspace=True), [])
    except csv.Error:
        return []


def _place(names: list[str], wanted: tuple[str, ...]) -> int:
    return next((place for place, name in enumerate(names) if name in wanted), -1)


def _word(cells: list[str], place: int) -> str:
    if place < 0 or missing(cells[place]) is not None:
        return ""
    return clean(cells[place].strip(), 96)
