"""Columns of all tables: epochs, runs, ranks, processes, GPUs and users.

Text tables, CSV, JSON and its schema, reports, both views, comparisons and `docs/reference/columns.md` derive from this
module. Titles, units and the rules for combining devices and epochs are defined nowhere else.

Values are in base units, as in `metrics`. A missing value is NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, Flag, auto

from gpumon.common.numbers import NAN
from gpumon.model import units
from gpumon.model.metrics import BY_NAME as METRICS
from gpumon.model.metrics import IDLE, Kind, Unit


class View(Flag):
    """Views in which a column is shown."""

    COMMAND = auto()
    """Text tables of commands, and reports."""
    TERMINAL = auto()
    """The terminal view, `gpumon tui`."""
    BROWSER = auto()
    """The browser view, `gpumon web`."""
    COMPARE = auto()
    """Comparisons of runs, in every view."""
    CSV = auto()
    JSON = auto()
    TABLES = COMMAND | TERMINAL | BROWSER
    FILES = CSV | JSON
    ALL = TABLES | COMPARE | FILES


class OverDevices(Enum):
    """Rule for combining the values of several devices."""

    SUM = "sum"
    """Sum; NaN if the value of any device is NaN. A device that several ranks share counts once."""
    MEAN = "mean"
    HIGHEST = "highest"
    LOWEST = "lowest"
    NONE = "none"
    """No rule, because the value is not measured on devices."""


class OverTime(Enum):
    """Rule for combining the values of successive periods, such as epochs."""

    SUM = "sum"
    """Sum; NaN if any value is NaN."""
    MEAN = "mean"
    """Mean, weighted by the sampled time."""
    HIGHEST = "highest"
    FIRST = "first"
    UNKNOWN = "unknown"
    """No rule. A value such as a percentile cannot be computed from the values of the periods."""


class MeasuredBy(Enum):
    """Rule for combining the samples of a metric."""

    MEAN = "mean"
    """Mean, weighted by the duration of each value."""
    PEAK = "peak"
    FIRST = "first"
    OWN = "own"
    """The value is computed by its own code in `storage.ledger.usage`."""


class Form(Enum):
    """Number format of a column."""

    MEASURED = "measured"
    """With the unit, and with the number of decimals that suits the largest value in the column."""
    FINE = "fine"
    """With three digits, for small quantities such as the energy of a step."""
    TOTAL = "total"
    """Sums of hours and of energy, each in the unit that suits the value, such as `67.9 h`."""
    MOMENT = "moment"
    """Date and time, from seconds since 1970."""
    ID = "id"
    """Digits only, without separators, such as `1048576`."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    key: str
    """Name of the column in JSON and files, and of the attribute with its value."""
    title: str
    """Heading in the browser, in comparisons and in the documentation."""
    short: str
    """Heading in terminals. Commands show it in capitals."""
    unit: Unit | None
    """Unit of the values; None if they are text."""
    help: str
    keep: int = 0
    """Priority. Narrow tables first drop the columns with the lowest numbers."""
    views: View = View.ALL
    better: int = 0
    """1 if more is better, -1 if less is better, else 0."""
    over_devices: OverDevices = OverDevices.NONE
    over_time: OverTime = OverTime.UNKNOWN
    measured_by: MeasuredBy = MeasuredBy.OWN
    metric: str = ""
    """Name of the metric that the column shows or is computed from, such as `gpu.power`; empty if there is none."""
    across: str = ""
    """For the documentation: how the values of ranks or devices are combined, if no rule describes it."""
    form: Form = Form.MEASURED
    largest_first: bool | None = None
    """Whether a table sorted by this column starts with the largest value. None means yes for numbers and no for
    text."""

    @property
    def heading(self) -> str:
        """Heading in text tables of commands."""
        return self.short.upper()

    @property
    def heading_with_unit(self) -> str:
        """Heading in terminals above numbers without a unit, such as `SM %` or `GPU GiB`."""
        if self.unit is Unit.RATIO:
            return f"{self.short} %"
        return self.short.replace("mem", "GiB") if self.unit is Unit.BYTES else self.short

    @property
    def file_name(self) -> str:
        """Name in CSV and Parquet: the key with the unit appended, as in `energy_joules`.

        No unit is appended to the key of a count or a text, or if the key already ends with the unit.
        """
        unit = "" if self.unit in (None, Unit.COUNT) else self.unit.value
        return self.key if self.key.endswith(unit) else f"{self.key}_{unit}"

    @property
    def is_number(self) -> bool:
        """Whether cells are numbers, which are aligned to the right."""
        return self.unit is not None

    @property
    def needs_samples(self) -> bool:
        """Whether a value is only approximate if part of the time was not sampled.

        True for means, shares and percentiles.
        """
        return self.over_time is OverTime.MEAN or self.key.startswith("utilization_")

    @property
    def is_peak(self) -> bool:
        """Whether a value is only a lower bound if part of the time was not sampled."""
        return self.measured_by is MeasuredBy.PEAK

    @property
    def falls(self) -> bool:
        """Whether sorting by this column puts the largest values first."""
        return self.is_number if self.largest_first is None else self.largest_first

    def write(self, value: float, largest: float = NAN, *, is_narrow: bool = False) -> str:
        """Format a value in the unit and with the decimals that suit `largest`, the largest value of the column."""
        if self.unit is None:
            raise TypeError(f"{self.key} is text")
        if self.form is Form.ID:
            return units.rounded(value)
        if self.form is Form.MOMENT:
            return units.moment(value)
        if self.form is Form.TOTAL:
            return units.hours(value) if self.unit is Unit.SECONDS else units.number(value, self.unit)
        return units.in_column(value, self.unit, largest, is_fine=self.form is Form.FINE, is_narrow=is_narrow)

    def write_without_unit(self, value: float) -> str:
        """Format a value without its unit, for a column under `heading_with_unit`."""
        if self.unit is None:
            raise TypeError(f"{self.key} is text")
        return units.without_unit(value, self.unit)


def _mean(key: str, title: str, short: str, unit: Unit, help: str, metric: str, views: View = View.FILES) -> Column:
    return Column(
        key, title, short, unit, help, views=views,
        over_devices=OverDevices.MEAN, over_time=OverTime.MEAN, measured_by=MeasuredBy.MEAN, metric=metric,
    )  # fmt: skip


def _peak(
    key: str, title: str, short: str, unit: Unit, help: str, metric: str, keep: int = 0, views: View = View.FILES
) -> Column:
    return Column(
        key, title, short, unit, help, keep, views,
        over_devices=OverDevices.HIGHEST, over_time=OverTime.HIGHEST, measured_by=MeasuredBy.PEAK, metric=metric,
    )  # fmt: skip


def _own(
    key: str, title: str, short: str, unit: Unit, help: str, keep: int = 0, views: View = View.FILES, better: int = 0,
    over_devices: OverDevices = OverDevices.MEAN, over_time: OverTime = OverTime.MEAN,
) -> Column:  # fmt: skip
    return Column(key, title, short, unit, help, keep, views, better, over_devices=over_devices, over_time=over_time)


_DETAIL = View.FILES | View.COMMAND
_OPENED = View.FILES | View.COMMAND | View.TERMINAL
# key, title, short title, unit, help, priority; then the rules, or the metric from which the column is measured
EPOCHS: tuple[Column, ...] = (
    _own("seconds", "Time", "time", Unit.SECONDS, "Duration between the boundaries that the training reports.", 99,
         View.ALL, -1,
         over_devices=OverDevices.HIGHEST, over_time=OverTime.SUM),
    Column("steps", "Steps", "steps", Unit.COUNT,
           "Number of training steps. Validation steps are in the row of their phase. "
           "Missing if the framework's callback does not count steps.", 50,
           _DETAIL | View.BROWSER, across="maximum over ranks"),
    Column("steps_per_second", "Steps per second", "steps/s", Unit.PER_SECOND, "Steps per second of training time.",
           80, View.ALL, 1, across="maximum over ranks"),
    Column("samples_per_second", "Samples per second", "samples/s", Unit.PER_SECOND,
           "Samples per second of training time, if each rank reports the samples per step.", 55,
           _DETAIL | View.COMPARE, 1, across="sum"),
    Column("wait", "Waited for data", "waited", Unit.SECONDS, "Time spent waiting for data, in phases in which "
           "it is measured.", views=View.FILES, across="mean of ranks"),
    Column("wait_share", "Wait for data", "wait", Unit.RATIO, "Share of the time spent waiting for data, in phases in "
           "which it is measured.", 86, View.ALL, -1, across="mean of ranks"),
    _own("sampled", "Time sampled", "sampled", Unit.SECONDS,
         "Time covered by samples; less than the duration if no daemon was running.",
         over_devices=OverDevices.LOWEST, over_time=OverTime.SUM),
    _own("utilization_mean", "Utilization", "util", Unit.RATIO,
         "Mean utilization. ≈: only part of the time was sampled, or the driver's last samples have not arrived "
         "yet.", 98, View.ALL, 1),
    _own("utilization_p5", "Utilization, 5th percentile", "p5", Unit.RATIO,
         "Utilization was lower for 5 % of the time.",
         over_devices=OverDevices.LOWEST, over_time=OverTime.UNKNOWN),
    _own("utilization_p95", "Utilization, 95th percentile", "p95", Unit.RATIO,
         "Utilization was higher for 5 % of the time.",
         over_devices=OverDevices.HIGHEST, over_time=OverTime.UNKNOWN),
    Column("utilization_range", "Utilization, 5th to 95th percentile", "p5–p95", Unit.RATIO,
           "Utilization was between these two values for 90 % of the time.", 40, View.COMMAND,
           across="lowest to highest"),
    _own("idle_share", "Idle", "idle", Unit.RATIO, f"Share of the time with utilization below {IDLE * 100:g} %.",
         75, View.ALL, -1),
    _own("energy", "Energy", "energy", Unit.JOULES,
         "Energy of the whole board: the driver's counter, interpolated at the boundaries. Missing for less than a "
         "second and on MIG instances. ≥: more than 1 % may be from the time before or after.", 85, View.ALL, -1,
         over_devices=OverDevices.SUM, over_time=OverTime.SUM),
    Column("power_mean", "Power", "power", Unit.WATTS,
           "Mean power: energy divided by time, or the mean of the samples if there is no energy.", views=View.FILES,
           over_devices=OverDevices.SUM, over_time=OverTime.MEAN, measured_by=MeasuredBy.MEAN, metric="gpu.power"),
    _peak("memory_used_peak", "Device memory, peak", "mem max", Unit.BYTES, "Peak device memory of all processes.",
          "gpu.memory_used", 73, _OPENED | View.COMPARE),
    _mean("memory_used_mean", "Device memory", "mem", Unit.BYTES, "Mean device memory of all processes.",
          "gpu.memory_used"),
    _peak("run_used_peak", "Memory of the run, peak", "run max", Unit.BYTES,
          "Peak memory of the run's processes, with contexts and libraries, from the driver.", "gpu.run_used", 30,
          _DETAIL),
    _peak("run_reserved_peak", "Framework memory, peak", "reserved max", Unit.BYTES,
          "Peak memory reserved by the framework's allocator.", "gpu.run_reserved", 45, _DETAIL),
    _peak("run_allocated_peak", "Tensors between steps, peak", "alloc read", Unit.BYTES,
          "Peak memory in live tensors, read between steps, after activations were freed.", "gpu.run_allocated"),
    Column("framework_peak", "Tensors, peak", "alloc max", Unit.BYTES, "Peak memory in live tensors, by the "
           "framework's own counter. ≤: the counter had reached this value earlier. ≥: memory was read only between "
           "steps, after activations were freed.", 60, View.FILES | View.COMMAND | View.BROWSER | View.COMPARE,
           across="fullest device"),
    _mean("run_allocated_mean", "Tensors between steps", "alloc", Unit.BYTES, "Mean memory in live tensors.",
          "gpu.run_allocated"),
    _peak("run_inactive_split_peak", "Fragments, peak", "frag max", Unit.BYTES,
          "Peak free memory in blocks that the framework could not return to the driver.", "gpu.run_inactive_split"),
    _own("throttled_share", "Throttled", "throttle", Unit.RATIO,
         "Share of the time during which heat or a power brake held the clocks down.", 65, _DETAIL),
    _own("capped_share", "Power capped", "capped", Unit.RATIO,
         "Share of the time during which the power limit held the clocks down; normal at full load."),
    Column("temperature_start", "Temperature at the start", "temp 0", Unit.CELSIUS, "First temperature reading.",
           views=View.FILES, over_devices=OverDevices.MEAN, over_time=OverTime.FIRST,
           measured_by=MeasuredBy.FIRST, metric="gpu.temperature"),
    _mean("temperature_mean", "Temperature", "temp", Unit.CELSIUS, "Mean temperature.", "gpu.temperature"),
    _peak("temperature_peak", "Temperature, peak", "temp max", Unit.CELSIUS, "Highest temperature reading.",
          "gpu.temperature"),
    _mean("clock_sm_mean", "SM clock", "clock", Unit.HERTZ, "Mean clock of the multiprocessors.", "gpu.clock_sm"),
    _mean("tensor_throughput_mean", "Tensor throughput", "tensor", Unit.RATIO,
          "Mean share of the peak of the tensor cores: their activity × SM clock / highest SM clock. It counts padding "
          "and recomputed work, so it is not the model FLOPs utilization (MFU).", "gpu.tensor_throughput",
          View.FILES | View.COMMAND | View.COMPARE),
    _mean("sm_activity_mean", "SM activity", "SM", Unit.RATIO, "Mean share of the time in which multiprocessors had "
          "work, averaged over all.", "gpu.sm_activity"),
    _mean("fp32_activity_mean", "FP32 activity", "FP32", Unit.RATIO, "Mean share of the time in which the "
          "multiprocessors calculated in FP32, without tensor cores.", "gpu.fp32_activity"),
    _own("energy_least", "Energy, at least", "≥energy", Unit.JOULES,
         "Energy, or a lower bound of it if there is a gap in the readings at a boundary.",
         over_devices=OverDevices.SUM, over_time=OverTime.SUM),
    Column("energy_per_step", "Energy per step", "energy/step", Unit.JOULES, "Energy of the whole epoch per training "
           "step.", 35, _DETAIL | View.COMPARE, -1, form=Form.FINE, across="sum"),
    Column("energy_per_sample", "Energy per sample", "energy/sample", Unit.JOULES, "Energy of the whole epoch per "
           "training sample.", 34, _DETAIL | View.COMPARE, -1, form=Form.FINE, across="sum"),
)  # fmt: skip
"""Values of an epoch, a phase, a row of steps, the time between epochs, or a whole run."""
USAGE: tuple[Column, ...] = tuple(column for column in EPOCHS if column.over_devices is not OverDevices.NONE)
"""Columns that the ledger stores for each device, in the order of a row's values. A new column needs a new `VERSION`
in `storage/ledger/schema.py`."""
BESIDE_EPOCHS: tuple[Column, ...] = (
    Column("epoch", "Epoch", "epoch", None, "Number of the epoch, as the training counts it.", 100, View.TABLES,
           largest_first=True),
    Column("change", "Change of time", "change", Unit.RATIO, "Change of the duration from the previous epoch.", 70,
           View.TERMINAL),
    Column("phases", "Time by phase", "phases", None,
           "Bar of the epoch's time: work, waiting for data, then other phases.",
           66, View.TERMINAL),
    Column("beside", "Not training", "other", Unit.SECONDS, "Time in phases other than training.", 40, View.BROWSER),
    Column("verdict", "Verdict", "verdict", None, "Most severe finding about the epoch.", 87,
           View.TERMINAL | View.BROWSER),
)  # fmt: skip
"""Columns of epochs that only views show. Files do not contain them."""
BY_KEY = {column.key: column for column in (*EPOCHS, *BESIDE_EPOCHS)}


def _from_epochs(key: str, keep: int, views: View = View.COMMAND) -> Column:
    """Return the epoch column `key` for another table, with a priority and views of its own."""
    return replace(BY_KEY[key], keep=keep, views=views)


OF_RUNS: tuple[Column, ...] = (
    Column("between_seconds", "Between epochs, time", "between", Unit.SECONDS, "Time outside epochs.",
           views=View.COMPARE),
    Column("between_energy", "Between epochs, energy", "between", Unit.JOULES, "Energy outside epochs.",
           views=View.COMPARE),
    Column("cpu_seconds", "CPU time", "CPU time", Unit.SECONDS, "CPU time of the processes of the run.",
           views=View.COMPARE),
    Column("package_energy", "CPU energy", "CPU energy", Unit.JOULES, "Energy of the machine's CPU packages during the "
           "run.", views=View.COMPARE),
)  # fmt: skip
"""Columns that only whole runs have. Shown in comparisons."""
RANKS: tuple[Column, ...] = (
    Column("rank", "Rank", "rank", Unit.COUNT, "Rank in a distributed run.", 100, View.TABLES, form=Form.ID,
           largest_first=False),
    Column("pid", "PID", "PID", Unit.COUNT, "Process id.", 60, View.TABLES, form=Form.ID, largest_first=False),
    Column("gpus", "GPU", "GPU", None, "Indexes of the rank's GPUs.", 90, View.TABLES),
    Column("state", "State", "state", None, "State of the process: running, or how it ended.", 95,
           View.COMMAND | View.BROWSER),
    Column("epoch", "Epoch", "epoch", Unit.COUNT, "Current epoch, and the number of planned epochs.", 80,
           View.TERMINAL),
    Column("phase", "Phase", "phase", None, "Current phase.", 60, View.TERMINAL),
    Column("step", "Step", "step", Unit.COUNT, "Current step, and the number of planned steps.", 70, View.TERMINAL),
    Column("steps", "Steps", "steps", Unit.COUNT, "Training steps.", 50, View.COMMAND | View.BROWSER),
    Column("wait", "Waited for data", "waited", Unit.SECONDS, "Time spent waiting for data.", 70, View.TABLES),
    _from_epochs("utilization_mean", 85),
    Column("allocated", "Tensors", "allocated", Unit.BYTES, "Memory in live tensors now.", 65, View.TERMINAL),
    Column("reserved", "Framework memory", "reserved", Unit.BYTES, "Memory that the framework's allocator holds.",
           55, View.TERMINAL),
    replace(BY_KEY["framework_peak"], key="peak", keep=40, views=View.TABLES),
    _from_epochs("memory_used_peak", 80),
    _from_epochs("energy", 75),
    Column("retries", "Allocation retries", "retries", Unit.COUNT, "Times the framework's allocator had to free its "
           "cache and try again.", 30, View.COMMAND | View.TERMINAL),
    Column("ooms", "Out of memory", "OOMs", Unit.COUNT, "Out-of-memory errors.", 65, View.TABLES),
)  # fmt: skip
"""Columns of a rank, which is one process of a run."""

RUNS: tuple[Column, ...] = (
    Column("id", "Run", "run", None, "Id of the run.", 100, View.COMMAND | View.TERMINAL | View.FILES),
    Column("name", "Name", "name", None, "Name of the run. Commands omit it if the id contains it.", 30,
           View.COMMAND | View.TERMINAL | View.FILES),
    Column("user", "User", "user", None, "User who started the run.", 84, View.TABLES | View.FILES),
    Column("started", "Started", "started", Unit.SECONDS, "Start time of the run.", 86, View.TABLES | View.FILES,
           form=Form.MOMENT),
    Column("seconds", "Time", "time", Unit.SECONDS, "Duration so far.", 82, View.TABLES | View.FILES),
    Column("state", "State", "state", None, "State of the run: running, or how it ended.", 90,
           View.COMMAND | View.BROWSER | View.FILES),
    Column("progress", "Progress", "progress", None, "Progress through the planned epochs or steps, as a bar.", 20,
           View.TERMINAL),
    Column("epoch", "Epoch", "epoch", Unit.COUNT, "Current or last epoch, and the number of planned epochs, such as "
           "12/90.", 88,
           View.TABLES),
    Column("left", "Time left", "left", Unit.SECONDS, "Estimated time until the run ends.", 60, View.TERMINAL),
    Column("gpus", "GPUs", "GPUs", Unit.COUNT, "Number of GPUs of the run.", 40, View.TABLES | View.FILES),
    replace(_from_epochs("utilization_mean", 80, View.TABLES | View.FILES), largest_first=False),
    _from_epochs("wait_share", 50, View.TERMINAL),
    _from_epochs("energy", 75, View.TABLES | View.FILES),
    Column("metric", "Metric", "metric", None, "First metric that the run logged, with its newest value.", 55,
           View.TERMINAL),
    replace(_from_epochs("verdict", 90, View.TERMINAL), largest_first=True),
    Column("tags", "Tags", "tags", None, "Tags of the run.", 35, View.COMMAND | View.JSON),
    Column("resumes", "Resumes", "resumes", None, "Id of the earlier run that this run continues.", 20,
           View.COMMAND | View.JSON),
    Column("hostname", "Host", "host", None, "Name of the machine.", 15, View.COMMAND | View.JSON),
    Column("framework", "Framework", "framework", None, "Training framework that reports the run.", 10,
           View.COMMAND | View.BROWSER | View.FILES),
)  # fmt: skip
"""Columns of a run in a list of runs."""
RUN_BY_KEY = {column.key: column for column in RUNS}
COSTS: tuple[Column, ...] = (
    Column("held", "Cost", "cost", None, "Cost of the GPU time.", 87, View.TABLES),
    Column("idle_held", "Idle cost", "idle cost", None, "Part of the cost for GPU time that was held but idle.", 55,
           View.TABLES),
    Column("energy", "Power cost", "power cost", None, "Cost of the energy; it is not part of the cost of GPU time.",
           72, View.TABLES),
    Column("co2", "CO₂", "CO2", None, "CO₂ emissions of the energy.", 50, View.TABLES),
)  # fmt: skip
"""Costs. The keys are the fields of `cost.Charge`. Cells are right-aligned."""

PROCESSES: tuple[Column, ...] = (
    Column("gpu", "GPU", "GPU", Unit.COUNT, "Index of the GPU.", 94, View.COMMAND | View.TERMINAL, form=Form.ID,
           largest_first=False),
    Column("pid", "PID", "PID", Unit.COUNT, "Process id.", 100, View.TABLES | View.FILES, form=Form.ID,
           largest_first=False),
    Column("user", "User", "user", None, "User of the process.", 95, View.TABLES | View.FILES),
    Column("name", "Program", "program", None, "Name of the program.", 90, View.TABLES | View.FILES),
    Column("kind", "Kind", "kind", None, "Kind of GPU work: compute or graphics.", 20,
           View.COMMAND | View.BROWSER | View.FILES),
    Column("first", "From", "from", Unit.SECONDS, "When the process was first seen on the GPU.", 60,
           View.COMMAND | View.FILES,
           form=Form.MOMENT),
    Column("last", "To", "to", Unit.SECONDS, "When the process was last seen on the GPU.", 55,
           View.COMMAND | View.FILES,
           form=Form.MOMENT),
    Column("held", "GPU time", "GPU time", Unit.SECONDS, "Time that the process was on the GPU.", 92,
           View.COMMAND | View.FILES,
           form=Form.TOTAL),
    Column("memory_peak", "GPU memory, peak", "mem max", Unit.BYTES, "Peak device memory of the process.", 88,
           View.COMMAND | View.FILES),
    Column("memory_used", "GPU memory", "GPU mem", Unit.BYTES, "Device memory of the process.", 89,
           View.TABLES | View.FILES),
    Column("sm_utilization", "SM utilization", "SM", Unit.RATIO,
           "Share of the time in which kernels of the process ran.", 80,
           View.TABLES | View.FILES),
    Column("memory_utilization", "Memory bandwidth", "bw", Unit.RATIO, "Share of the time in which device memory was "
           "read or written by the process.", 15, View.COMMAND | View.TERMINAL | View.JSON),
    Column("encoder_utilization", "Encoder", "enc", Unit.RATIO, "Share of the time in which the video encoder worked "
           "for the process.", 14, View.TABLES | View.JSON),
    Column("decoder_utilization", "Decoder", "dec", Unit.RATIO, "Share of the time in which the video decoder worked "
           "for the process.", 13, View.TABLES | View.JSON),
    Column("cpu_utilization", "CPU", "CPU", Unit.RATIO, "CPU use, as a share of one core.", 40,
           View.TABLES | View.FILES),
    Column("host_memory", "Host memory", "host mem", Unit.BYTES, "Host memory of the process.", 30,
           View.COMMAND | View.TERMINAL | View.FILES),
    Column("started", "Running for", "time", Unit.SECONDS, "Time since the process started.", 35,
           View.TERMINAL | View.BROWSER),
    Column("run", "Run", "run", None, "Run of the process.", 28, View.TERMINAL | View.BROWSER),
    Column("epoch", "Epoch", "epoch", Unit.COUNT, "Current epoch of the run.", 26, View.TERMINAL),
    Column("job", "Job", "job", None, "Slurm job of the process.", 25, View.COMMAND | View.FILES),
    Column("pod", "Pod or container", "pod or container", None, "Pod or container of the process.", 20,
           View.COMMAND | View.FILES),
    Column("where", "Job or container", "job or container", None, "Slurm job, pod or container of the process.",
           20, View.COMMAND | View.TERMINAL),
)  # fmt: skip
"""Columns of a process on a GPU, now or in a window of time."""
PROCESS_BY_KEY = {column.key: column for column in PROCESSES}


def _metric(name: str, short: str, keep: int, views: View, title: str = "") -> Column:
    """Return the column of a metric, with the metric's title, unit and help.

    The unit of byte counters becomes a rate.
    """
    metric = METRICS[name]
    unit = Unit.BYTES_PER_SECOND if metric.kind is Kind.COUNTER else metric.unit
    return Column(metric.key, title or metric.title, short, unit, metric.help, keep, views, metric=name)


GPUS: tuple[Column, ...] = (
    Column("gpu", "GPU", "GPU", None, "Index of the GPU.", 100, View.TABLES),
    Column("name", "Model", "model", None, "Model of the GPU.", 60, View.COMMAND),
    Column("day", "Last 24 hours", "24 h", None, "Users who held the GPU, by hour. Tinted: held. Solid: used.", 20,
           View.BROWSER),
    Column("history", "Utilization over time", "utilization", None, "Utilization in the last minutes.", 50,
           View.TERMINAL | View.BROWSER, metric="gpu.utilization"),
    Column("bar", "Bar", "bar", None, "Utilization as a bar.", 50, View.COMMAND, metric="gpu.utilization"),
    _metric("gpu.utilization", "now", 98, View.TABLES, title="Now"),
    _metric("gpu.memory_used", "mem", 90, View.TABLES),
    _metric("gpu.temperature", "°C", 40, View.TABLES),
    _metric("gpu.power", "W", 30, View.TABLES),
    _metric("gpu.clock_sm", "GHz", 25, View.TERMINAL),
    _metric("gpu.pcie_received", "PCIe in", 15, View.TERMINAL),
    _metric("gpu.pcie_sent", "out", 15, View.TERMINAL),
    _metric("gpu.fan", "fan", 10, View.TERMINAL),
    _metric("gpu.performance_state", "P", 10, View.TERMINAL),
    _metric("gpu.encoder_utilization", "enc", 10, View.TERMINAL),
    _metric("gpu.decoder_utilization", "dec", 10, View.TERMINAL),
    Column("throttled", "Throttled", "throttled", None, "Reasons for lowered clocks.", 20, View.TERMINAL,
           metric="gpu.event_reasons"),
    Column("state", "State", "state", None, "State, such as busy, idle or free.", 96, View.COMMAND | View.TERMINAL),
    Column("who", "Who", "who", None, "Users who hold the GPU, with their runs or programs.", 80,
           View.COMMAND | View.BROWSER),
    Column("user", "User", "user", None, "User who holds the GPU.", 80, View.TERMINAL),
    Column("run", "Run or program", "run or program", None, "Run or program on the GPU.", 70, View.TERMINAL),
    Column("epoch", "Epoch", "epoch", None, "Current epoch of the run.", 60, View.TERMINAL),
    Column("left", "Time left", "left", Unit.SECONDS, "Estimated time until the run ends.", 20, View.TERMINAL),
)  # fmt: skip
"""Columns of a GPU with its current values. In JSON, a GPU has every metric, under the metric's key."""
GPU_BY_KEY = {column.key: column for column in GPUS}
USERS: tuple[Column, ...] = (
    Column("user", "User", "user", None, "User who held GPUs.", 100, View.TABLES | View.FILES),
    Column("now", "GPUs now", "GPUs now", Unit.COUNT, "Number of GPUs that the user holds now.", 94,
           View.TERMINAL | View.BROWSER),
    Column("held", "GPU-hours", "GPU-hours", Unit.SECONDS, "Time during which GPUs were held, summed over GPUs.", 95,
           View.TABLES | View.FILES, form=Form.TOTAL),
    Column("used", "Used", "used", Unit.RATIO, "Share of the held time during which the GPUs were busy.", 70,
           View.TERMINAL | View.BROWSER),
    Column("busy", "Busy", "busy", Unit.SECONDS, "Busy time, summed over GPUs.", 80, View.COMMAND | View.FILES,
           form=Form.TOTAL),
    Column("idle_held", "Allocated, idle", "allocated, idle", Unit.SECONDS, "Held time while idle for a minute or "
           "longer.", 85, View.TABLES | View.FILES, form=Form.TOTAL),
    Column("energy", "Energy", "energy", Unit.JOULES, "Energy of the GPUs while they were held.", 75,
           View.TABLES | View.FILES, form=Form.TOTAL),
    Column("unseen", "Not seen", "not seen", Unit.SECONDS, "Time without samples.", 30, View.TERMINAL,
           form=Form.TOTAL),
    Column("note", "Note", "note", None, "Notable facts, such as a high idle share.", 10, View.TERMINAL | View.BROWSER),
)  # fmt: skip
"""Columns of a user's GPU usage in a window of time."""
USER_BY_KEY = {column.key: column for column in USERS}

TABLES: Mapping[str, tuple[Column, ...]] = {
    "Epochs": (*BESIDE_EPOCHS, *EPOCHS),
    "Whole runs in comparisons": OF_RUNS,
    "Ranks": RANKS,
    "Runs": RUNS,
    "Costs": COSTS,
    "GPUs": GPUS,
    "Processes": PROCESSES,
    "Users": USERS,
}
"""All tables, by their titles in the documentation."""


def shown(columns: tuple[Column, ...], view: View) -> tuple[Column, ...]:
    """Return the columns that a view shows."""
    return tuple(column for column in columns if view in column.views)
