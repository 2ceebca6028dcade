"""The state of a machine at one scrape, read from the ring once, and helpers that build families from this state."""

from __future__ import annotations

import hashlib
import pwd
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import floor, inf
from typing import Protocol

from gpumon.analysis.gpu_state import Activity, GpuState
from gpumon.analysis.gpu_status import ANSWERS, GpuStatus, gpu_statuses, is_unreadable, no_gpu_reason
from gpumon.analysis.ranks import Ranks, ranks_of
from gpumon.analysis.thresholds import GAP
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.common.privacy import SOMEBODY, contains_user_name
from gpumon.export.family import Family, counter, gauge, label_text
from gpumon.live import LiveState
from gpumon.model.device import countable_uuids, job_parts
from gpumon.model.frame import Frame, Run, Sample
from gpumon.model.metrics import PROCESSES
from gpumon.model.origin import Driver, Origin
from gpumon.model.process import Process
from gpumon.ring.sums import Sums
from gpumon.storage.usage.running_sums import Totals, totals_from_sums

_HASH_LETTERS = 12


class UserNames(StrEnum):
    """Forms of user names in labels: name, uid, hash, or no name at all."""

    NAME = "name"
    UID = "uid"
    HASH = "hash"
    """Hash of the name. The hash is the same on every machine, so that sums over a cluster are correct. It does not
    keep names secret, because anyone who guesses a name can verify the guess."""
    OFF = "off"

    def label(self, user: str, uid_of: Callable[[str], str] | None = None) -> str:
        """Return the label value for a user; empty if `user` is empty.

        `uid_of`: function that returns the uid of a user name as text.
        """
        if not user or self is UserNames.OFF:
            return ""
        if self is UserNames.UID:
            return (uid_of or _uid_of)(user)
        if self is UserNames.HASH:
            return hashlib.sha256(user.encode(errors="replace")).hexdigest()[:_HASH_LETTERS]
        return label_text(user)

    def redact(self, text: str, user: str) -> str:
        """Return a label value for `text`, which `user` wrote.

        The text is replaced if it contains the user's name and names must not be shown.
        """
        return label_text(SOMEBODY if self is not UserNames.NAME and contains_user_name(text, user) else text)

    def run_id(self, run_id: str, user: str) -> str:
        """Return a run's id as a label value.

        The id is hashed if it contains the user's name and names must not be shown.
        """
        if self is UserNames.NAME or not contains_user_name(run_id, user):
            return label_text(run_id)
        return "run-" + hashlib.sha256(run_id.encode(errors="replace")).hexdigest()[:_HASH_LETTERS]


def _uid_of(user: str) -> str:
    """Return the uid of a user as text, or an empty string if there is no such account.

    If `user` is a number, the number is returned, because users without an account on this machine are named by their
    uid.
    """
    if user.isascii() and user.isdigit():
        return user
    try:
        return str(pwd.getpwnam(user).pw_uid)
    except (KeyError, ValueError):
        return ""


class LiveData(Protocol):
    """The methods of `Live` that an exporter uses."""

    def latest(self) -> Frame | None:
        """Return the newest frame, or None if there is none yet."""

    def state(self) -> LiveState:
        """Return the state of the data, such as whether it is current."""

    def sums(self) -> Sums | None:
        """Return the daemon's running sums, or None if there are none."""

    def driver(self) -> Driver:
        """Return the driver and its version."""

    def hostname(self) -> str:
        """Return the name of the machine."""

    def version(self) -> str:
        """Return the version of gpumon that the daemon is running."""

    def origin(self) -> Origin:
        """Return the origin of the data."""


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """A GPU or MIG instance with its current state, processes and runs."""

    sample: Sample
    state: GpuState
    gpu: str
    """Number of the GPU, for display."""
    uuid: str
    processes: tuple[Process, ...] | None
    """The processes on the GPU. None if the list cannot be read or is not current."""
    runs: tuple[Ranks, ...]
    """The runs on the GPU, with the current run first."""
    idle: float = NAN
    """Seconds for which the GPU has been idle. NaN if it is busy, or if the time was not measured."""
    has_unknown_holder: bool = False
    """True if an unknown user holds the GPU."""

    @property
    def answers(self) -> bool:
        """True if the GPU answers, so that its values are current."""
        return self.sample.state in ANSWERS


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a machine at one scrape."""

    live: bool
    """True if a daemon is sampling. Otherwise only `newest`, `interval`, `version`, `devices` and `reason` are set."""
    newest: float
    """Time of the newest sample (s since 1970), NaN if there is none."""
    interval: float
    version: str = ""
    """The version of gpumon that the daemon runs."""
    driver: Driver = field(default_factory=Driver)
    host: Sequence[float] = ()
    gpus: Sequence[GpuFacts] = ()
    runs: Mapping[str, Run] = field(default_factory=dict)
    """Runs of the frame, by key of the run."""
    totals: Totals | None = None
    """Usage totals, or None if no daemon updates them."""
    devices: int = 0
    """Number of GPUs in the newest frame. In place of a GPU divided by MIG, its instances are counted."""
    reason: str = ""
    """Why no daemon is sampling, as text for users. Empty if `live`."""
    origin: Origin = field(default_factory=lambda: Origin(""))
    problem: str = ""
    """Why no GPU can be read, as text for users. Empty if at least one can be read."""


def take_snapshot(live: LiveData) -> Snapshot:
    """Read the ring once, and return the state. Never raises."""
    frame, state, sums = live.latest(), live.state(), live.sums()
    if frame is None:
        return Snapshot(False, NAN, state.interval, reason=state.text)
    devices = len(countable_uuids([sample.device for sample in frame.samples]))
    if not state.live:
        return Snapshot(False, frame.time, state.interval, live.version(), devices=devices, reason=state.text)
    totals, origin = totals_from_sums(sums) if sums else None, live.origin()
    if totals and abs(frame.monotonic_ns - totals.monotonic_ns) > GAP * max(frame.interval, 0.1) * SECOND:
        totals = None  # the totals are outdated, because no daemon updates them any more
    return Snapshot(
        live=True,
        newest=frame.time,
        interval=frame.interval,
        version=live.version(),
        driver=live.driver(),
        host=frame.host,
        gpus=_gpus(frame, totals),
        runs={run.key: run for run in frame.runs},
        totals=totals,
        devices=devices,
        origin=origin,
        problem=origin.problem or (no_gpu_reason(frame, "") if is_unreadable(frame) else ""),
    )


def _gpus(frame: Frame, totals: Totals | None) -> list[GpuFacts]:
    activity = Activity()
    activity.add(frame)
    gpus = []
    for status in gpu_statuses(frame, ranks_of(frame.runs), activity):
        device = status.sample.device
        sums = totals.devices.get(device.uuid) if totals else None
        state, idle = status.state, NAN
        if sums and totals and status.since is not None:
            # A single frame does not show how long a GPU has been idle, but the totals of the daemon do.
            idle = sums.now.idle + max(0.0, (frame.monotonic_ns - totals.monotonic_ns) / SECOND)
            if state is GpuState.ALLOCATED and sums.state in (GpuState.HELD, GpuState.BUSY):
                state = sums.state
        is_held_without_holder = bool(status.held) and not (status.processes or status.runs)
        gpus.append(
            GpuFacts(
                status.sample, state, device.label, device.uuid, _processes(status), status.runs,
                idle if idle < inf else NAN,
                has_unknown_holder=is_held_without_holder and status.sample.state in ANSWERS,
            )
        )  # fmt: skip
    return gpus


def _processes(status: GpuStatus) -> tuple[Process, ...] | None:
    if status.sample.state not in ANSWERS:
        return None  # the list in the frame is old, and a scrape cannot express its age
    return None if PROCESSES in status.sample.device.missing and not status.processes else status.processes


_MAX_LETTERS = 64


@dataclass(frozen=True, slots=True)
class GpuJob:
    """The scheduler job on a GPU."""

    job: str = ""
    """Id of the job. Empty for no job."""
    uid: str = ""
    """The uid of the job's user; empty if not reported."""
    user: str = ""
    """Name of the user of the job's processes on the GPU; empty if there are no processes."""
    is_allocated: bool = False
    """True if the scheduler allocated the GPU to the job, even if the job does not use it. False if only the job's
    processes on the GPU show the job."""


def find_job(gpu: GpuFacts) -> GpuJob:
    """Return the job of a GPU.

    This is the job to which the GPU is allocated, or else the job of the processes on the GPU. The result is empty if
    there is no job, or if the GPU is not allocated and processes of several jobs are on it.
    """
    job, uid = job_parts(gpu.sample.device.job)
    users = {process.user for process in gpu.processes or () if process.job and process.job == job}
    if job:
        return GpuJob(
            label_text(job, _MAX_LETTERS), label_text(uid, _MAX_LETTERS), users.pop() if len(users) == 1 else "", True
        )
    jobs = {(process.job, process.user) for process in gpu.processes or () if process.job}
    if len(jobs) != 1:
        return GpuJob()
    job, user = jobs.pop()
    return GpuJob(label_text(job, _MAX_LETTERS), "", user)


def has_no_job(gpu: GpuFacts) -> bool:
    """Return True if a GPU is certainly not allocated to a job, and no process of a job is on it."""
    if gpu.sample.device.job or gpu.processes is None or gpu.has_unknown_holder:
        return False
    return not any(process.job for process in gpu.processes)


Labels = Callable[[GpuFacts], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class DialectRow:
    """Defines a family of a dialect: its name, and how its values are computed from metrics."""

    name: str
    metric: str
    """Name of a metric in the metric table, or several names joined by ` + ` and ` - `."""
    factor: float
    """Factor that converts the base unit to the dialect's unit."""
    help: str
    is_counter: bool = False
    is_whole: bool = False
    """True if values are rounded down to whole numbers, as in NVIDIA's programs."""
    optional: Sequence[str] = ()
    """Names of metrics that count as 0 if a GPU does not have them."""


def row_families(
    rows: Sequence[DialectRow], gpus: Sequence[GpuFacts], names: Sequence[str], labels: Labels
) -> Iterator[Family]:
    """Yield a family for each row.

    `names`: label names. `labels`: function that returns the label values of a GPU. Metrics that a GPU does not have
    are left out.
    """
    answering = [(gpu, labels(gpu)) for gpu in gpus if gpu.answers]
    for row in rows:
        make = counter if row.is_counter else gauge
        terms = parse_terms(row.metric)
        yield make(row.name, row.help, names, [(values, _value(row, terms, gpu)) for gpu, values in answering])


def parse_terms(metric: str) -> Mapping[str, float]:
    """Return the metrics in an expression such as `a - b`, each with its sign (1 or -1)."""
    words = f"+ {metric}".split()
    return {name: -1.0 if sign == "-" else 1.0 for sign, name in zip(words[::2], words[1::2], strict=True)}


def _value(row: DialectRow, terms: Mapping[str, float], gpu: GpuFacts) -> float:
    total = 0.0
    for metric, sign in terms.items():
        value = gpu.sample.value(metric)
        if not is_known(value) and metric in row.optional:
            continue
        total += sign * value
    if not -inf < total < inf:
        return NAN
    # A small number is added, because rounding errors may make the product slightly smaller than the exact whole
    # number.
    return float(floor(total * row.factor + 1e-6)) if row.is_whole else total * row.factor
