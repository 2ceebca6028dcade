"""Makes `gpu_metrics` tables as the amdgpu driver does: C structures with natural alignment, all ones where absent."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping

U8, U16, U32, U64 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64


def _structure(*fields: tuple[str, type]) -> type[ctypes.Structure]:
    header = [("structure_size", U16), ("format_revision", U8), ("content_revision", U8)]
    return type("Table", (ctypes.Structure,), {"_fields_": [*header, *fields]})


def _all(kind: type, *names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names]


_CARD = [
    *_all(U16, "temperature_edge", "temperature_hotspot", "temperature_mem", "vrgfx", "vrsoc", "vrmem"),
    *_all(U16, "gfx_activity", "umc_activity", "mm_activity", "socket_power"),
    *_all(U64, "energy_accumulator", "system_clock_counter"),
    *((f"average{i}", U16) for i in range(7)),
    *_all(U16, "current_gfxclk", "current_socclk", "current_uclk", "vclk0", "dclk0", "vclk1", "dclk1"),
    *_all(U32, "throttle_status"),
    *_all(U16, "fan_speed", "pcie_link_width", "pcie_link_speed", "padding"),
    *_all(U32, "gfx_activity_acc", "mem_activity_acc"),
    ("hbm", U16 * 4),
    *_all(U64, "firmware_timestamp"),
    *_all(U16, "voltage_soc", "voltage_gfx", "voltage_mem", "padding1"),
    *_all(U64, "indep_throttle_status"),
]
_XCP = type(
    "Xcp",
    (ctypes.Structure,),
    {"_fields_": [("gfx_busy_inst", U32 * 8), ("jpeg", U16 * 32), ("vcn", U16 * 4), ("gfx_busy_acc", U64 * 8)]},
)
_MI300 = [
    *_all(U16, "temperature_hotspot", "temperature_mem", "vrsoc", "socket_power", "gfx_activity", "umc_activity"),
    *_all(U64, "energy_accumulator", "system_clock_counter"),
    *_all(U32, "accumulation_counter", "prochot_residency_acc", "ppt_residency_acc", "socket_thm_residency_acc"),
    *_all(U32, "vr_thm_residency_acc", "hbm_thm_residency_acc", "gfxclk_lock_status"),
    *_all(U16, "pcie_link_width", "pcie_link_speed", "xgmi_link_width", "xgmi_link_speed"),
    *_all(U32, "gfx_activity_acc", "mem_activity_acc"),
    *((f"pcie{i}", U64) for i in range(5)),
    *_all(U32, "nak_sent", "nak_rcvd"),
    ("xgmi_read", U64 * 8),
    ("xgmi_write", U64 * 8),
    *_all(U64, "firmware_timestamp"),
    ("current_gfxclk", U16 * 8),
    ("clocks", U16 * 12),
    *_all(U16, "current_uclk", "num_partition"),
    ("xcp", _XCP * 8),
    *_all(U32, "other_end_recovery"),
]
_APU = [
    *_all(U16, "temperature_gfx", "temperature_soc"),
    ("temperature_core", U16 * 8),
    ("temperature_l3", U16 * 2),
    *_all(U16, "apu_gfx_activity", "apu_mm_activity"),
    *_all(U64, "system_clock_counter"),
    ("powers", U16 * 12),
    ("averages", U16 * 6),
    *_all(U16, "current_gfxclk", "current_socclk", "current_uclk", "current_fclk", "vclk", "dclk"),
    ("core_clocks", U16 * 10),
    *_all(U32, "throttle_status"),
    *_all(U16, "fan_pwm"),
    ("padding", U16 * 3),
    *_all(U64, "indep_throttle_status"),
    ("average_temperatures", U16 * 12),
]
STRUCTURES = {
    (1, 3): _structure(*_CARD),
    (1, 6): _structure(*_MI300),
    (2, 3): _structure(*_APU),
}
SIZES = {(1, 3): 120, (1, 6): 1664}
"""Sizes of tables that were read from real cards (W7900, MI300X)."""


def make_table(version: tuple[int, int], values: Mapping[str, int]) -> bytes:
    """A table with these values; fields that are not named are absent."""
    if version == (1, 9):
        return make_list(values)
    table = STRUCTURES[version]()
    ctypes.memset(ctypes.addressof(table), 0xFF, ctypes.sizeof(table))
    table.structure_size, table.format_revision, table.content_revision = ctypes.sizeof(table), *version
    for name, value in values.items():
        if name.startswith("partition"):
            table.xcp[int(name.removeprefix("partition"))].gfx_busy_inst[0] = value
        elif isinstance(getattr(table, name, None), ctypes.Array):
            getattr(table, name)[0] = value
        elif hasattr(table, name):
            setattr(table, name, value)
    return bytes(table)


_ATTRIBUTES = {  # amdgpu_metrics_attr_id, with the type and the number of values
    "temperature_hotspot": (0, 2, 1), "temperature_mem": (1, 2, 1), "socket_power": (3, 2, 1),
    "gfx_activity": (4, 2, 1), "umc_activity": (5, 2, 1), "energy_accumulator": (7, 6, 1),
    "accumulation_counter": (9, 4, 1), "prochot_residency_acc": (10, 4, 1), "ppt_residency_acc": (11, 4, 1),
    "socket_thm_residency_acc": (12, 4, 1), "vr_thm_residency_acc": (13, 4, 1), "hbm_thm_residency_acc": (14, 4, 1),
    "xgmi_read": (29, 6, 8), "firmware_timestamp": (32, 6, 1), "current_gfxclk": (33, 2, 8), "current_uclk": (37, 2, 1),
}  # fmt: skip
_CODES = {2: "H", 4: "I", 6: "Q"}


def make_list(values: Mapping[str, int]) -> bytes:
    """A table of version 1.9, which is a list of attributes with their types."""
    content = b""
    for name, (number, kind, count) in _ATTRIBUTES.items():
        value = values.get(name, 2 ** (8 * struct.calcsize(f"<{_CODES[kind]}")) - 1)
        content += struct.pack("<Q", kind << 20 | number << 10 | count)
        content += struct.pack(f"<{count}{_CODES[kind]}", *[value] * count)
    return struct.pack("<HBBi", 8 + len(content), 1, 9, len(_ATTRIBUTES)) + content
