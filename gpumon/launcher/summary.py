"""Cost of a command, as a few lines for a person."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.common.text import clean
from gpumon.launcher.command import Ended
from gpumon.launcher.watcher import CommandReport
from gpumon.model import units
from gpumon.model.device import Device
from gpumon.model.energy import FOLLOWS, EnergyReadings
from gpumon.model.epoch import EpochEnd, EpochFold
from gpumon.model.frame import Boundary, Frame, Run, RunState, Sample
from gpumon.model.metrics import IDLE, Availability, Unit
from gpumon.model.units import AT_LEAST
from gpumon.model.vendors import short_name

_LONGEST = 3
"""Intervals for which a value is believed: beyond it nobody looked."""
_LEAST_ENERGY = 1.0
"""Seconds below which the counter is too coarse."""
_COVERED = 0.98
"""Share of the time on a device from which on a known energy is the whole: as in the ledger."""


class DeviceCost:
    """One device, while the command held it."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.seconds = 0.0
        self.unseen = 0.0
        """Seconds before the first frame, which shows that the command holds the device: it may have done so before."""
        self.seen = 0.0
        """Seconds of which the utilization is known."""
        self.memory_peak = NAN
        """Bytes that the command's processes held together."""
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
        """Joules of the whole board; NaN where its counter does not tell, and below one second."""
        return self._energy if self._energy_seconds >= _LEAST_ENERGY else NAN

    @property
    def metered(self) -> float:
        """Seconds of which the energy is known."""
        return self._energy_seconds

    @property
    def lacks_time(self) -> bool:
        """Whether the command may have held the device for longer than was seen."""
        return self.seconds < _COVERED * (self.seconds + self.unseen)

    @property
    def lacks_energy(self) -> bool:
        """Whether the energy is that of a part of the time for which the command may have held the device."""
        return self._energy_seconds < _COVERED * (self.seconds + self.unseen)

    def add_energy(self, joules: float, seconds: float) -> None:
        """Add energy of so many seconds; NaN is left out."""
        if is_known(joules):
            self._energy += joules
            self._energy_seconds += seconds

    def add(self, sample: Sample, seconds: float, believed: float) -> None:
        """`seconds` more, of which `sample` tells for `believed`."""
        self.device = sample.device
        self.seconds += seconds
        if sample.state is not Availability.OK:
            return  # what it has is of before
        utilization = sample.value("gpu.utilization")
        if is_known(utilization):
            self.seen += believed
            self._busy += utilization * believed
            self._idle += believed if utilization < IDLE else 0.0
        self.memory_total = sample.value("gpu.memory_total")

    def held(self, memory: float) -> None:
        """The command's processes hold `memory` bytes now."""
        if not memory <= self.memory_peak:
            self.memory_peak = self.memory_peak if not is_known(memory) else memory


class CommandCost:
    """Adds up frames. `is_its` tells whether a process is the command's, `is_its_run` whether a run is.

    `began` is when the command began: ns, CLOCK_MONOTONIC.
    """

    def __init__(self, began: int, is_its: Callable[[int], bool], is_its_run: Callable[[Run], bool]) -> None:
        self.uses: dict[str, DeviceCost] = {}
        self.devices = 0
        """Number of devices in the newest frame."""
        self.hidden = False
        """Whether a device is held by somebody whom nobody here can see: perhaps by the command."""
        self.silent: set[str] = set()
        """UUIDs of devices whose driver calls did not come back in time."""
        self._began = began
        self._is_its = is_its
        self._is_its_run = is_its_run
        self._last: Frame | None = None
        self._readings: dict[str, EnergyReadings] = {}
        """By UUID."""
        self._holding: Mapping[str, float] = {}

    def take(self, frame: Frame, ended: int = 0) -> None:
        """The next frame. `ended` is when the command ended; 0 while it runs."""
        self.devices = sum(not sample.device.is_divided for sample in frame.samples)
        # Of a frame that is not full the processes are not known: what held before is taken to hold still.
        if frame.is_full and frame.monotonic_ns >= self._began and not (ended and frame.monotonic_ns > ended):
            self._holding = self._held_in(frame)
            self.hidden = self.hidden or any(not process.user for process in frame.processes)
        last, self._last = self._last, frame
        if last is None:
            self._note_begin(frame)
        if last is None or frame.monotonic_ns <= last.monotonic_ns or frame.monotonic_ns <= self._began:
            self._read_energy(frame, self._began)
            return
        first, until = max(last.monotonic_ns, self._began), min(frame.monotonic_ns, ended or frame.monotonic_ns)
        seconds = max(0, until - first) / SECOND
        self.silent.update(sample.device.uuid for sample in frame.samples if sample.state is Availability.STALE)
        for sample in frame.samples:
            if sample.device.uuid in self._holding:
                self._add(sample, seconds, frame.interval)
        self._read_energy(frame, until)

    def finish(self, ended: int) -> None:
        """The command ended, perhaps after the last frame: what held then held to the end."""
        last = self._last
        if last is None or last.monotonic_ns >= ended or last.monotonic_ns < self._began:
            return
        seconds = (ended - last.monotonic_ns) / SECOND
        if seconds > _LONGEST * max(last.interval, 1.0):
            return
        for sample in last.samples:
            if sample.device.uuid in self._holding:
                self._add(sample, seconds, last.interval)
                self.uses[sample.device.uuid].add_energy(sample.value("gpu.power") * seconds, seconds)

    @property
    def holding(self) -> tuple[str, ...]:
        """UUIDs of the devices that the command holds now."""
        return tuple(self._holding)

    def _note_begin(self, first: Frame) -> None:
        """Of the devices that the command holds in the first frame nobody knows since when it does."""
        unseen = (first.monotonic_ns - self._began) / SECOND
        for sample in first.samples:
            if unseen > 0 and sample.device.uuid in self._holding:
                use = self.uses.setdefault(sample.device.uuid, DeviceCost(sample.device))
                use.unseen = unseen

    def _read_energy(self, frame: Frame, until: int) -> None:
        """Add what the counters tell of the time of the command, up to `until`."""
        for sample in frame.samples:
            uuid = sample.device.uuid
            if sample.state is not Availability.OK:
                continue
            readings = self._readings.setdefault(uuid, EnergyReadings())
            values = sample.value("gpu.energy"), sample.value("gpu.power_limit")
            for growth in readings.add(frame.monotonic_ns, *values):
                seconds = (min(growth.end, until) - max(growth.begin, self._began)) / SECOND
                length = (growth.end - growth.begin) / SECOND
                if uuid in self._holding and seconds > 0 and length <= FOLLOWS:
                    self.uses[uuid].add_energy(growth.joules * seconds / length, seconds)

    def _add(self, sample: Sample, seconds: float, interval: float) -> None:
        use = self.uses.setdefault(sample.device.uuid, DeviceCost(sample.device))
        use.add(sample, seconds, min(seconds, _LONGEST * interval))
        use.held(self._holding[sample.device.uuid])

    def _held_in(self, frame: Frame) -> dict[str, float]:
        """Bytes that the command holds on each device that it holds; NaN where nobody tells how many."""
        found: dict[str, float] = {}
        for process in frame.processes:
            if self._is_its(process.pid):
                # NaN once is NaN for all: a part is not the whole.
                found[process.uuid] = found.get(process.uuid, 0.0) + process.memory_used
        runs = {run.key: run for run in frame.runs if run.state is RunState.RUNNING and self._is_its_run(run)}
        for sample in frame.samples:
            uuid = sample.device.uuid
            if uuid not in found and any(uuid in run.gpus for run in runs.values()):
                # The driver does not show the process here (a container): the training itself tells.
                found[uuid] = sample.value("gpu.run_reserved") if sample.run in runs else NAN
        return found


_EPOCHS_SHOWN = 2


class Training(NamedTuple):
    """A training that a command ran; of a distributed one, what its first rank told."""

    id: str
    name: str
    epochs: int
    """Whole ones."""
    seconds: float
    """Mean of an epoch; NaN before the first was whole."""
    metrics: Mapping[str, float]
    """The metrics that it logged last, the losses first."""
    steps: int = 0
    """Over the whole run; 0 where they are not counted."""


class _Rank:
    """Whole epochs of one rank and how long they took, in ns."""

    def __init__(self) -> None:
        self._fold = EpochFold()
        self._begun: Boundary | None = None
        self._last: tuple[int, int] | None = None
        """Number and duration of the newest whole epoch."""
        self.epochs = 0
        self.total = 0

    def take(self, boundary: Boundary) -> None:
        """Take the next boundary."""
        change = self._fold.add(boundary)
        if change is None:
            return
        if change.closed is not None and self._begun is not None:
            self._last = None
            if change.closed is EpochEnd.FINISHED:
                self._last = self._begun.epoch, boundary.monotonic_ns - self._begun.monotonic_ns
                self._add(1, self._last[1])
            self._begun = None
        if change.begun:
            self._begun = boundary
        if self._last is not None and change.revoked == self._last[0]:
            self._add(-1, -self._last[1])
            self._last = None

    def _add(self, epochs: int, nanoseconds: int) -> None:
        self.epochs += epochs
        self.total += nanoseconds


class CommandTrainings:
    """Collects the trainings of the command, from frames and from boards: a boundary that comes twice counts once."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._ranks: dict[str, _Rank] = {}

    def take(self, runs: Iterable[Run], boundaries: Iterable[Boundary]) -> None:
        """Add what is known of the command's `runs` by now; `boundaries` may have those of other runs too."""
        self._runs.update((run.key, run) for run in runs)
        for boundary in boundaries:
            if boundary.run in self._runs:
                self._ranks.setdefault(boundary.run, _Rank()).take(boundary)

    def __bool__(self) -> bool:
        return bool(self._runs)

    def trainings(self) -> list[Training]:
        """In the order of their begin."""
        first: dict[str, Run] = {}
        for run in sorted(self._runs.values(), key=lambda run: (run.rank, run.started)):
            first.setdefault(run.id, run)
        return [self._training(run) for run in sorted(first.values(), key=lambda run: run.started)]

    def _training(self, run: Run) -> Training:
        rank = self._ranks.get(run.key, _Rank())
        seconds = rank.total / rank.epochs / SECOND if rank.epochs else NAN
        return Training(run.id, run.name, rank.epochs, seconds, _losses(run.metrics), run.step)


def _losses(metrics: Mapping[str, float]) -> dict[str, float]:
    """The losses of what was logged; without any, the first number."""
    losses = [name for name in metrics if "loss" in name.lower()] or list(metrics)[:1]
    return {name: metrics[name] for name in losses[:_EPOCHS_SHOWN]}


_SHOWN = 4
"""Trainings that have a line of their own."""
_SEEN_AFTER = 10.0
"""Seconds: processes on a device are looked up every few, so that nobody saw what was shorter."""
_BOLD, _DIM, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"


class SummaryLine(NamedTuple):
    """Label, amount and a note."""

    title: str
    value: str
    note: str = ""


def text(name: str, ended: Ended, seconds: float, report: CommandReport, *, color: bool) -> str:
    """The closing table of a command that ran for `seconds`; `color` for a terminal."""
    bold, dim, plain = (_BOLD, _DIM, _PLAIN) if color else ("", "", "")
    lines = list(_lines(ended, seconds, report))
    titles, values = (max(len(part) for part in parts) for parts in list(zip(*lines, strict=True))[:2])
    head = "  ·  ".join(part for part in (f"{bold}{clean(name, 60)}{plain}", how(ended)) if part)
    rows = [f"gpumon  {head}"]
    for line in lines:
        row = f"  {dim}{line.title:<{titles}}{plain}  {bold}{line.value:>{values}}{plain}  {line.note}"
        rows.append(row.rstrip())
    if report.shown_as:
        rows.append(f"  {dim}gpumon runs show {report.shown_as}{plain}")
    return "\n".join(rows) + "\n"


def how(ended: Ended) -> str:
    """Return in words why a command failed; empty when it did not."""
    if ended.signal:
        known = ended.signal in set(signal.Signals)
        return f"ended by {signal.Signals(ended.signal).name if known else f'signal {ended.signal}'}"
    return f"exit code {ended.code}" if ended.code else ""


def _lines(ended: Ended, seconds: float, report: CommandReport) -> Iterator[SummaryLine]:
    cores = f"{ended.cpu / seconds:.1f} CPU cores" if seconds >= 1 and is_known(ended.cpu) else ""
    memory = "" if not is_known(ended.memory) else f"{units.bytes_binary(ended.memory)} of memory"
    yield SummaryLine("time", units.span(seconds), ", ".join(part for part in (cores, memory) if part))
    if report.uses:
        yield from _device_lines(report.uses)
        if report.problem:
            yield SummaryLine("", "", report.problem)
    else:
        yield SummaryLine("GPU time", *_without(report, seconds))
    if report.awaited and not report.trainings:
        yield SummaryLine("trainings", "0", f"--auto knows {report.awaited}, in a Python that heeds PYTHONPATH")
    for training in report.trainings[-_SHOWN:]:
        yield _training(training, alone=len(report.trainings) == 1)
    if len(report.trainings) > _SHOWN:
        yield SummaryLine("", "", f"and {len(report.trainings) - _SHOWN} earlier trainings")


def _without(report: CommandReport, seconds: float) -> tuple[str, str]:
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
    which = f"GPU {', '.join(use.device.label for use in uses)}" if len(uses) <= 8 else f"{len(uses)} GPUs"
    total = sum(use.seconds for use in uses)
    least = AT_LEAST if any(use.lacks_time for use in uses) else ""
    yield SummaryLine("GPU time", least + units.duration(total), f"{which}: {', '.join(names)}")
    energy, metered = sum(use.energy for use in uses), sum(use.metered for use in uses)
    mean = f"{units.number(energy / metered, Unit.WATTS)} on average" if metered and is_known(energy) else ""
    least = AT_LEAST if any(use.lacks_energy for use in uses) else ""
    yield SummaryLine("energy", units.limited(energy, Unit.JOULES, least), mean)
    seen = sum(use.seen for use in uses)
    busy = sum(use.utilization * use.seen for use in uses if use.seen) / seen if seen else NAN
    idle = sum(use.idle_share * use.seen for use in uses if use.seen) / seen if seen else NAN
    notes = [note for note in (_idle(idle), _spread(uses)) if note]
    yield SummaryLine("utilization", units.number(busy, Unit.RATIO), ", ".join(notes))
    fullest = max(uses, key=lambda use: -1.0 if not is_known(use.memory_peak) else use.memory_peak)
    where = f", on GPU {fullest.device.label}" if len(uses) > 1 else ""
    peak = "" if not is_known(fullest.memory_peak) else f"peak, of {units.bytes_binary(fullest.memory_total)}{where}"
    yield SummaryLine("GPU memory", units.bytes_binary(fullest.memory_peak), peak or "not reported by the driver")


def _idle(share: float) -> str:
    return "" if not is_known(share) else f"idle {units.number(share, Unit.RATIO)} of the time"


def _spread(uses: Sequence[DeviceCost]) -> str:
    means = [use.utilization for use in uses if is_known(use.utilization)]
    if len(means) < 2:
        return ""
    return f"{units.whole(min(means) * 100)} to {units.number(max(means), Unit.RATIO)} by GPU"


def _training(training: Training, *, alone: bool) -> SummaryLine:
    parts = [] if alone else [clean(training.name, 40)]
    if training.epochs:
        parts.append(f"{units.span(training.seconds)} each")
    parts += [f"{clean(name, 40)} {units.plain(value)}" for name, value in training.metrics.items()]
    if training.steps and not training.epochs:  # of boosted trees, say
        return SummaryLine("steps", str(training.steps), ", ".join(parts))
    return SummaryLine("epochs", str(training.epochs), ", ".join(parts))
