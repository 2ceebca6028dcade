"""The table of metrics.

Ring layout, columns, charts, JSON keys and documentation derive from `METRICS`. Units, titles and thresholds are
defined nowhere else. The ring stores values in the order of this table, so new metrics must be appended.

Values are in base units: ratios 0 to 1, bytes, watts, joules, °C, hertz, seconds. A missing value is NaN. An
`Availability` says why the value is missing.
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
    COUNTER = "counter"  # only grows until the driver is reloaded. Charts show the rate


class Scope(Enum):
    """Subject of a metric (GPU or host). It is the first part of the metric's name."""

    GPU = "gpu"
    HOST = "host"


class Availability(IntEnum):
    """Whether a value is available, or why it is not. The ring stores the member's number."""

    ABSENT = 0  # no device uses this row of the ring at present
    OK = 1
    NOT_SUPPORTED = 2  # this card or driver does not report the value
    NO_PERMISSION = 3
    NO_DRIVER = 4
    LOST = 5  # the GPU fell off the bus, or the driver lost it
    STALE = 6  # a driver call has not returned; the values are the last ones read
    FAILED = 7  # the driver returned another error
    NOT_RECORDED = 8  # the recording does not have the value, but the GPU may
    UNRELIABLE = 9  # the driver's number is too late, too rare or impossible
    RESET_REQUIRED = 10  # the GPU does nothing until it is reset
    ASLEEP = 11  # powered down by the system; a driver call would wake it
    SWITCHED_OFF = 12  # disabled by an option
    TOO_EARLY = 13  # the value is a mean between two samples, but there is only one sample
    SHARED_WITH_HOST = 14  # device memory of a chip that uses the host's memory
    IN_MIG_MODE = 15  # the driver reports no utilization for a GPU in MIG mode or its instances
    OF_WHOLE_GPU = 16  # not reported for an instance, because its GPU has one power draw, one temperature, one link
    OF_INSTANCES = 17  # reported only for the instances of a divided GPU
    OF_OTHER_DIE = 18  # a card with two dies: the other die reports the value for both

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
        """Return FAILED for a number that only a later version of gpumon defines."""
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
    Availability.OF_INSTANCES: "only the instances or partitions of this GPU report it",
    Availability.OF_OTHER_DIE: "the other die of the card reports it for both",
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
    """What the metric means, and if necessary, what it does not mean."""
    kind: Kind = Kind.GAUGE
    limit: str = ""
    """Name of the metric whose value is the maximum of this metric in bars and on axes; empty if there is none."""
    warn: float = float("inf")
    """Warning threshold. It is a fraction of the limit if the metric has a `limit`; otherwise it is in the unit of the
    metric. The same applies to `critical`."""
    critical: float = float("inf")
    maximum: float = float("inf")
    """Largest plausible value in the unit of the metric. Larger numbers from the driver are rejected."""

    @property
    def scope(self) -> Scope:
        return Scope(self.name.partition(".")[0])

    @property
    def key(self) -> str:
        """The name without its scope: the key in JSON."""
        return self.name.partition(".")[2]


IDLE = 0.05
"""A GPU with a utilization below this share counts as idle, in every view and in the ledger's idle share."""

_C = Kind.COUNTER
# These maxima are far above real cards, which have up to 1.4 kW, 14 GHz (GDDR7), generation 6 and 32 lanes. Most wrong
# readings are even larger than the maxima.
_HOTTEST, _KILOWATTS, _NEWEST_PCIE, _WIDEST_PCIE = 250.0, 10e3, 15.0, 64.0

# name, title, column, unit, help, kind
GPU_METRICS: tuple[Metric, ...] = (
    Metric("gpu.utilization", "Utilization", "UTIL", Unit.RATIO,
           "Share of the driver's last sample period (1/6 to 1 s) in which at least one kernel ran. "
           "It does not show how many multiprocessors were busy."),
    Metric("gpu.memory_utilization", "Memory activity", "MBW", Unit.RATIO,
           "Share of the driver's last sample period in which device memory was read or written."),
    Metric("gpu.memory_used", "Memory", "MEM", Unit.BYTES,
           "Device memory held by all processes, without the driver's own reservation.",
           limit="gpu.memory_total", warn=0.92, critical=0.97),
    Metric("gpu.memory_reserved", "Memory reserved by the driver", "RSVD", Unit.BYTES,
           "Device memory reserved by driver and firmware.", limit="gpu.memory_total"),
    Metric("gpu.memory_total", "Total memory", "TOTAL", Unit.BYTES, "Total device memory of the card."),
    Metric("gpu.power", "Power", "POWER", Unit.WATTS,
           "Power draw of the whole board. On most cards since Ampere, this is the mean of the last second.",
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
           "Bit mask of the reasons for the current clocks. The vendor defines the bits."),
    Metric("gpu.throttled_sw_power", "Throttled by the power limit", "T-POW", Unit.SECONDS,
           "Time for which the power limit lowered the clocks. This is normal at full load.", _C),
    Metric("gpu.throttled_sw_thermal", "Throttled by heat (driver)", "T-THM", Unit.SECONDS,
           "Time for which the driver lowered the clocks because of heat.", _C, warn=0.01, critical=0.1),
    Metric("gpu.throttled_hw_thermal", "Throttled by heat (hardware)", "T-HOT", Unit.SECONDS,
           "Time for which the hardware lowered the clocks because of heat.", _C, warn=0.001, critical=0.01),
    Metric("gpu.throttled_hw_power_brake", "Throttled by the power brake", "T-BRK", Unit.SECONDS,
           "Time for which an external signal, such as one from a power supply, lowered the clocks.", _C,
           warn=0.001, critical=0.01),
    Metric("gpu.throttled_sync_boost", "Held by sync boost", "T-SYN", Unit.SECONDS,
           "Time for which the clocks followed a slower GPU in the same sync boost group.", _C),
    Metric("gpu.fan", "Fan", "FAN", Unit.RATIO, "Requested fan speed. Passively cooled cards have none.",
           maximum=2),
    Metric("gpu.performance_state", "Performance state", "P", Unit.COUNT,
           "State of the clocks. 0 is the fastest, 15 the slowest.",
           maximum=15),
    Metric("gpu.pcie_generation", "PCIe generation", "PCIE", Unit.COUNT, "Current generation of the link. Idle links "
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
           "Device memory that the framework's allocator took from the driver, for live tensors and its cache.",
           limit="gpu.memory_total"),
    Metric("gpu.run_inactive_split", "Fragments", "FRAG", Unit.BYTES,
           "Free memory in blocks that are still partly in use. The framework cannot return it to the driver.",
           limit="gpu.memory_total"),
    Metric("gpu.run_used", "Memory of the run's processes", "RUNMEM", Unit.BYTES,
           "Device memory of all processes of the run, with contexts and libraries, from the driver.",
           limit="gpu.memory_total"),
    Metric("gpu.power_instant", "Instant power", "P-NOW", Unit.WATTS,
           "Power draw of the whole board at the driver's last measurement. `gpu.power` may be a mean instead.",
           limit="gpu.power_limit", maximum=_KILOWATTS),
    Metric("gpu.nvlink_sent", "NVLink sent", "NVL-TX", Unit.BYTES,
           "Bytes of data that the GPU sent over all its NVLink links, without protocol overhead.", _C),
    Metric("gpu.nvlink_received", "NVLink received", "NVL-RX", Unit.BYTES,
           "Bytes of data that the GPU received over all its NVLink links, without protocol overhead.", _C),
    Metric("gpu.ecc_corrected", "Corrected ECC errors", "ECC-C", Unit.COUNT,
           "Memory errors that ECC has corrected since the driver was loaded. They caused no wrong results."),
    Metric("gpu.ecc_uncorrected", "Uncorrected ECC errors", "ECC-U", Unit.COUNT,
           "Memory errors since the driver was loaded that ECC could not correct. Results computed then may be wrong.",
           warn=1, critical=1),
    Metric("gpu.ecc_corrected_lifetime", "Corrected ECC errors in all", "ECC-CL", Unit.COUNT,
           "Memory errors that ECC has corrected since the card was made."),
    Metric("gpu.ecc_uncorrected_lifetime", "Uncorrected ECC errors in all", "ECC-UL", Unit.COUNT,
           "Memory errors since the card was made that ECC could not correct."),
    Metric("gpu.rows_remapped_corrected", "Rows remapped for corrected errors", "ROW-C", Unit.COUNT,
           "Memory rows that the card has replaced because of errors that ECC corrected."),
    Metric("gpu.rows_remapped_uncorrected", "Rows remapped for uncorrected errors", "ROW-U", Unit.COUNT,
           "Memory rows that the card has replaced because of errors that ECC could not correct."),
    Metric("gpu.remapping_pending", "Row remapping pending", "ROW-P", Unit.COUNT,
           "1 while memory rows will be replaced at the next reset of the GPU, else 0.", warn=1),
    Metric("gpu.remapping_failed", "Row remapping failed", "ROW-F", Unit.COUNT,
           "1 after memory rows could not be replaced, else 0.", warn=1, critical=1),
    Metric("gpu.retirement_pending", "Page retirement pending", "RETIRE", Unit.COUNT,
           "1 while memory pages will be retired at the next reset, else 0. Only on cards without row remapping.",
           warn=1),
    Metric("gpu.recovery_action", "Recovery action", "RECOV", Unit.COUNT,
           "Number of the action that the driver requires before the GPU works fully again. 0: none.", warn=1),
    Metric("gpu.pcie_replays", "PCIe replays", "REPLAY", Unit.COUNT,
           "Packets that had to be sent again over PCIe since the driver was loaded."),
    Metric("gpu.nvlink_links", "NVLink links", "LINKS", Unit.COUNT, "NVLink links that the GPU has, in use or not."),
    Metric("gpu.nvlink_active", "Active NVLink links", "L-UP", Unit.COUNT,
           "NVLink links that are up. Links that lead to no bridge or switch are not.",
           limit="gpu.nvlink_links"),
    Metric("gpu.nvlink_replays", "NVLink replays", "L-RPLY", Unit.COUNT,
           "Packets that had to be sent again over active NVLink links."),
    Metric("gpu.nvlink_recoveries", "NVLink recoveries", "L-RCVR", Unit.COUNT,
           "Number of times that active NVLink links had to be trained again."),
    Metric("gpu.nvlink_crc_errors", "NVLink CRC errors", "L-CRC", Unit.COUNT,
           "Packets that arrived damaged over active NVLink links."),
    Metric("gpu.graphics_activity", "Graphics activity", "GRACT", Unit.RATIO,
           "Share of time in which the engine for graphics and compute was busy. One small kernel keeps it busy."),
    Metric("gpu.sm_activity", "SM activity", "SMACT", Unit.RATIO,
           "Share of time in which multiprocessors had work, averaged over all. Waiting for memory counts as work."),
    Metric("gpu.sm_occupancy", "SM occupancy", "SMOCC", Unit.RATIO,
           "Warps on the multiprocessors, as a share of the maximum. High occupancy does not mean high speed."),
    Metric("gpu.tensor_activity", "Tensor activity", "TENSO", Unit.RATIO,
           "Share of time in which the tensor cores worked, in any number format."),
    Metric("gpu.fp64_activity", "FP64 activity", "FP64A", Unit.RATIO,
           "Share of time in which the multiprocessors calculated in FP64, without tensor cores."),
    Metric("gpu.fp32_activity", "FP32 activity", "FP32A", Unit.RATIO,
           "Share of time in which the multiprocessors calculated in FP32, without tensor cores."),
    Metric("gpu.fp16_activity", "FP16 activity", "FP16A", Unit.RATIO,
           "Share of time in which the multiprocessors calculated in FP16, without tensor cores."),
    Metric("gpu.dram_activity", "DRAM activity", "DRAMA", Unit.RATIO,
           "Used share of the device memory's peak bandwidth, for reads and writes together."),
    Metric("gpu.pcie_sent_rate", "PCIe sent rate", "PCITX", Unit.BYTES_PER_SECOND,
           "Rate at which the GPU sent over PCIe, measured by GPM."),
    Metric("gpu.pcie_received_rate", "PCIe received rate", "PCIRX", Unit.BYTES_PER_SECOND,
           "Rate at which the GPU received over PCIe, measured by GPM."),
    Metric("gpu.nvlink_sent_rate", "NVLink sent rate", "NVLTX", Unit.BYTES_PER_SECOND,
           "Rate at which the GPU sent over all its NVLinks together, measured by GPM."),
    Metric("gpu.nvlink_received_rate", "NVLink received rate", "NVLRX", Unit.BYTES_PER_SECOND,
           "Rate at which the GPU received over all its NVLinks together, measured by GPM."),
    Metric("gpu.pcie_generation_max", "Highest PCIe generation", "GENMAX", Unit.COUNT,
           "Highest generation of the link that this GPU allows in this machine.", maximum=_NEWEST_PCIE),
    Metric("gpu.pcie_width_max", "Most PCIe lanes", "LANMAX", Unit.COUNT,
           "Most lanes of the link that this GPU allows in this machine.", maximum=_WIDEST_PCIE),
    Metric("gpu.temperature_slowdown", "Slowdown temperature", "T-SLOW", Unit.CELSIUS,
           "Temperature at which the hardware lowers the clocks. Cards that report only a margin do not have it.",
           maximum=_HOTTEST),
    Metric("gpu.temperature_shutdown", "Shutdown temperature", "T-SHUT", Unit.CELSIUS,
           "Temperature at which the GPU shuts down to protect itself. Cards that report only a margin do not have it.",
           maximum=_HOTTEST),
    Metric("gpu.temperature_margin", "Temperature margin", "MARGIN", Unit.CELSIUS,
           "Degrees left before the clocks are lowered: the margin that the driver reports or, if it reports none, the "
           "distance to `gpu.temperature_slowdown`. If negative, the clocks are being lowered.", maximum=_HOTTEST),
    Metric("gpu.jpeg_utilization", "JPEG engine", "JPEG", Unit.RATIO, "Share of time the JPEG engine was busy."),
    Metric("gpu.optical_flow_utilization", "Optical flow engine", "OFA", Unit.RATIO,
           "Share of time the optical flow accelerator was busy."),
    Metric("gpu.utilization_low", "Lowest utilization", "LOW", Unit.RATIO,
           "Lowest utilization in the newest batch of the driver's own samples. The driver takes 5 or 6 samples "
           "a second; a batch is read every 8 s. It shows stalls shorter than a tick, some seconds later."),
    Metric("gpu.idle_share", "Idle share", "IDLE", Unit.RATIO,
           f"Share of the samples in this batch (see `gpu.utilization_low`) with utilization below {IDLE * 100:g} %."),
    Metric("gpu.xid", "XID error", "XID", Unit.COUNT,
           "Code of the card's most severe fault that the driver reported to this daemon since a reset. 0: none. "
           "Errors of applications are only in the event log."),
    Metric("gpu.memory_unattributed", "Unattributed memory", "UNATTR", Unit.BYTES,
           "Memory in use that belongs to no listed process. It may belong to processes in other containers. "
           "Read with the process list, every 3 s, if the driver reports the memory of each process.",
           limit="gpu.memory_total"),
    Metric("gpu.mig_instances", "MIG instances", "MIG", Unit.COUNT,
           "Number of MIG instances of the GPU. 0 if there are none, even if MIG mode is on."),
    Metric("gpu.clock_sm_max", "Highest SM clock", "CLKMAX", Unit.HERTZ,
           "Highest clock of the multiprocessors that the card allows."),
    Metric("gpu.tensor_throughput", "Tensor throughput", "TSHARE", Unit.RATIO,
           "Share of the peak of the tensor cores: their activity × SM clock / highest SM clock. It counts padding and "
           "recomputed work, and nothing outside tensor cores, so it is not the model FLOPs utilization (MFU). The "
           "clock is sampled twice per value."),
)  # fmt: skip

FROM_TRAININGS = frozenset(metric.name for metric in GPU_METRICS if metric.name.startswith("gpu.run_"))
"""Metrics that no driver reports. The sampler derives them from training boards and from the driver's process list."""
FROM_DRIVERS = tuple(metric.name for metric in GPU_METRICS if metric.name not in FROM_TRAININGS)
"""Metrics that a source can read. For each metric that a device lacks, the source reports the reason."""

PROCESSES = "gpu.processes"
"""Key in `Device.missing` with the reason why the list of processes cannot be read. It is not a metric."""
PROCESS_SHARES = "gpu.process_utilization"
"""Key in `Device.missing` with the reason why the utilization of processes cannot be read. It is not a metric."""
ENERGY_COUNTER = "gpu.energy_counter"
"""Key in `Device.missing` of a card without an energy counter. Its `gpu.energy` is the sum of power times time since
the daemon started. It is not a metric."""

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
"""Metrics of the current speed of a PCIe link. Each has a `limit`."""


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
        "a driver newer than 470, which reports its own reservation, and the memory of each process; not in WSL"
    ),
    "gpu.mig_instances": "a GPU with MIG",
    "gpu.tensor_throughput": _GPM,
}
"""The GPU or driver that a metric requires, by name of the metric. Nearly every card has the metrics that are not
listed."""


def why_missing(metric: str, why: Availability, needs: Mapping[str, str] = NEEDS) -> str:
    """Return why a GPU lacks a metric. If the metric is not supported, add which GPU or driver is required.

    `needs`: the requirements of the GPU's vendor.
    """
    need = needs.get(metric, "") if why is Availability.NOT_SUPPORTED else ""
    return f"{why.reason} (needs {need})" if need else why.reason


def title_within(metric: str) -> str:
    """Return the title of a metric for use within a sentence, such as `corrected ECC errors` or `PCIe width`.

    `metric`: name of the metric. If the table does not contain it, the name is returned in words.
    """
    title = BY_NAME[metric].title if metric in BY_NAME else metric.removeprefix("gpu.").replace("_", " ")
    return title[:1].lower() + title[1:] if title[1:2].islower() else title
