"""The ledger's measured columns as data; `tables` has its tables as SQL.

One SQLite file, `ledger.sqlite` in the state directory. Times are nanoseconds since 1970, durations
seconds, everything else base units; NULL is "not known", never 0. A run has one row however many
ranks it has; what was measured hangs on the rank (`rank.key`, the board's name) and the device (UUID).

An epoch is known by `ordinal`, which counts the epochs that a rank began, from 0: a resumed or odd loop
may use the same number twice. `usage` has one row for each rank, device, epoch and phase; `phase` ''
stands for the whole epoch, `ordinal` -1 for the whole run and -2 for all of it that lies outside its epochs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gpumon.model.metrics import IDLE, Unit

WHOLE_RUN = -1

OUTSIDE_EPOCHS = -2

STEP_ROWS = -1000
"""`ordinal` in `usage` of the first row of steps; those behind it count down."""

WHOLE_EPOCH = ""

OTHER = "other"
"""Phase of what lies outside epochs and in no phase."""


class OverDevices(Enum):
    """Rule by which several devices become one number."""

    SUM = "sum"
    """Unknown where one is; ranks on one device count it once."""
    MEAN = "mean"
    HIGHEST = "highest"
    LOWEST = "lowest"


class OverTime(Enum):
    """Rule by which stretches behind each other become one number."""

    SUM = "sum"
    """Unknown where one is."""
    MEAN = "mean"
    """Weighed by the time sampled."""
    HIGHEST = "highest"
    FIRST = "first"
    UNKNOWN = "unknown"
    """It does not follow from its parts, as a percentile."""


class MeasuredBy(Enum):
    """Rule by which samples of a metric become one number."""

    MEAN = "mean"
    """Weighed by how long each value held."""
    PEAK = "peak"
    FIRST = "first"
    OWN = "own"
    """By code of its own in `usage`."""


@dataclass(frozen=True, slots=True)
class UsageColumn:
    """A measured column of `usage`: one number for a device over a stretch of time."""

    name: str
    title: str
    heading: str
    """At most 8 letters."""
    unit: Unit
    help: str
    over_devices: OverDevices
    over_time: OverTime
    measured_by: MeasuredBy = MeasuredBy.OWN
    of: str = ""
    """The metric of the device that it is measured from, such as `gpu.power`."""


def _mean(name: str, title: str, heading: str, unit: Unit, help: str, of: str) -> UsageColumn:
    return UsageColumn(
        name, title, heading, unit, help,
        over_devices=OverDevices.MEAN, over_time=OverTime.MEAN, measured_by=MeasuredBy.MEAN, of=of,
    )  # fmt: skip


def _peak(name: str, title: str, heading: str, unit: Unit, help: str, of: str) -> UsageColumn:
    return UsageColumn(
        name, title, heading, unit, help,
        over_devices=OverDevices.HIGHEST, over_time=OverTime.HIGHEST, measured_by=MeasuredBy.PEAK, of=of,
    )  # fmt: skip


def _own(name: str, title: str, heading: str, unit: Unit, help: str,
         over_devices: OverDevices = OverDevices.MEAN, over_time: OverTime = OverTime.MEAN) -> UsageColumn:  # fmt: skip
    return UsageColumn(name, title, heading, unit, help, over_devices=over_devices, over_time=over_time)


# name, title, heading, unit, help; then the rules, or the metric that it is measured from
USAGE: tuple[UsageColumn, ...] = (
    _own("seconds", "Time", "TIME", Unit.SECONDS, "Duration, by the training's own boundaries.",
         over_devices=OverDevices.HIGHEST, over_time=OverTime.SUM),
    _own("sampled", "Time sampled", "SAMPLED", Unit.SECONDS,
         "Time covered by samples; less than the duration if no daemon was running.",
         over_devices=OverDevices.LOWEST, over_time=OverTime.SUM),
    _own("utilization_mean", "Utilization", "UTIL", Unit.RATIO, "Mean over time."),
    _own("utilization_p5", "Utilization, 5th percentile", "P5", Unit.RATIO, "Utilization was lower for 5 % of "
                                                                            "the time.",
         over_devices=OverDevices.LOWEST, over_time=OverTime.UNKNOWN),
    _own("utilization_p95", "Utilization, 95th percentile", "P95", Unit.RATIO, "Utilization was higher for 5 % of "
                                                                               "the time.",
         over_devices=OverDevices.HIGHEST, over_time=OverTime.UNKNOWN),
    _own("idle_share", "Idle", "IDLE", Unit.RATIO, f"Share of the time with utilization below {IDLE * 100:g} %."),
    _own("energy", "Energy", "ENERGY", Unit.JOULES,
         "Of the whole board, from the driver's counter, interpolated at the boundaries; unknown below one second "
         "and on MIG instances.", over_devices=OverDevices.SUM, over_time=OverTime.SUM),
    UsageColumn("power_mean", "Power", "POWER", Unit.WATTS,
                "Mean over time: energy by time if energy is known, else mean of the samples.",
                over_devices=OverDevices.SUM, over_time=OverTime.MEAN, measured_by=MeasuredBy.MEAN, of="gpu.power"),
    _peak("memory_used_peak", "Device memory, peak", "MEM MAX", Unit.BYTES, "Peak memory of all processes.",
          "gpu.memory_used"),
    _mean("memory_used_mean", "Device memory", "MEM", Unit.BYTES, "Mean memory of all processes.",
          "gpu.memory_used"),
    _peak("run_used_peak", "Memory of the run, peak", "RUN MAX", Unit.BYTES,
          "Peak memory of the run's processes, from the driver: with contexts and libraries.", "gpu.run_used"),
    _peak("run_reserved_peak", "Framework memory, peak", "HELD MAX", Unit.BYTES,
          "Peak memory reserved by the framework's allocator.", "gpu.run_reserved"),
    _peak("run_allocated_peak", "Tensors, peak", "LIVE MAX", Unit.BYTES,
          "Peak memory in live tensors as read between steps, when activations are freed.", "gpu.run_allocated"),
    _mean("run_allocated_mean", "Tensors", "ALLOC", Unit.BYTES, "Mean memory in live tensors.",
          "gpu.run_allocated"),
    _peak("run_inactive_split_peak", "Fragments, peak", "FRAG MAX", Unit.BYTES,
          "Peak of free parts of blocks that could not be returned to the driver.", "gpu.run_inactive_split"),
    _own("throttled_share", "Throttled", "THROTTLE", Unit.RATIO,
         "Share of the time during which heat or a power brake held the clocks down."),
    _own("capped_share", "Power capped", "CAPPED", Unit.RATIO,
         "Share of the time during which the power limit held the clocks down; normal at full load."),
    UsageColumn("temperature_start", "Temperature at the start", "TEMP 0", Unit.CELSIUS, "The first reading.",
                over_devices=OverDevices.MEAN, over_time=OverTime.FIRST,
                measured_by=MeasuredBy.FIRST, of="gpu.temperature"),
    _mean("temperature_mean", "Temperature", "TEMP", Unit.CELSIUS, "Mean over time.", "gpu.temperature"),
    _peak("temperature_peak", "Temperature, peak", "TEMP MAX", Unit.CELSIUS, "The highest reading.", "gpu.temperature"),
    _mean("clock_sm_mean", "SM clock", "CLOCK", Unit.HERTZ, "Mean over time.", "gpu.clock_sm"),
    _own("energy_least", "Energy, at least", "≥ENERGY", Unit.JOULES,
         "The energy where it is known; else the part of it that surely belongs here, because a gap in the readings "
         "lies across a boundary.", over_devices=OverDevices.SUM, over_time=OverTime.SUM),
)  # fmt: skip
"""In the order of a row's values."""
