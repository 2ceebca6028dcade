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
    ColumnPosition,
    LogColumn,
    Row,
    missing_reason,
    parse_bitmask,
    parse_cells,
    parse_performance_state,
    parse_time,
    select_columns,
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
    "clocks_event_reasons.active": LogColumn("gpu.event_reasons", COUNT, parse_bitmask),
    "clocks_throttle_reasons.active": LogColumn("gpu.event_reasons", COUNT, parse_bitmask),
    "clocks_event_reasons_counters.sw_power_cap": LogColumn("gpu.throttled_sw_power", TIME_US),
    "clocks_event_reasons_counters.sw_thermal_slowdown": LogColumn("gpu.throttled_sw_thermal", TIME_US),
    "clocks_event_reasons_counters.hw_thermal_slowdown": LogColumn("gpu.throttled_hw_thermal", TIME_US),
    "clocks_event_reasons_counters.hw_power_brake_slowdown": LogColumn("gpu.throttled_hw_power_brake", TIME_US),
    "clocks_event_reasons_counters.sync_boost": LogColumn("gpu.throttled_sync_boost", TIME_US),
    "fan.speed": LogColumn("gpu.fan", RATIO),
    "pstate": LogColumn("gpu.performance_state", COUNT, parse_performance_state),
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
"""Metrics by nvidia-smi's column names. Other columns are ignored."""

_TIMES = ("timestamp",)
_UUIDS = ("uuid", "gpu_uuid")
_BUSES = ("pci.bus_id", "gpu_bus_id")
_INDEXES = ("index",)
_MODELS = ("name", "gpu_name")
_HOSTS = ("hostname", "host", "node")
"""Columns with the name of the machine. They distinguish GPUs in logs of several machines, each of which has a GPU
0."""
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
"""First words of nvidia-smi's column names. A heading is accepted if at least half of its columns start with one of
these words. One column is not sufficient, because other programs also write columns `timestamp` and `name`."""


class QueryFormat:
    """The columns of a log, from its heading."""

    def __init__(self, names: list[str], units: list[str]) -> None:
        self._count = len(names)
        self._columns = select_columns([
            ColumnPosition(i, COLUMNS[name], units[i]) for i, name in enumerate(names) if name in COLUMNS
        ])  # fmt: skip
        self._time = _position(names, _TIMES)
        self._uuid = _position(names, _UUIDS)
        self._bus = _position(names, _BUSES)
        self._index = _position(names, _INDEXES)
        self._model = _position(names, _MODELS)
        self._driver = _position(names, _DRIVERS)
        self._host = _position(names, _HOSTS)
        self.has_metrics = bool(self._columns)
        self.has_times = self._time >= 0
        self.has_ids = max(self._uuid, self._bus, self._index) >= 0

    def parse_row(self, line: int, text: str, last: int) -> Row:
        """Parse a line. Raises BadLine."""
        cells = _split(text)
        if len(cells) != self._count:
            raise BadLine(f"{len(cells)} cells, but the header has {self._count}")
        time = parse_time(cells[self._time], last) if self.has_times else None
        uuid, bus, index = (_word(cells, position) for position in (self._uuid, self._bus, self._index))
        if index and not re.fullmatch("[0-9]{1,4}", index, re.ASCII):
            raise BadLine(f"{index[:40]!r} is not an index")
        host = _word(cells, self._host)
        numbers = (("bus", bus.lower()), ("index", index))
        names = (
            *((f"uuid {uuid}",) if uuid else ()),
            *(f"{kind} {word}{host and f' of {host}'}" for kind, word in numbers if word),
        )
        if self.has_ids and not names:
            raise BadLine("the row names no GPU")
        values, missing, is_lost = parse_cells(cells, self._columns)
        return Row(
            line=line,
            time_ns=time,
            names=names,
            gpu_index=int(index) if index else -1,
            uuid=uuid,
            model=_word(cells, self._model),
            driver=_word(cells, self._driver),
            values=values,
            missing=missing,
            rates=(),
            is_lost=is_lost,
        )

    def looks_like_row(self, text: str) -> bool:
        """Return whether a line that cannot be parsed has more than half as many cells as the heading.

        Such a line is probably a damaged row.
        """
        return 2 * len(_split(text)) > self._count > 1


def parse_heading(text: str) -> QueryFormat | None:
    """Return the columns if the line is a heading of such a log; otherwise None."""
    names, units = [], []
    for cell in _split(text):
        match = _HEADING.fullmatch(cell.strip().lower())
        if match is None:
            return None
        names.append(match[1])
        units.append((match[2] or "").strip().lower())
    known = sum(name in _KNOWN or name.partition(".")[0] in _FAMILIES for name in names)
    is_query = _KNOWN.intersection(names) and "pid" not in names and 2 * known >= len(names)
    return QueryFormat(names, units) if is_query else None


def _split(text: str) -> list[str]:
    if '"' not in text:
        return text.split(",")
    try:
        return next(csv.reader([text], skipinitialspace=True), [])
    except csv.Error:
        return []


def _position(names: list[str], alternatives: tuple[str, ...]) -> int:
    return next((i for i, name in enumerate(names) if name in alternatives), -1)


def _word(cells: list[str], position: int) -> str:
    if position < 0 or missing_reason(cells[position]) is not None:
        return ""
    return clean(cells[position].strip(), 96)
