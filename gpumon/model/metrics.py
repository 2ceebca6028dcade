"""The table of metrics.

Ring layout, columns, charts, JSON keys and documentation derive from `METRICS`. Units, titles and thresholds are
defined nowhere else. The ring stores values in the order of this table: append new metrics, and insert none.

Values are in base units: ratios 0 to 1, bytes, watts, joules, °C, hertz, seconds. A missing value is NaN; an
`Availability` says why it is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import NamedTuple


class Unit(Enum):
    """A base unit. The module `units` converts values to text."""

    RATIO = "ratio"
    BYTES = "bytes"
    WATTS = "watts"
    JOULES = "joules"
    CELSIUS = "celsius"
    HERTZ = "hertz"
    SECONDS = "seconds"
    COUNT = "count"
    BITS = "bits"
    BYTES_PER_SECOND = "bytes_per_second"
    PER_SECOND = "per_second"


class Kind(Enum):
    """Behavior of a metric over time."""

    GAUGE = "gauge"
    COUNTER = "counter"  # only grows until the driver is reloaded; charts show its rate


class Scope(Enum):
    """Subject of a metric (GPU or host). It is the first part of the metric's name."""

    GPU = "gpu"
    HOST = "host"


class Availability(IntEnum):
    """Whether a value is available, and if not, why. The number is stored in the ring."""

    ABSENT = 0  # no device uses this row of the ring at present
    OK = 1
    NOT_SUPPORTED = 2  # this card or driver does not have it
    NO_PERMISSION = 3
    NO_DRIVER = 4
    LOST = 5  # the GPU fell off the bus, or the driver lost it
    STALE = 6  # a driver call has not returned; the values are the last known ones
    FAILED = 7  # the driver returned another error
    NOT_RECORDED = 8  # a recording does not have it; the GPU itself may
    UNRELIABLE = 9  # the driver's number is too late, too rare or impossible
    RESET_REQUIRED = 10  # the GPU does nothing until it is reset
    ASLEEP = 11  # powered down by the system; a driver call would wake it
    SWITCHED_OFF = 12  # disabled by an option
    TOO_EARLY = 13  # a mean between two samples, but only one has been taken
    SHARED_WITH_HOST = 14  # device memory of a chip that uses the host's memory
    IN_MIG_MODE = 15  # utilization: the driver reports it neither for a GPU in MIG mode nor for its instances
    OF_WHOLE_GPU = 16  # not reported for an instance: its GPU has one power draw, one temperature, one link
    OF_INSTANCES = 17  # reported only for the instances of a GPU in MIG mode

    @property
    def title(self) -> str:
        """Availability in words, such as `no driver`."""
        return self.name.lower().replace("_", " ")

    @property
    def reason(self) -> str:
        """Text that follows "not available: "."""
        return _REASONS[self]

    @classmethod
    def _missing_(cls, value: object) -> Availability | None:
        """Treat a number that only a later version of gpumon defines as FAILED."""
        return cls.FAILED if isinstance(value, int) and value >= 0 else None


_REASONS = {
    Availability.ABSENT: "the device does not exist at the moment",
    Availability.OK: "available",
    Availability.NOT_SUPPORTED: "this GPU or driver does not report it",
    Availability.NO_PERMISSION: "requires elevated privileges",
    Availability.NO_DRIVER: "no GPU driver answers",
    Availability.LOST: "the driver lost this GPU",
    Availability.STALE: "the driver does not answer",
    Availability.FAILED: "the driver answered with an error",
    Availability.NOT_RECORDED: "not in the recording",
    Availability.UNRELIABLE: "the driver's values are late, rare or impossible",
    Availability.RESET_REQUIRED: "the GPU must be reset",
    Availability.ASLEEP: "powered down until a program uses it",
    Availability.SWITCHED_OFF: "switched off when gpumon was started",
    Availability.TOO_EARLY: "available from the second sample on",
    Availability.SHARED_WITH_HOST: "shared with the host",
    Availability.IN_MIG_MODE: "the driver does not report it in MIG mode",
    Availability.OF_WHOLE_GPU: "only the whole GPU reports it",
    Availability.OF_INSTANCES: "only the MIG instances of this GPU report it",
}


class Metric(NamedTuple):
    """A row of the table of metrics."""

    name: str
    """Scope and key, such as `gpu.memory_used`."""
    title: str
    """Title of the metric in charts and sentences."""
    column: str
    """A table heading of at most 6 letters."""
    unit: Unit
    help: str
    """One sentence that says what the metric means, and what it does not mean."""
    kind: Kind = Kind.GAUGE
    limit: str = ""
    """Name of the metric whose value is the full scale of this one in bars and on axes; empty if there is none."""
    warn: float = float("inf")
    """Warning threshold. If there is a `limit`, it is a fraction of that, else in the unit. The same holds for
    `critical`."""
    critical: float = float("inf")
    maximum: float = float("inf")
    """Largest plausible value in the unit; a driver's number beyond it is rejected."""

    @property
    def scope(self) -> Scope:
        return Scope(self.name.partition(".")[0])

    @property
    def key(self) -> str:
        """The name without its scope: the key in JSON."""
        return self.name.partition(".")[2]


IDLE = 0.05
"""Utilization below which a GPU is idle: in every view, and in the ledger's idle share."""

_C = Kind.COUNTER
# Far above real cards, which have up to 1.4 kW, 14 GHz (GDDR7), generation 6 and 32 lanes. Most wrong readings are even
# larger than these numbers.
_HOTTEST, _KILOWATTS, _NEWEST_PCIE, _WIDEST_PCIE = 250.0, 10e3, 15.0, 64.0

# name, title, column, unit, help, kind
GPU_METRICS: tuple[Metric, ...] = (
    Metric("gpu.utilization", "Utilization", "UTIL", Unit.RATIO,
           "Share of the driver's last sample period (1/6 to 1 s) in which at least one kernel ran; "
           "it does not say how many multiprocessors were busy."),
    Metric("gpu.memory_utilization", "Memory activity", "MBW", Unit.RATIO,
           "Share of the driver's last sample period in which device memory was read or written."),
    Metric("gpu.memory_used", "Memory", "MEM", Unit.BYTES,
           "Device memory held by all processes, without the driver's own reservation.",
           limit="gpu.memory_total", warn=0.92, critical=0.97),
    Metric("gpu.memory_reserved", "Memory reserved by the driver", "RSVD", Unit.BYTES,
           "Device memory reserved by driver and firmware.", limit="gpu.memory_total"),
    Metric("gpu.memory_total", "Total memory", "TOTAL", Unit.BYTES, "Total device memory of the card."),
    Metric("gpu.power", "Power", "POWER", Unit.WATTS,
           "Power draw of the whole board; on most cards since Ampere, the mean of the last second.",
           limit="gpu.power_limit", maximum=_KILOWATTS),
    Metric("gpu.power_limit", "Power limit", "LIMIT", Unit.WATTS, "Limit that the driver enforces now.",
           maximum=_KILOWATTS),
    Metric("gpu.energy", "Energy", "ENERGY", Unit.JOULES,
           "Energy used by the board since the driver was loaded, from the driver's counter.", _C),
    Metric("gpu.temperature", "Temperature", "TEMP", Unit.CELSIUS, "Temperature of the GPU core.", warn=83, critical=90,
           maximum=_HOTTEST),
    Metric("gpu.temperature_memory", "Memory temperature", "MTEMP", Unit.CELSIUS,
           "Temperature of the device memory, on cards that measure it.", warn=90, critical=100, maximum=_HOTTEST),
    Metric("gpu.clock_sm", "SM clock", "CLOCK", Unit.HERTZ, "Current clock of the multiprocessors.", maximum=10e9),
    Metric("gpu.clock_memory", "Memory clock", "MCLK", Unit.HERTZ, "Current clock of the device memory.", maximum=50e9),
    Metric("gpu.event_reasons", "Clock event reasons", "EVENTS", Unit.BITS,
           "Bit mask of the reasons for the current clocks; the vendor defines the bits."),
    Metric("gpu.throttled_sw_power", "Throttled by the power limit", "T-POW", Unit.SECONDS,
           "Time the clocks were held down by the power limit; normal at full load.", _C),
    Metric("gpu.throttled_sw_thermal", "Throttled by heat (driver)", "T-THM", Unit.SECONDS,
           "Time the driver lowered the clocks because of heat.", _C, warn=0.01, critical=0.1),
    Metric("gpu.throttled_hw_thermal", "Throttled by heat (hardware)", "T-HOT", Unit.SECONDS,
           "Time the hardware cut the clocks because of heat.", _C, warn=0.001, critical=0.01),
    Metric("gpu.throttled_hw_power_brake", "Throttled by the power brake", "T-BRK", Unit.SECONDS,
           "Time an external signal, such as a power supply's, cut the clocks.", _C, warn=0.001, critical=0.01),
    Metric("gpu.throttled_sync_boost", "Held by sync boost", "T-SYN", Unit.SECONDS,
           "Time the clocks followed a slower GPU of the same sync boost group.", _C),
    Metric("gpu.fan", "Fan", "FAN", Unit.RATIO, "Requested fan speed; passively cooled cards have none.",
           maximum=2),
    Metric("gpu.performance_state", "Performance state", "P", Unit.COUNT,
           "State of the clocks: 0 is the fastest, 15 the slowest.",
           maximum=15),
    Metric("gpu.pcie_generation", "PCIe generation", "PCIE", Unit.COUNT, "Current generation of the link; idle links "
                                                                         "step down.",
           limit="gpu.pcie_generation_max", maximum=_NEWEST_PCIE),
    Metric("gpu.pcie_width", "PCIe width", "LANES", Unit.COUNT, "Current number of lanes.",
           limit="gpu.pcie_width_max", maximum=_WIDEST_PCIE),
    Metric("gpu.pcie_sent", "PCIe sent", "PCI-TX", Unit.BYTES, "Bytes the GPU sent over PCIe.", _C),
    Metric("gpu.pcie_received", "PCIe received", "PCI-RX", Unit.BYTES, "Bytes the GPU received over PCIe.", _C),
    Metric("gpu.encoder_utilization", "Video encoder", "ENC", Unit.RATIO, "Share of time the video encoder was busy."),
    Metric("gpu.decoder_utilization", "Video decoder", "DEC", Unit.RATIO, "Share of time the video decoder was busy."),
    Metric("gpu.run_allocated", "Allocated by the run", "ALLOC", Unit.BYTES,
           "Device memory in live tensors, as reported by the framework of the run.", limit="gpu.memory_total"),
    Metric("gpu.run_reserved", "Reserved by the framework", "HELD", Unit.BYTES,
           "Device memory that the framework's allocator took from the driver: live tensors and its cache.",
           limit="gpu.memory_total"),
    Metric("gpu.run_inactive_split", "Fragments", "FRAG", Unit.BYTES,
           "Free parts of allocator blocks that are still partly live; the framework cannot return them to the driver.",
           limit="gpu.memory_total"),
    Metric("gpu.run_used", "Memory of the run's processes", "RUNMEM", Unit.BYTES,
           "Device memory held by all processes of the run, as the driver reports it: with contexts and libraries.",
           limit="gpu.memory_total"),
    Metric("gpu.power_instant", "Instant power", "P-NOW", Unit.WATTS,
           "Power draw of the whole board when the driver measured it last, where `gpu.power` may be a mean.",
           limit="gpu.power_limit", maximum=_KILOWATTS),
    Metric("gpu.nvlink_sent", "NVLink sent", "NVL-TX", Unit.BYTES,
           "Bytes of data the GPU sent over all its NVLink links, without the protocol.", _C),
    Metric("gpu.nvlink_received", "NVLink received", "NVL-RX", Unit.BYTES,
           "Bytes of data the GPU received over all its NVLink links, without the protocol.", _C),
    Metric("gpu.ecc_corrected", "Corrected ECC errors", "ECC-C", Unit.COUNT,
           "Memory errors that ECC has corrected since the driver was loaded; no result was wrong."),
    Metric("gpu.ecc_uncorrected", "Uncorrected ECC errors", "ECC-U", Unit.COUNT,
           "Memory errors since the driver was loaded that ECC could not correct; what was running then may be wrong.",
           warn=1, critical=1),
    Metric("gpu.ecc_corrected_lifetime", "Corrected ECC errors in all", "ECC-CL", Unit.COUNT,
           "Memory errors that ECC has corrected in the life of the card."),
    Metric("gpu.ecc_uncorrected_lifetime", "Uncorrected ECC errors in all", "ECC-UL", Unit.COUNT,
           "Memory errors in the life of the card that ECC could not correct."),
    Metric("gpu.rows_remapped_corrected", "Rows remapped for corrected errors", "ROW-C", Unit.COUNT,
           "Rows of the memory that the card has replaced because of errors that ECC corrected."),
    Metric("gpu.rows_remapped_uncorrected", "Rows remapped for uncorrected errors", "ROW-U", Unit.COUNT,
           "Rows of the memory that the card has replaced because of errors that ECC could not correct."),
    Metric("gpu.remapping_pending", "Row remapping pending", "ROW-P", Unit.COUNT,
           "1 while rows of the memory wait for a reset of the GPU to be replaced, else 0.", warn=1),
    Metric("gpu.remapping_failed", "Row remapping failed", "ROW-F", Unit.COUNT,
           "1 after rows of the memory could not be replaced, else 0.", warn=1, critical=1),
    Metric("gpu.retirement_pending", "Page retirement pending", "RETIRE", Unit.COUNT,
           "1 while memory pages wait for a reset of the GPU to be retired, else 0; on cards without row remapping.",
           warn=1),
    Metric("gpu.recovery_action", "Recovery action", "RECOV", Unit.COUNT,
           "Number of the action that the driver requires before the GPU works fully again; 0: none.", warn=1),
    Metric("gpu.pcie_replays", "PCIe replays", "REPLAY", Unit.COUNT,
           "Packets that had to be sent again over PCIe since the driver was loaded."),
    Metric("gpu.nvlink_links", "NVLink links", "LINKS", Unit.COUNT, "NVLink links that the GPU has, in use or not."),
    Metric("gpu.nvlink_active", "Active NVLink links", "L-UP", Unit.COUNT,
           "NVLink links that are up; those without a bridge or a switch behind them are not.",
           limit="gpu.nvlink_links"),
    Metric("gpu.nvlink_replays", "NVLink replays", "L-RPLY", Unit.COUNT,
           "Packets that had to be sent again over the NVLink links that are up."),
    Metric("gpu.nvlink_recoveries", "NVLink recoveries", "L-RCVR", Unit.COUNT,
           "Times that the NVLink links that are up had to be trained again."),
    Metric("gpu.nvlink_crc_errors", "NVLink CRC errors", "L-CRC", Unit.COUNT,
           "Packets that arrived damaged over the NVLink links that are up."),
    Metric("gpu.graphics_activity", "Graphics activity", "GRACT", Unit.RATIO,
           "Share of time in which the engine for graphics and compute was busy; one small kernel is enough for that."),
    Metric("gpu.sm_activity", "SM activity", "SMACT", Unit.RATIO,
           "Share of time in which a multiprocessor had work, over all of them; waiting for memory counts as work."),
    Metric("gpu.sm_occupancy", "SM occupancy", "SMOCC", Unit.RATIO,
           "Warps on the multiprocessors, as a share of the maximum; high occupancy does not mean high speed."),
    Metric("gpu.tensor_activity", "Tensor activity", "TENSO", Unit.RATIO,
           "Share of time in which the tensor cores worked; it does not tell in which number format."),
    Metric("gpu.fp64_activity", "FP64 activity", "FP64A", Unit.RATIO,
           "Share of time in which the multiprocessors calculated in FP64, without tensor cores."),
    Metric("gpu.fp32_activity", "FP32 activity", "FP32A", Unit.RATIO,
           "Share of time in which the multiprocessors calculated in FP32, without tensor cores."),
    Metric("gpu.fp16_activity", "FP16 activity", "FP16A", Unit.RATIO,
           "Share of time in which the multiprocessors calculated in FP16, without tensor cores."),
    Metric("gpu.dram_activity", "DRAM activity", "DRAMA", Unit.RATIO,
           "Used share of the device memory's peak bandwidth; it does not tell reads from writes."),
    Metric("gpu.pcie_sent_rate", "PCIe sent rate", "PCITX", Unit.BYTES_PER_SECOND,
           "Rate at which the GPU sent over PCIe, as GPM measures it."),
    Metric("gpu.pcie_received_rate", "PCIe received rate", "PCIRX", Unit.BYTES_PER_SECOND,
           "Rate at which the GPU received over PCIe, as GPM measures it."),
    Metric("gpu.nvlink_sent_rate", "NVLink sent rate", "NVLTX", Unit.BYTES_PER_SECOND,
           "Rate at which the GPU sent over all its NVLinks, as GPM measures it; it does not tell links apart."),
    Metric("gpu.nvlink_received_rate", "NVLink received rate", "NVLRX", Unit.BYTES_PER_SECOND,
           "Rate at which the GPU received over all its NVLinks, as GPM measures it; it does not tell links apart."),
    Metric("gpu.pcie_generation_max", "Highest PCIe generation", "GENMAX", Unit.COUNT,
           "Highest generation of the link that this GPU allows in this machine.", maximum=_NEWEST_PCIE),
    Metric("gpu.pcie_width_max", "Most PCIe lanes", "LANMAX", Unit.COUNT,
           "Most lanes of the link that this GPU allows in this machine.", maximum=_WIDEST_PCIE),
    Metric("gpu.temperature_slowdown", "Slowdown temperature", "T-SLOW", Unit.CELSIUS,
           "Temperature from which on the hardware cuts the clocks; cards that report only a margin do not have it.",
           maximum=_HOTTEST),
    Metric("gpu.temperature_shutdown", "Shutdown temperature", "T-SHUT", Unit.CELSIUS,
           "Temperature at which the GPU shuts down to protect itself; cards that report only a margin do not have it.",
           maximum=_HOTTEST),
    Metric("gpu.temperature_margin", "Temperature margin", "MARGIN", Unit.CELSIUS,
           "Degrees up to the temperature at which the clocks are lowered, as the driver reports it, "
           "or else up to `gpu.temperature_slowdown`; below 0 they are lowered.", maximum=_HOTTEST),
    Metric("gpu.jpeg_utilization", "JPEG engine", "JPEG", Unit.RATIO, "Share of time the JPEG engine was busy."),
    Metric("gpu.optical_flow_utilization", "Optical flow engine", "OFA", Unit.RATIO,
           "Share of time the optical flow accelerator was busy."),
    Metric("gpu.utilization_low", "Lowest utilization", "LOW", Unit.RATIO,
           "Lowest utilization in the newest batch of the driver's own samples. The driver takes 5 or 6 samples "
           "a second; a batch is read every 8 s. A stall shorter than a tick is visible here some seconds later."),
    Metric("gpu.idle_share", "Idle share", "IDLE", Unit.RATIO,
           f"Share of the samples in this batch (see `gpu.utilization_low`) with utilization below {IDLE * 100:g} %."),
    Metric("gpu.xid", "XID error", "XID", Unit.COUNT,
           "Code of the most severe fault of the card that the driver reported to this daemon since a reset; 0: none. "
           "Errors of applications are only in the event log."),
    Metric("gpu.memory_unattributed", "Unattributed memory", "UNATTR", Unit.BYTES,
           "Memory in use that belongs to no listed process, for example of processes in other containers. "
           "Read with the process list, every 3 s, if the driver reports the memory of each process.",
           limit="gpu.memory_total"),
    Metric("gpu.mig_instances", "MIG instances", "MIG", Unit.COUNT,
           "Number of MIG instances of the GPU; also 0 if MIG mode is on without any instance."),
)  # fmt: skip

FROM_TRAININGS = frozenset(metric.name for metric in GPU_METRICS if metric.name.startswith("gpu.run_"))
"""Metrics that no driver reports: the sampler derives them from training boards and the driver's processes."""
FROM_DRIVERS = tuple(metric.name for metric in GPU_METRICS if metric.name not in FROM_TRAININGS)
"""Metrics that a source can read. For each one that a device lacks, the source gives the reason."""

PROCESSES = "gpu.processes"
"""Key in `Device.missing` with the reason why the list of processes cannot be read. It is not a metric."""
PROCESS_SHARES = "gpu.process_utilization"
"""Key in `Device.missing` with the reason why the utilization of processes cannot be read. It is not a metric."""

HOST_METRICS: tuple[Metric, ...] = (
    Metric("host.cpu_utilization", "CPU", "CPU", Unit.RATIO,
           "Share of CPU time, over all CPUs, that was neither idle nor waiting for I/O.", warn=0.95),
    Metric("host.memory_used", "Memory", "MEM", Unit.BYTES, "Memory in use: total minus available.",
           limit="host.memory_total", warn=0.9, critical=0.97),
    Metric("host.memory_total", "Total memory", "TOTAL", Unit.BYTES, "Total memory of the machine."),
    Metric("host.swap_used", "Swap", "SWAP", Unit.BYTES, "Swap in use.", limit="host.swap_total"),
    Metric("host.swap_total", "Total swap", "SWTOT", Unit.BYTES, "Configured swap space."),
    Metric("host.load", "Load", "LOAD", Unit.COUNT, "Tasks that run or wait for a disk, averaged over one minute."),
    Metric("host.disk_read", "Disk read", "READ", Unit.BYTES, "Bytes read from all disks.", _C),
    Metric("host.disk_written", "Disk written", "WRITE", Unit.BYTES, "Bytes written to all disks.", _C),
    Metric("host.network_received", "Network received", "NET-RX", Unit.BYTES,
           "Bytes received on all interfaces but loopback.", _C),
    Metric("host.network_sent", "Network sent", "NET-TX", Unit.BYTES,
           "Bytes sent on all interfaces but loopback.", _C),
)  # fmt: skip

METRICS: tuple[Metric, ...] = GPU_METRICS + HOST_METRICS
BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}

GPU_INDEX: dict[str, int] = {metric.name: i for i, metric in enumerate(GPU_METRICS)}
"""Index of a metric in a device's list of values."""
HOST_INDEX: dict[str, int] = {metric.name: i for i, metric in enumerate(HOST_METRICS)}

PCIE_LINK = ("gpu.pcie_generation", "gpu.pcie_width")
"""Metrics of the current speed of a PCIe link, each with a `limit`."""


_GPM = "Hopper or newer, and GPM in a driver of 525 or newer"
_NVLINK = "NVLink"
_ECC = "memory with ECC, switched on"
_ROWS = "Ampere or newer, memory with ECC"
_SAMPLES = "a driver that keeps utilization samples; none for MIG, none in WSL"
_NEW = "a newer driver"

NEEDS: Mapping[str, str] = {
    "gpu.memory_reserved": _NEW,
    "gpu.energy": "Volta or newer",
    "gpu.temperature_memory": "a sensor in the memory, as HBM has",
    "gpu.throttled_sw_thermal": _NEW,
    "gpu.throttled_hw_thermal": _NEW,
    "gpu.throttled_hw_power_brake": _NEW,
    "gpu.fan": "fans of its own",
    "gpu.pcie_sent": _NEW,
    "gpu.pcie_received": _NEW,
    "gpu.power_instant": _NEW,
    "gpu.nvlink_sent": _NVLINK,
    "gpu.nvlink_received": _NVLINK,
    "gpu.ecc_corrected": _ECC,
    "gpu.ecc_uncorrected": _ECC,
    "gpu.ecc_corrected_lifetime": _ECC,
    "gpu.ecc_uncorrected_lifetime": _ECC,
    "gpu.rows_remapped_corrected": _ROWS,
    "gpu.rows_remapped_uncorrected": _ROWS,
    "gpu.remapping_pending": _ROWS,
    "gpu.remapping_failed": _ROWS,
    "gpu.retirement_pending": "a data center card before Ampere",
    "gpu.recovery_action": _NEW,
    "gpu.nvlink_links": _NVLINK,
    "gpu.nvlink_active": _NVLINK,
    "gpu.nvlink_replays": _NVLINK,
    "gpu.nvlink_recoveries": _NVLINK,
    "gpu.nvlink_crc_errors": _NVLINK,
    "gpu.graphics_activity": _GPM,
    "gpu.sm_activity": _GPM,
    "gpu.sm_occupancy": _GPM,
    "gpu.tensor_activity": _GPM,
    "gpu.fp64_activity": _GPM,
    "gpu.fp32_activity": _GPM,
    "gpu.fp16_activity": _GPM,
    "gpu.dram_activity": _GPM,
    "gpu.pcie_sent_rate": _GPM,
    "gpu.pcie_received_rate": _GPM,
    "gpu.nvlink_sent_rate": _GPM,
    "gpu.nvlink_received_rate": _GPM,
    "gpu.temperature_slowdown": "a card that reports thresholds: newer cards report only a margin",
    "gpu.temperature_shutdown": "a card that reports thresholds: newer cards report only a margin",
    "gpu.jpeg_utilization": "Turing or newer",
    "gpu.optical_flow_utilization": "Turing or newer",
    "gpu.utilization_low": _SAMPLES,
    "gpu.idle_share": _SAMPLES,
    "gpu.xid": "Linux, and a whole GPU: none for a MIG instance, none in WSL",
    "gpu.memory_unattributed": (
        "a driver newer than 470, which reports its own reservation, and the memory of each process: none in WSL"
    ),
    "gpu.mig_instances": "a GPU with MIG",
}
"""The GPU or driver that a metric needs, by name of the metric. Nearly every card has the metrics that are not
listed."""


def why_missing(metric: str, why: Availability) -> str:
    """Return why a GPU lacks a metric and, if it is not supported, which GPU or driver it needs."""
    need = NEEDS.get(metric, "") if why is Availability.NOT_SUPPORTED else ""
    return f"{why.reason} (needs {need})" if need else why.reason


def title_within(metric: str) -> str:
    """Return the title of a metric in the form for the middle of a sentence: `corrected ECC errors`, `PCIe width`.

    `metric` is the name of a metric. If the table does not have it, returns the name in words.
    """
    title = BY_NAME[metric].title if metric in BY_NAME else metric.removeprefix("gpu.").replace("_", " ")
    return title[:1].lower() + title[1:] if title[1:2].islower() else title
