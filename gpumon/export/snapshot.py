"""One look at the ring: all facts that a scrape tells, and nothing that it does not know."""

from __future__ import annotations

import hashlib
import pwd
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from math import floor, inf
from typing import NamedTuple, Protocol

from gpumon.analysis.gpu_state import Activity, GpuState
from gpumon.analysis.gpu_status import ANSWERS, GpuStatus, gpu_statuses, is_unreadable, no_gpu_reason
from gpumon.analysis.ranks import Ranks, ranks_of
from gpumon.analysis.thresholds import GAP
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.common.privacy import SOMEBODY, names_somebody
from gpumon.export.family import Family, counter, gauge, label_text
from gpumon.live import LiveState
from gpumon.model.device import countable_uuids, job_parts
from gpumon.model.frame import Frame, Run, Sample
from gpumon.model.metrics import PROCESSES
from gpumon.model.origin import Driver, Origin
from gpumon.model.process import Process
from gpumon.ring.sums import Sums
from gpumon.storage.usage.totals import Totals, totals_of

_HASH_LETTERS = 12


class UserNames(StrEnum):
    """A policy."""

    NAME = "name"
    UID = "uid"
    HASH = "hash"
    """Of the name: the same on every machine, so that sums over a cluster stay right. Not a secret: who guesses a name
    can check it."""
    OFF = "off"

    def told(self, user: str, uid_of: Callable[[str], str] | None = None) -> str:
        """Return how a user is called; empty for one who is not known."""
        if not user or self is UserNames.OFF:
            return ""
        if self is UserNames.UID:
            return (uid_of or _uid_of)(user)
        if self is UserNames.HASH:
            return hashlib.sha256(user.encode(errors="replace")).hexdigest()[:_HASH_LETTERS]
        return label_text(user)

    def words(self, text: str, user: str) -> str:
        """Return what people wrote; hidden where it names `user` and users are not told by name."""
        return label_text(SOMEBODY if self is not UserNames.NAME and names_somebody(text, user) else text)

    def run_id(self, run_id: str, user: str) -> str:
        """Return the id of a run; a hash of it where it names `user` and users are not told by name."""
        if self is UserNames.NAME or not names_somebody(run_id, user):
            return label_text(run_id)
        return "run-" + hashlib.sha256(run_id.encode(errors="replace")).hexdigest()[:_HASH_LETTERS]


def _uid_of(user: str) -> str:
    """The number of a user; empty where this machine knows none. One without an account here is called by it."""
    if user.isascii() and user.isdigit():
        return user
    try:
        return str(pwd.getpwnam(user).pw_uid)
    except (KeyError, ValueError):
        return ""


class Readable(Protocol):
    """Live data, as far as an exporter reads them."""

    def latest(self) -> Frame | None:
        """The newest frame."""

    def state(self) -> LiveState:
        """The state of the data."""

    def sums(self) -> Sums | None:
        """Sums of the daemon's ticks."""

    def driver(self) -> Driver:
        """The driver."""

    def hostname(self) -> str:
        """The name of the machine."""

    def version(self) -> str:
        """Version of gpumon that samples."""

    def origin(self) -> Origin:
        """Where the data come from."""


class GpuFacts(NamedTuple):
    """A GPU, or a MIG instance, as it is now."""

    sample: Sample
    state: GpuState
    gpu: str
    """Its number for people."""
    uuid: str
    processes: tuple[Process, ...] | None
    """None where the list cannot be read, or is not that of now."""
    runs: tuple[Ranks, ...]
    """The run in force first."""
    idle: float = NAN
    """Seconds for which it has done nothing; NaN where it works, or nobody knows."""
    has_unknown_holder: bool = False
    """Whether it is held, by whom nobody knows."""

    @property
    def answers(self) -> bool:
        """Whether its values are those of now."""
        return self.sample.state in ANSWERS


class Snapshot(NamedTuple):
    """A node now."""

    live: bool
    """Whether this is what is; else only `newest`, `interval` and the number of devices are known."""
    newest: float
    """Seconds since 1970: the newest sample; NaN where there is none."""
    interval: float
    version: str
    """Of the gpumon that samples."""
    driver: Driver
    host: Sequence[float]
    gpus: Sequence[GpuFacts]
    runs: Mapping[str, Run]
    """By key."""
    totals: Totals | None
    """None where nobody sums up."""
    devices: int
    """GPUs that were there when somebody looked last, each MIG instance for its GPU."""
    why: str = ""
    """Why it is not live, for people."""
    origin: Origin = Origin("")
    """Where the numbers come from."""
    problem: str = ""
    """Why no GPU can be read, for people; empty where one can."""


def take(live: Readable) -> Snapshot:
    """Read the ring once. Never raises."""
    frame, state, sums = live.latest(), live.state(), live.sums()
    if frame is None:
        return Snapshot(False, NAN, state.interval, "", Driver(), (), (), {}, None, 0, state.text)
    devices = len(countable_uuids([one.device for one in frame.samples]))
    if not state.live:
        return Snapshot(
            False, frame.time, state.interval, live.version(), Driver(), (), (), {}, None, devices, state.text
        )
    totals, origin = totals_of(sums) if sums else None, live.origin()
    if totals and abs(frame.monotonic_ns - totals.monotonic_ns) > GAP * max(frame.interval, 0.1) * SECOND:
        totals = None  # of a time that is over: nobody has summed up since
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
    found = []
    for one in gpu_statuses(frame, ranks_of(frame.runs), activity):
        device = one.sample.device
        watched = totals.devices.get(device.uuid) if totals else None
        state, idle = one.state, NAN
        if watched and totals and one.since is not None:
            # One frame does not tell for how long; whoever saw all of them does.
            late = max(0.0, (frame.monotonic_ns - totals.monotonic_ns) / SECOND)
            idle = watched.now.idle + late
            if state is GpuState.ALLOCATED and watched.state in (GpuState.HELD, GpuState.BUSY):
                state = watched.state
        found.append(
            GpuFacts(
                one.sample, state, device.label, device.uuid, _processes(one), one.runs, idle if idle < inf else NAN,
                has_unknown_holder=bool(one.held) and not (one.processes or one.runs) and one.sample.state in ANSWERS,
            )
        )  # fmt: skip
    return found


def _processes(one: GpuStatus) -> tuple[Process, ...] | None:
    if one.sample.state not in ANSWERS:
        return None  # a frame has what was listed last, and a scrape cannot say of when that is
    return None if PROCESSES in one.sample.device.missing and not one.processes else one.processes


_MOST_TEXT = 64


class GpuJob(NamedTuple):
    """A job of a scheduler."""

    job: str = ""
    """Its number; empty where there is none."""
    uid: str = ""
    """Number of its user; empty where nobody says so."""
    user: str = ""
    """Name of its user, of whom its processes are; empty where it has none."""
    is_given: bool = False
    """Whether the scheduler gave it the GPU, whether it uses it or not; else its processes are on it."""


def job_of(one: GpuFacts) -> GpuJob:
    """Return the job of a GPU; none where processes of several are on it."""
    job, uid = job_parts(one.sample.device.job)
    users = {process.user for process in one.processes or () if process.job and process.job == job}
    if job:
        return GpuJob(
            label_text(job, _MOST_TEXT), label_text(uid, _MOST_TEXT), users.pop() if len(users) == 1 else "", True
        )
    found = {(process.job, process.user) for process in one.processes or () if process.job}
    if len(found) != 1:
        return GpuJob()
    job, user = found.pop()
    return GpuJob(label_text(job, _MOST_TEXT), "", user)


def has_no_job(one: GpuFacts) -> bool:
    """Return whether it is known that no job has a GPU: none was given it, and no process of one is on it."""
    if one.sample.device.job or one.processes is None or one.has_unknown_holder:
        return False
    return not any(process.job for process in one.processes)


Labels = Callable[[GpuFacts], tuple[str, ...]]


class DialectRow(NamedTuple):
    """A family."""

    name: str
    metric: str
    """Of the table of metrics; several, joined by ` + `, are added up, and ` - ` takes away."""
    factor: float
    """From the base unit to that of the dialect."""
    help: str
    is_counter: bool = False
    is_whole: bool = False
    """Whether the dialect has whole numbers alone: it rounds down, as NVIDIA's programs do."""
    optional: Sequence[str] = ()
    """Metrics that count as 0 where a GPU does not have them."""


def row_families(
    rows: Sequence[DialectRow], gpus: Sequence[GpuFacts], names: Sequence[str], labels: Labels
) -> Iterator[Family]:
    """Yield the families of `rows`; each GPU has the labels `names`. What a GPU does not have is absent."""
    answering = [(one, labels(one)) for one in gpus if one.answers]
    for row in rows:
        make = counter if row.is_counter else gauge
        terms = terms_of(row.metric)
        yield make(row.name, row.help, names, [(values, _value(row, terms, one)) for one, values in answering])


def terms_of(metric: str) -> Mapping[str, float]:
    """Return the metrics of a row, and the sign of each."""
    words = f"+ {metric}".split()
    return {name: -1.0 if sign == "-" else 1.0 for sign, name in zip(words[::2], words[1::2], strict=True)}


def _value(row: DialectRow, terms: Mapping[str, float], one: GpuFacts) -> float:
    found = 0.0
    for metric, sign in terms.items():
        value = one.sample.value(metric)
        if not is_known(value) and metric in row.optional:
            continue
        found += sign * value
    if not -inf < found < inf:
        return NAN
    # A value that went through a product is a little beside the number that it stands for.
    return float(floor(found * row.factor + 1e-6)) if row.is_whole else found * row.factor
