"""The control file as Python sees it: driver/layout.h, field by field."""

import ctypes
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

Missing = TypeVar("Missing")

DRIVER = Path(__file__).with_name("driver")

MAGIC = 0x6E6F6D7570676C00
VERSION = 8
GPUS = 32
PROCESSES = 64
METRIC_ROOM = 128
ANY = GPUS
EVENTS = 64
INSTANCES = 7
ALL_EVENTS = 2**64 - 1
XID = 0x8
"""The type of an event that is an XID."""

NO_MEMORY = 2**64 - 1
NOT_SAMPLED = 2**32 - 1
KINDS = {"compute": 1, "graphics": 2, "both": 3, "mps": 4}


def _rows(name: str, pattern: str) -> list[tuple[str, ...]]:
    """The rows of a .def file, which C includes and Python reads: one list for both."""
    text = (DRIVER / name).read_text(encoding="utf-8")
    return [match.groups() for match in re.finditer(pattern, text, re.MULTILINE)]


FUNCTIONS = {name: index for index, (name,) in enumerate(_rows("functions.def", r"^F\((\w+)\)"))}
_METRIC_ROWS = _rows("metrics.def", r'^M\(\w+, "([\w.]+)", (\d+), (\d+)\)')
METRICS = {name: bit for bit, (name, _, _) in enumerate(_METRIC_ROWS)}
SCALES = {name: (int(numerator), int(denominator)) for name, numerator, denominator in _METRIC_ROWS}


class GpmRow(NamedTuple):
    """A row of gpm.def: its place, the wave in the driver's unit, and what makes the base unit of it."""

    bit: int
    number: int
    mean: float
    swing: float
    numerator: int
    denominator: int


GPM = {
    name: GpmRow(bit, *map(int, numbers))
    for bit, (name, *numbers) in enumerate(
        _rows("gpm.def", r'^G\(\w+, "([\w.]+)", (\d+), (\d+), (\d+), (\d+), (\d+)\)')
    )
}
GPM_ALL = 2 ** len(GPM) - 1


def of_a_first_read(metrics: Mapping[str, Missing]) -> dict[str, Missing]:
    """What concerns metrics that a source reads at once.

    Not those of GPM, which a stub has only where a test switches it on, nor what follows from them, and not XID errors,
    which a source waits for from its second look on.
    """
    return {name: why for name, why in metrics.items() if name not in (*GPM, "gpu.tensor_throughput", "gpu.xid")}


class StubProcess(ctypes.Structure):
    memory: int
    pid: int
    kind: int
    sm: int
    mem: int
    enc: int
    dec: int
    instance: int
    _fields_ = [
        ("memory", ctypes.c_uint64),
        ("pid", ctypes.c_uint32),
        ("kind", ctypes.c_uint32),
        ("sm", ctypes.c_uint32),
        ("mem", ctypes.c_uint32),
        ("enc", ctypes.c_uint32),
        ("dec", ctypes.c_uint32),
        ("instance", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
    ]


class StubGpu(ctypes.Structure):
    name: bytes
    uuid: bytes
    unsupported: "ctypes.Array[ctypes.c_uint64]"
    is_set: "ctypes.Array[ctypes.c_uint64]"
    set: "ctypes.Array[ctypes.c_uint64]"
    lost: int
    generation: int
    process_count: int
    without_gpm: int
    stall_at_ns: int
    stall_ns: int
    processes: "ctypes.Array[StubProcess]"
    _fields_ = [
        ("name", ctypes.c_char * 96),
        ("uuid", ctypes.c_char * 48),
        ("unsupported", ctypes.c_uint64 * (METRIC_ROOM // 64)),
        ("is_set", ctypes.c_uint64 * (METRIC_ROOM // 64)),
        ("set", ctypes.c_uint64 * METRIC_ROOM),
        ("lost", ctypes.c_uint32),
        ("generation", ctypes.c_uint32),
        ("process_count", ctypes.c_uint32),
        ("without_gpm", ctypes.c_uint32),
        ("stall_at_ns", ctypes.c_int64),
        ("stall_ns", ctypes.c_int64),
        ("processes", StubProcess * PROCESSES),
    ]


class StubFunction(ctypes.Structure):
    calls: "ctypes.Array[ctypes.c_uint64]"
    latency_us: "ctypes.Array[ctypes.c_uint32]"
    error: "ctypes.Array[ctypes.c_uint32]"
    _fields_ = [
        ("calls", ctypes.c_uint64 * (GPUS + 1)),
        ("latency_us", ctypes.c_uint32 * (GPUS + 1)),
        ("error", ctypes.c_uint32 * (GPUS + 1)),
    ]


class StubEvent(ctypes.Structure):
    type: int
    data: int
    gpu: int
    _fields_ = [
        ("type", ctypes.c_uint64),
        ("data", ctypes.c_uint64),
        ("gpu", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
    ]


class StubInstance(ctypes.Structure):
    """How one instance of MIG differs from the others."""

    error: int
    latency_us: int
    slices: int
    is_empty: int
    _fields_ = [
        ("error", ctypes.c_uint32),
        ("latency_us", ctypes.c_uint32),
        ("slices", ctypes.c_uint32),
        ("is_empty", ctypes.c_uint32),
    ]


class StubFile(ctypes.Structure):
    magic: int
    version: int
    size: int
    t0_ns: int
    t0_unix_ns: int
    elapsed_ns: int
    gpu_count: int
    constant: int
    driver_error: int
    pcie_bits: int
    gpus: "ctypes.Array[StubGpu]"
    functions: "ctypes.Array[StubFunction]"
    event_types: int
    event_count: int
    events: "ctypes.Array[StubEvent]"
    kernel_module: int
    one_at_a_time: int
    mig: "ctypes.Array[ctypes.c_uint32]"
    event_look_us: int
    instances: "ctypes.Array[ctypes.Array[StubInstance]]"
    _fields_ = [
        ("magic", ctypes.c_uint64),
        ("version", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("t0_ns", ctypes.c_int64),
        ("t0_unix_ns", ctypes.c_int64),
        ("elapsed_ns", ctypes.c_int64),
        ("gpu_count", ctypes.c_uint32),
        ("constant", ctypes.c_uint32),
        ("driver_error", ctypes.c_uint32),
        ("pcie_bits", ctypes.c_uint32),
        ("gpus", StubGpu * GPUS),
        ("functions", StubFunction * len(FUNCTIONS)),
        ("event_types", ctypes.c_uint64),
        ("event_count", ctypes.c_uint64),
        ("events", StubEvent * EVENTS),
        ("kernel_module", ctypes.c_uint32),
        ("one_at_a_time", ctypes.c_uint32),
        ("mig", ctypes.c_uint32 * GPUS),
        ("event_look_us", ctypes.c_uint32),
        ("instances", StubInstance * INSTANCES * GPUS),
    ]


SIZE = ctypes.sizeof(StubFile)
