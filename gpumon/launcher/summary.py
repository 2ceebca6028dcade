"""Adds up the cost of a command and its trainings from frames, and prints the summary when the command ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.common.text import clean
from gpumon.launcher.child_process import ExitStatus
from gpumon.launcher.watcher import CommandReport
from gpumon.model import units
from gpumon.model.device import Device
from gpumon.model.energy import FOLLOWS, EnergyReadings
from gpumon.model.epoch_boundaries import EpochEnd, EpochFold
from gpumon.model.frame import Boundary, Frame, Run, RunState, Sample
from gpumon.model.metrics import IDLE, Availability, Unit
from gpumon.model.run import exit_text
from gpumon.model.units import AT_LEAST
from gpumon.model.vendors import short_name

_VALID_INTERVALS = 3
"""If two frames are more than this many sampling intervals apart, no value is valid for the time between them."""
_MIN_ENERGY_SECONDS = 1.0
"""Energy is shown only for use of at least this many seconds. For shorter use, the energy counter is too coarse."""
_COVERED = 0.98
"""Energy counts as complete if it was measured for at least this share of the time on a device, as in the ledger."""


class DeviceCost:
    """Usage of one device by the command."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.seconds = 0.0
        self.unseen = 0.0
        """Seconds before the first frame in which the command may have used the device. 0 if the first frame does not
        show the command on the device."""
        self.seen = 0.0
        """Seconds for which the utilization was measured."""
        self.memory_peak = NAN
        """Peak memory of all processes of the command together, in bytes."""
        self.memory_total = NAN
        self._busy = 0.0
        self._idle = 0.0
        self._energy = 0.0
        self._energy_seconds = 0.0

    @property
    def utilization(self) -> float:
        return self._busy / self.seen if self.seen else NAN

    @property
    def idle_share(self) -> float:
        return self._idle / self.seen if self.seen else NAN

    @property
    def energy(self) -> float:
        """Joules used by the whole graphics board.

        NaN if not measured, or if the device was used for less than a second.
        """
        return self._energy if self._energy_seconds >= _MIN_ENERGY_SECONDS else NAN

    @property
    def metered(self) -> float:
        """Seconds for which the energy was measured."""
        return self._energy_seconds

    @property
    def lacks_time(self) -> bool:
        """Whether the command may have used the device for longer than was observed."""
        return self.seconds < _COVERED * (self.seconds + self.unseen)

    @property
    def lacks_energy(self) -> bool:
        """Whether the command may have used the device at times for which the energy was not measured."""
        return self._energy_seconds < _COVERED * (self.seconds + self.unseen)

    def add_energy(self, joules: float, seconds: float) -> None:
        """Add the joules used within `seconds`. NaN is ignored."""
        if is_known(joules):
            self._energy += joules
            self._energy_seconds += seconds

    def add(self, sample: Sample, seconds: float, valid_seconds: float) -> None:
        """Add `seconds` of use. `valid_seconds`: for how many of these seconds the values of `sample` are valid."""
        self.device = sample.device
        self.seconds += seconds
        if sample.state is not Availability.OK:
            return  # the values of the sample are old
        utilization = sample.value("gpu.utilization")
        if is_known(utilization):
            self.seen += valid_seconds
            self._busy += utilization * valid_seconds
            self._idle += valid_seconds if utilization < IDLE else 0.0
        self.memory_total = sample.value("gpu.memory_total")

    def add_memory(self, memory: float) -> None:
        """Update the peak memory. `memory`: current memory of the command's processes in bytes."""
        if not memory <= self.memory_peak:
            self.memory_peak = self.memory_peak if not is_known(memory) else memory


class CommandCost:
    """Adds up the cost of a command from frames.

    `began`: time at which the command started (ns, CLOCK_MONOTONIC). `is_member`, `is_own_run`: functions that return
    whether a process (pid) or a run belongs to the command.
    """

    def __init__(self, began: int, is_member: Callable[[int], bool], is_own_run: Callable[[Run], bool]) -> None:
        self.uses: dict[str, DeviceCost] = {}
        self.devices = 0
        """Number of devices in the newest frame."""
        self.hidden = False
        """Whether an unidentified process uses a device. It may belong to the command."""
        self.stale: set[str] = set()
        """UUIDs of devices whose driver calls did not return in time."""
        self._began = began
        self._is_member = is_member
        self._is_own_run = is_own_run
        self._last: Frame | None = None
        self._readings: dict[str, EnergyReadings] = {}
        """Energy counter readings by UUID of the device."""
        self._memory: Mapping[str, float] = {}
        """Memory of the command on each device in bytes, by UUID."""

    def add(self, frame: Frame, ended: int = 0) -> None:
        """Add the next frame. `ended`: time at which the command ended (ns, CLOCK_MONOTONIC); 0 while it runs."""
        self.devices = sum(not sample.device.is_divided for sample in frame.samples)
        # A frame that is not full has no processes. The command is then assumed to use the same devices as before.
        if frame.is_full and frame.monotonic_ns >= self._began and not (ended and frame.monotonic_ns > ended):
            self._memory = self._read_memory(frame)
            self.hidden = self.hidden or any(not process.user for process in frame.processes)
        last, self._last = self._last, frame
        if last is None:
            self._set_unseen(frame)
        if last is None or frame.monotonic_ns <= last.monotonic_ns or frame.monotonic_ns <= self._began:
            self._read_energy(frame, self._began)
            return
        first, until = max(last.monotonic_ns, self._began), min(frame.monotonic_ns, ended or frame.monotonic_ns)
        seconds = max(0, until - first) / SECOND
        self.stale.update(sample.device.uuid for sample in frame.samples if sample.state is Availability.STALE)
        for sample in frame.samples:
            if sample.device.uuid in self._memory:
                self._add(sample, seconds, frame.interval)
        self._read_energy(frame, until)

    def finish(self, ended: int) -> None:
        """Add the time from the last frame to the end of the command, `ended` (ns, CLOCK_MONOTONIC)."""
        last = self._last
        if last is None or last.monotonic_ns >= ended or last.monotonic_ns < self._began:
            return
        seconds = (ended - last.monotonic_ns) / SECOND
        if seconds > _VALID_INTERVALS * max(last.interval, 1.0):
            return
        for sample in last.samples:
            if sample.device.uuid in self._memory:
                self._add(sample, seconds, last.interval)
                self.uses[sample.device.uuid].add_energy(sample.value("gpu.power") * seconds, seconds)

    @property
    def devices_in_use(self) -> tuple[str, ...]:
        """UUIDs of the devices that the command currently uses."""
        return tuple(self._memory)

    def _set_unseen(self, first: Frame) -> None:
        """Set for how long devices may have been used before the first frame (`DeviceCost.unseen`)."""
        unseen = (first.monotonic_ns - self._began) / SECOND
        for sample in first.samples:
            if unseen > 0 and sample.device.uuid in self._memory:
                use = self.uses.setdefault(sample.device.uuid, DeviceCost(sample.device))
                use.unseen = unseen

    def _read_energy(self, frame: Frame, until: int) -> None:
        """Add the growth of the energy counters from the start of the command to `until`."""
        for sample in frame.samples:
            uuid = sample.device.uuid
            if sample.state is not Availability.OK:
                continue
            readings = self._readings.setdefault(uuid, EnergyReadings())
            values = sample.value("gpu.energy"), sample.value("gpu.power_limit")
            for growth in readings.add(frame.monotonic_ns, *values):
                seconds = (min(growth.end, until) - max(growth.begin, self._began)) / SECOND
                length = (growth.end - growth.begin) / SECOND
                if uuid in self._memory and seconds > 0 and length <= FOLLOWS:
                    self.uses[uuid].add_energy(growth.joules * seconds / length, seconds)

    def _add(self, sample: Sample, seconds: float, interval: float) -> None:
        use = self.uses.setdefault(sample.device.uuid, DeviceCost(sample.device))
        use.add(sample, seconds, seconds if seconds <= _VALID_INTERVALS * interval else 0.0)
        use.add_memory(self._memory[sample.device.uuid])

    def _read_memory(self, frame: Frame) -> dict[str, float]:
        """Return the bytes that the command uses on each of its devices; NaN if not reported."""
        memory: dict[str, float] = {}
        for process in frame.processes:
            if self._is_member(process.pid):
                # If the memory of one process is NaN, the sum is NaN.
                memory[process.uuid] = memory.get(process.uuid, 0.0) + process.memory_used
        runs = {run.key: run for run in frame.runs if run.state is RunState.RUNNING and self._is_own_run(run)}
        for sample in frame.samples:
            uuid = sample.device.uuid
            if uuid not in memory and any(uuid in run.gpus for run in runs.values()):
                # In a container, the driver does not list the process, but the training reports its memory.
                memory[uuid] = sample.value("gpu.run_reserved") if sample.run in runs else NAN
        return memory


_MAX_METRICS = 2


@dataclass(frozen=True, slots=True)
class Training:
    """A training that the command ran. The values of a distributed training are those that its first rank reports."""

    id: str
    name: str
    epochs: int
    """Number of complete epochs of the run."""
    seconds: float
    """Mean duration of an epoch; NaN before the first epoch is complete."""
    metrics: Mapping[str, float]
    """Last logged values of the losses, or of the first metric if no loss was logged."""
    steps: int = 0
    """Number of steps in the whole run; 0 if steps are not counted."""


class _Rank:
    """Number of complete epochs of one rank, and their total duration in ns."""

    def __init__(self) -> None:
        self._fold = EpochFold()
        self._begin: Boundary | None = None
        self._last: tuple[int, int] | None = None
        """Number and duration of the newest complete epoch of the rank."""
        self.epochs = 0
        self.total = 0

    def update(self, boundary: Boundary) -> None:
        """Process the next boundary."""
        change = self._fold.add(boundary)
        if change is None:
            return
        if change.closed is not None and self._begin is not None:
            self._last = None
            if change.closed is EpochEnd.FINISHED:
                self._last = self._begin.epoch, boundary.monotonic_ns - self._begin.monotonic_ns
                self._add(1, self._last[1])
            self._begin = None
        if change.begun:
            self._begin = boundary
        if self._last is not None and change.revoked == self._last[0]:
            self._add(-1, -self._last[1])
            self._last = None

    def _add(self, epochs: int, nanoseconds: int) -> None:
        self.epochs += epochs
        self.total += nanoseconds


class CommandTrainings:
    """Collects the trainings of the command from frames and boards.

    A boundary that is passed twice counts only once.
    """

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._ranks: dict[str, _Rank] = {}

    def update(self, runs: Iterable[Run], boundaries: Iterable[Boundary]) -> None:
        """Update the trainings from the command's `runs` and from new boundaries.

        Boundaries of other runs are ignored.
        """
        self._runs.update((run.key, run) for run in runs)
        for boundary in boundaries:
            if boundary.run in self._runs:
                self._ranks.setdefault(boundary.run, _Rank()).update(boundary)

    def __bool__(self) -> bool:
        return bool(self._runs)

    def trainings(self) -> list[Training]:
        """Return the trainings in the order in which they started."""
        first: dict[str, Run] = {}
        for run in sorted(self._runs.values(), key=lambda run: (run.rank, run.started)):
            first.setdefault(run.id, run)
        return [self._training(run) for run in sorted(first.values(), key=lambda run: run.started)]

    def _training(self, run: Run) -> Training:
        rank = self._ranks.get(run.key, _Rank())
        seconds = rank.total / rank.epochs / SECOND if rank.epochs else NAN
        return Training(run.id, run.name, rank.epochs, seconds, _losses(run.metrics), run.step)


def _losses(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the losses among the logged values, or the first value if there is no loss."""
    losses = [name for name in metrics if "loss" in name.lower()] or list(metrics)[:1]
    return {name: metrics[name] for name in losses[:_MAX_METRICS]}


_SHOWN = 4
"""Maximum number of trainings that have a line of their own."""
_SEEN_AFTER = 10.0
"""A process that uses a device for at least this many seconds is always seen, because the driver's process list is read
every few seconds."""
_BOLD, _DIM, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class SummaryLine:
    """A line of the summary: label, value and note."""

    title: str
    value: str
    note: str = ""


def text(name: str, status: ExitStatus, seconds: float, report: CommandReport, *, color: bool) -> str:
    """Return the summary of a command that ran for `seconds`. `color`: whether to use terminal colors."""
    bold, dim, plain = (_BOLD, _DIM, _PLAIN) if color else ("", "", "")
    lines = list(_lines(status, seconds, report))
    titles, values = max(len(line.title) for line in lines), max(len(line.value) for line in lines)
    head = "  ·  ".join(
        part for part in (f"{bold}{clean(name, 60)}{plain}", exit_text(status.code, status.signal)) if part
    )
    rows = [f"gpumon  {head}"]
    for line in lines:
        row = f"  {dim}{line.title:<{titles}}{plain}  {bold}{line.value:>{values}}{plain}  {line.note}"
        rows.append(row.rstrip())
    if report.shown_as:
        rows.append(f"  {dim}gpumon runs show {report.shown_as}{plain}")
    return "\n".join(rows) + "\n"


def _lines(status: ExitStatus, seconds: float, report: CommandReport) -> Iterator[SummaryLine]:
    cores = f"{status.cpu / seconds:.1f} CPU cores" if seconds >= 1 and is_known(status.cpu) else ""
    memory = "" if not is_known(status.memory) else f"{units.bytes_binary(status.memory)} of memory"
    yield SummaryLine("time", units.fine_duration(seconds), ", ".join(part for part in (cores, memory) if part))
    if report.uses:
        yield from _device_lines(report.uses)
        if report.problem:
            yield SummaryLine("", "", report.problem)
    else:
        yield SummaryLine("GPU time", *_no_use(report, seconds))
    if report.awaited and not report.trainings:
        yield SummaryLine("trainings", "0", f"--auto supports {report.awaited}, in a Python that reads PYTHONPATH")
    for training in report.trainings[-_SHOWN:]:
        yield _training(training, alone=len(report.trainings) == 1)
    if len(report.trainings) > _SHOWN:
        yield SummaryLine("", "", f"and {len(report.trainings) - _SHOWN} earlier trainings")


def _no_use(report: CommandReport, seconds: float) -> tuple[str, str]:
    """Return the value and the note in the line "GPU time", for a command that was seen on no GPU."""
    if report.problem:
        return units.MISSING, clean(report.problem, 300)
    if report.hidden:
        return units.MISSING, "unknown: the driver does not report which processes of this container use a GPU"
    if not report.devices:
        return units.MISSING, "unknown: the command exited before the first sample"
    if seconds < _SEEN_AFTER:
        return units.MISSING, "no process seen on a GPU (the command may have been too short)"
    return units.duration(0), f"none of the {report.devices} GPUs was used" if report.devices > 1 else "no GPU was used"


def _device_lines(uses: Sequence[DeviceCost]) -> Iterator[SummaryLine]:
    names = {clean(short_name(use.device.name), 40): 0 for use in uses}
    gpus = f"GPU {', '.join(use.device.label for use in uses)}" if len(uses) <= 8 else f"{len(uses)} GPUs"
    total = sum(use.seconds for use in uses)
    bound = AT_LEAST if any(use.lacks_time for use in uses) else ""
    yield SummaryLine("GPU time", bound + units.duration(total), f"{gpus}: {', '.join(names)}")
    energy, metered = sum(use.energy for use in uses), sum(use.metered for use in uses)
    mean = f"{units.number(energy / metered, Unit.WATTS)} on average" if metered and is_known(energy) else ""
    bound = AT_LEAST if any(use.lacks_energy for use in uses) else ""
    yield SummaryLine("energy", units.limited(energy, Unit.JOULES, bound), mean)
    seen = sum(use.seen for use in uses)
    busy = sum(use.utilization * use.seen for use in uses if use.seen) / seen if seen else NAN
    idle = sum(use.idle_share * use.seen for use in uses if use.seen) / seen if seen else NAN
    notes = [note for note in (_idle(idle), _spread(uses)) if note]
    yield SummaryLine("utilization", units.number(busy, Unit.RATIO), ", ".join(notes))
    fullest = max(uses, key=lambda use: -1.0 if not is_known(use.memory_peak) else use.memory_peak)
    gpu = f", on GPU {fullest.device.label}" if len(uses) > 1 else ""
    peak = "" if not is_known(fullest.memory_peak) else f"peak, of {units.bytes_binary(fullest.memory_total)}{gpu}"
    yield SummaryLine("GPU memory", units.bytes_binary(fullest.memory_peak), peak or "not reported by the driver")


def _idle(share: float) -> str:
    return "" if not is_known(share) else f"idle {units.number(share, Unit.RATIO)} of the time"


def _spread(uses: Sequence[DeviceCost]) -> str:
    means = [use.utilization for use in uses if is_known(use.utilization)]
    if len(means) < 2:
        return ""
    return f"{units.rounded(min(means) * 100)} to {units.number(max(means), Unit.RATIO)} by GPU"


def _training(training: Training, *, alone: bool) -> SummaryLine:
    parts = [] if alone else [clean(training.name, 40)]
    if training.epochs:
        parts.append(f"{units.fine_duration(training.seconds)} each")
    parts += [f"{clean(name, 40)} {units.logged_number(value)}" for name, value in training.metrics.items()]
    if training.steps and not training.epochs:  # such as boosted trees
        return SummaryLine("steps", str(training.steps), ", ".join(parts))
    return SummaryLine("epochs", str(training.epochs), ", ".join(parts))
