"""Parses `gpu_metrics`, the binary table of amdgpu with clocks, activity, energy and throttling.

The layouts are in linux/drivers/gpu/drm/amd/include/kgd_pp_interface.h. Fields have their natural alignment. All bits
of a field are 1 if the card does not have the value. Tables of other versions are not read, because nothing is known
about their fields. Versions 1.0 and 2.0 are not read because they are not aligned, and the energy of 1.0 has 32 bits.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from gpumon.common.numbers import NAN
from gpumon.model.metrics import Availability

LONGEST = 65_536
"""Maximum bytes of a table. Its size field has 16 bits."""
_HEADER = struct.Struct("<HBB")
_SIZES = {"B": 1, "b": 1, "H": 2, "h": 2, "I": 4, "i": 4, "Q": 8, "q": 8}
JOULES = 2.0**-16
"""J of one unit of `energy_accumulator`."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    code: str
    """Type of the field as in the module `struct`."""
    offset: int
    count: int


def _fields(*lines: str) -> tuple[_Field, ...]:
    """Lay out the fields of a table behind its header. Each line is a type code and names, `name*8` for an array."""
    fields, offset = [], _HEADER.size
    for line in lines:
        code, *names = line.split()
        for entry in names:
            name, _, count = entry.partition("*")
            size = _SIZES[code]
            offset += -offset % size
            fields.append(_Field(name, code, offset, int(count or 1)))
            offset += size * int(count or 1)
    return tuple(fields)


_V1_1 = (
    "H temperature_edge temperature_hotspot temperature_mem temperature_vrgfx temperature_vrsoc temperature_vrmem",
    "H gfx_activity umc_activity mm_activity socket_power",
    "Q energy_accumulator system_clock_counter",
    "H average_gfxclk average_socclk average_uclk average_vclk0 average_dclk0 average_vclk1 average_dclk1",
    "H current_gfxclk current_socclk current_uclk current_vclk0 current_dclk0 current_vclk1 current_dclk1",
    "I throttle_status",
    "H fan_speed pcie_link_width pcie_link_speed padding",
    "I gfx_activity_acc mem_activity_acc",
    "H temperature_hbm*4",
)
_V1_2 = (*_V1_1, "Q firmware_timestamp")
_V1_3 = (*_V1_2, "H voltage_soc voltage_gfx voltage_mem padding1", "Q indep_throttle_status")
_MI300 = "H temperature_hotspot temperature_mem temperature_vrsoc socket_power gfx_activity umc_activity"
_LINKS = "H pcie_link_width pcie_link_speed xgmi_link_width xgmi_link_speed"
_PCIE = (
    "I gfx_activity_acc mem_activity_acc",
    "Q pcie_bandwidth_acc pcie_bandwidth_inst pcie_l0_to_recov_count_acc pcie_replay_count_acc pcie_replay_rover_acc",
)
_NAKS = "I pcie_nak_sent_count_acc pcie_nak_rcvd_count_acc"
_XGMI = "Q xgmi_read_data_acc*8 xgmi_write_data_acc*8"
_CLOCKS = "H current_gfxclk*8 current_socclk*4 current_vclk0*4 current_dclk0*4 current_uclk"
_COUNTERS = "Q energy_accumulator system_clock_counter"
_STATUS = "I throttle_status gfxclk_lock_status"
_RESIDENCIES = (
    "I accumulation_counter prochot_residency_acc ppt_residency_acc socket_thm_residency_acc vr_thm_residency_acc",
    "I hbm_thm_residency_acc gfxclk_lock_status",
)
_V1_4 = (_MI300, "H vcn_activity*4", _COUNTERS, _STATUS, _LINKS, *_PCIE, _XGMI, "Q firmware_timestamp", _CLOCKS)
_V1_5 = (
    _MI300, "H vcn_activity*4 jpeg_activity*32", _COUNTERS, _STATUS, _LINKS, *_PCIE, _NAKS, _XGMI,
    "Q firmware_timestamp", _CLOCKS,
)  # fmt: skip
_V1_6 = (
    _MI300, _COUNTERS, *_RESIDENCIES, _LINKS, *_PCIE, _NAKS, _XGMI, "Q firmware_timestamp", _CLOCKS, "H num_partition",
)  # fmt: skip
_V1_7 = (
    _MI300, "Q mem_max_bandwidth", _COUNTERS, *_RESIDENCIES, _LINKS, *_PCIE, _NAKS, _XGMI, "H xgmi_link_status*8",
    "H padding", "Q firmware_timestamp", _CLOCKS, "H num_partition",
)  # fmt: skip
_V2_1 = (
    "H temperature_gfx temperature_soc temperature_core*8 temperature_l3*2 apu_gfx_activity apu_mm_activity",
    "Q system_clock_counter",
    "H apu_socket_power cpu_power soc_power gfx_power core_power*8",
    "H average_gfxclk average_socclk average_uclk average_fclk average_vclk average_dclk",
    "H current_gfxclk current_socclk current_uclk current_fclk current_vclk current_dclk current_coreclk*8",
    "H current_l3clk*2",
    "I throttle_status",
    "H fan_pwm padding*3",
)
_V2_2 = (*_V2_1, "Q indep_throttle_status")
_V3_0 = (
    "H temperature_gfx temperature_soc temperature_core*16 temperature_skin apu_gfx_activity vcn_activity",
    "H ipu_activity*8 core_c0_activity*16 dram_reads dram_writes ipu_reads ipu_writes",
    "Q system_clock_counter",
    "I apu_socket_power",
    "H ipu_power",
    "I apu_power gfx_power dgpu_power all_core_power",
    "H core_power*16 sys_power stapm_power_limit current_stapm_power_limit",
    "H average_gfxclk average_socclk average_vpeclk average_ipuclk average_fclk average_vclk average_uclk mpipu_clock",
    "H current_coreclk*16 current_core_maxfreq current_gfx_maxfreq",
    "I throttle_residency_prochot throttle_residency_spl throttle_residency_fppt throttle_residency_sppt",
    "I throttle_residency_thm_core throttle_residency_thm_gfx throttle_residency_thm_soc time_filter_alphavalue",
)
_LAYOUTS = {
    (1, 1): _fields(*_V1_1),
    (1, 2): _fields(*_V1_2),
    (1, 3): _fields(*_V1_3),
    (1, 4): _fields(*_V1_4),
    (1, 5): _fields(*_V1_5),
    (1, 6): _fields(*_V1_6),
    (1, 7): _fields(*_V1_7),
    (1, 8): _fields(*_V1_7),  # only the statistics of partitions at its end are different
    (2, 1): _fields(*_V2_1),
    (2, 2): _fields(*_V2_2),
    (2, 3): _fields(*_V2_2),  # with mean temperatures behind the fields of 2.2
    (2, 4): _fields(*_V2_2),
    (3, 0): _fields(*_V3_0),
}
_PARTITION_SIZES = {(1, 6): 168, (1, 7): 232, (1, 8): 440}
"""Bytes of the statistics of a partition, which follow the fields of these versions. They begin with `_BUSY`."""
_BUSY = struct.Struct("<8I")
"""Utilization in % of each part (XCC) of a partition; all ones for parts that it does not have."""
_MAX_PARTITIONS = 8
_LIST = (1, 9)
"""Version whose content is a list of attributes in place of a structure."""
_COUNT, _ENCODING = struct.Struct("<i"), struct.Struct("<Q")
_TYPES = "BbHhIiQq"
"""Type codes in the order of `amdgpu_metrics_attr_type`."""
_ATTRIBUTES = {
    0: "temperature_hotspot", 1: "temperature_mem", 3: "socket_power", 4: "gfx_activity", 5: "umc_activity",
    7: "energy_accumulator", 8: "system_clock_counter", 9: "accumulation_counter", 10: "prochot_residency_acc",
    11: "ppt_residency_acc", 12: "socket_thm_residency_acc", 13: "vr_thm_residency_acc", 14: "hbm_thm_residency_acc",
    16: "pcie_link_width", 17: "pcie_link_speed", 20: "gfx_activity_acc", 25: "pcie_replay_count_acc",
    32: "firmware_timestamp", 33: "current_gfxclk", 37: "current_uclk", 38: "num_partition",
}  # fmt: skip
"""Names of attributes by their number in `amdgpu_metrics_attr_id`."""
NAMES = frozenset(field.name for fields in _LAYOUTS.values() for field in fields) | {*_ATTRIBUTES.values()}


@dataclass(frozen=True, slots=True)
class MetricsTable:
    """A parsed table."""

    format: int = 0
    """1 for cards, 2 and 3 for APUs; 0 if there is no table."""
    content: int = 0
    values: dict[str, int] | None = None
    """Values by name of the field. For an array, the value is its first valid element. Absent values are not included.
    None if the table could not be parsed."""
    why: Availability = Availability.OK
    """Reason why the table could not be parsed."""
    partition_shares: tuple[float, ...] = ()
    """Utilization (0 to 1) of each partition; NaN if absent. Empty if the table has no statistics of partitions."""

    @property
    def is_apu(self) -> bool:
        """Whether the table is of a processor with graphics, whose memory is the host's."""
        return self.format in (2, 3)

    def get(self, name: str) -> int | None:
        """Return the value of a field; None if it is absent."""
        return self.values.get(name) if self.values is not None else None


NO_TABLE = MetricsTable(why=Availability.NOT_SUPPORTED)


def parse_table(data: bytes) -> MetricsTable:
    """Parse the content of a `gpu_metrics` file. Accepts any bytes."""
    if len(data) < _HEADER.size:
        return NO_TABLE
    size, format_, content = _HEADER.unpack_from(data)
    version = format_, content
    if version != _LIST and version not in _LAYOUTS:
        return MetricsTable(format_, content, why=Availability.NOT_SUPPORTED)
    if not _HEADER.size < size <= len(data):  # truncated
        return MetricsTable(format_, content, why=Availability.UNRELIABLE)
    data = data[:size]
    values = _parse_list(data) if version == _LIST else _parse_fields(data, _LAYOUTS[version])
    why = Availability.OK if values is not None else Availability.UNRELIABLE
    shares = _partition_shares(data, version) if values is not None and version in _PARTITION_SIZES else ()
    return MetricsTable(format_, content, values, why, shares)


def _partition_shares(data: bytes, version: tuple[int, int]) -> tuple[float, ...]:
    last, size = _LAYOUTS[version][-1], _PARTITION_SIZES[version]
    begin = last.offset + _SIZES[last.code] * last.count
    begin += -begin % 8
    shares = []
    for number in range(_MAX_PARTITIONS):
        if begin + size * number + _BUSY.size > len(data):
            break
        busy = [percent for percent in _BUSY.unpack_from(data, begin + size * number) if percent <= 100]
        shares.append(sum(busy) / len(busy) / 100 if busy else NAN)
    return tuple(shares)


def _parse_fields(data: bytes, fields: tuple[_Field, ...]) -> dict[str, int] | None:
    last = fields[-1]
    if last.offset + _SIZES[last.code] * last.count > len(data):
        return None
    values: dict[str, int] = {}
    for field in fields:
        for number in struct.unpack_from(f"<{field.count}{field.code}", data, field.offset):
            if _is_present(number, field.code):
                values[field.name] = number
                break
    return values


def _parse_list(data: bytes) -> dict[str, int] | None:
    offset = _HEADER.size + _COUNT.size
    if offset > len(data):
        return None
    (count,) = _COUNT.unpack_from(data, _HEADER.size)
    values: dict[str, int] = {}
    for _ in range(max(0, count)):
        if offset + _ENCODING.size > len(data):
            return None
        (encoding,) = _ENCODING.unpack_from(data, offset)
        offset += _ENCODING.size
        kind, attribute, instances = encoding >> 20 & 0xF, encoding >> 10 & 0x3FF, encoding & 0x3FF
        if kind >= len(_TYPES):
            return None
        code = _TYPES[kind]
        end = offset + _SIZES[code] * instances
        if end > len(data):
            return None
        if attribute in _ATTRIBUTES:
            for number in struct.unpack_from(f"<{instances}{code}", data, offset):
                if _is_present(number, code):
                    values[_ATTRIBUTES[attribute]] = number
                    break
        offset = end
    return values


def _is_present(number: int, code: str) -> bool:
    bits = 8 * _SIZES[code]
    return number != ((1 << bits) - 1 if code.isupper() else (1 << bits - 1) - 1)


_POWER, _CURRENT, _HEAT, _MEMORY_HEAT, _REGULATOR_HEAT, _EXTERNAL, _RELIABILITY = (1 << bit for bit in range(7))
# The bits of `indep_throttle_status`, from linux/drivers/gpu/drm/amd/pm/swsmu/inc/amdgpu_smu.h (SMU_THROTTLER_*), are
# grouped. A mask of 58 bits has too many digits for the ring, and most of the bits are different sensors of one cause.
_CAUSES: tuple[tuple[int, range], ...] = (
    (_POWER, range(8)),  # PPT0 to SPPT_APU
    (_CURRENT, range(16, 24)),  # TDC, EDC and APCC
    (_HEAT, range(32, 34)),  # GPU, core
    (_MEMORY_HEAT, range(34, 35)),
    (_HEAT, range(35, 38)),  # edge, hot spot, SoC
    (_REGULATOR_HEAT, range(38, 42)),
    (_HEAT, range(42, 44)),  # liquid
    (_REGULATOR_HEAT, range(44, 46)),  # VRHOT
    (_EXTERNAL, range(46, 48)),  # PROCHOT
    (_POWER, range(56, 57)),  # PPM
    (_RELIABILITY, range(57, 58)),  # FIT
)


def throttle_causes(status: int, *, without_heat: bool = False) -> int:
    """Return the causes of throttling as bits of `Vendor.clock_events` of AMD.

    `status`: value of `indep_throttle_status`. `without_heat`: whether to leave out the temperature of the chip.
    """
    causes = 0
    for cause, bits in _CAUSES:
        if any(status >> bit & 1 for bit in bits):
            causes |= cause
    return causes & ~_HEAT if without_heat else causes
