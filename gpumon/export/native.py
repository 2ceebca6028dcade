"""The native dialect: every name from the table of metrics, GPUs by `gpu` and `uuid` alone, all else by joins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf

from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.thresholds import PAUSE
from gpumon.common.numbers import NAN, is_known
from gpumon.export.family import EXPORTED, Family, counter, gauge, info, label_text, sentence
from gpumon.export.snapshot import GpuFacts, Snapshot, UserNames, job_of
from gpumon.export.usage import use_families
from gpumon.model.device import countable_uuids
from gpumon.model.frame import Run, RunState
from gpumon.model.metrics import GPU_INDEX, GPU_METRICS, HOST_METRICS, PROCESSES, Availability, Kind, Metric
from gpumon.model.process import pod_parts

GIVEN, RUNS = "allocation", "process"


def job_families(snapshot: Snapshot, users: UserNames) -> Iterator[Family]:
    """Yield the job and the pods of each GPU; of several jobs on one, none, so that joins find one at most."""
    found = [(one, job) for one in snapshot.gpus if (job := job_of(one)).job]
    yield info(
        "gpumon_gpu_job_info",
        "The Slurm job that has a GPU. by: allocation, where the scheduler gave it the GPU, or process, where its "
        "processes are on it.",
        ("gpu", "uuid", "slurm_job", "user", "by"),
        [(one.gpu, one.uuid, job.job, users.told(job.user), GIVEN if job.is_given else RUNS) for one, job in found],
    )
    pods = [
        (one.gpu, one.uuid, *(users.words(part, process.user) for part in pod_parts(process.pod)))
        for one in snapshot.gpus
        for process in one.processes or ()
        if process.pod
    ]
    yield info("gpumon_gpu_pod_info", "The Kubernetes pods whose processes are on a GPU.",
               ("gpu", "uuid", "pod_uid", "pod_name"), pods)  # fmt: skip


_LABELS = ("uuid", "run")
IDENTITY = ("uuid", "run", "name", "user", "slurm_job", "pod_uid", "pod_name")
"""Not `job` and `pod`: a scrape has labels of these names."""


def run_families(snapshot: Snapshot, users: UserNames) -> Iterator[Family]:
    """Yield the run in force on each GPU; there is at most one, so that joins find one."""
    found = [(one, run) for one in snapshot.gpus if (run := _in_force(one, snapshot)) is not None]
    yield info(
        "gpumon_run_info",
        "The run on a GPU, with its user, and its Slurm job and Kubernetes pod where it is in one.",
        IDENTITY,
        [_identity(one, run, users) for one, run in found],
    )
    named = [((one.uuid, users.run_id(run.id, run.user)), run) for one, run in found]
    yield gauge("gpumon_run_epoch", "Epoch of the run, as its framework counts.", _LABELS,
                [(labels, float(run.epoch) if run.epoch >= 0 else NAN) for labels, run in named])  # fmt: skip
    yield gauge("gpumon_run_epochs", "Epochs that the run plans.", _LABELS,
                [(labels, float(run.epochs) if run.epochs > 0 else NAN) for labels, run in named])  # fmt: skip
    # A new run is no new series of these: it costs three on each GPU, and is one join away.
    yield gauge("gpumon_run_step", "Step of the run on a GPU, as it was published last.", _LABELS[:1],
                [((one.uuid,), float(run.step)) for one, run in found])  # fmt: skip
    yield gauge("gpumon_run_start_timestamp_seconds", "When the run on a GPU began, seconds since 1970.", _LABELS[:1],
                [((one.uuid,), run.started) for one, run in found])  # fmt: skip


def _in_force(one: GpuFacts, snapshot: Snapshot) -> Run | None:
    run = snapshot.runs.get(one.sample.run) if one.sample.run else None
    if run is None:
        run = next((ranks.first for ranks in one.runs), None)
    return run if run is not None and run.state is RunState.RUNNING else None


def _identity(one: GpuFacts, run: Run, users: UserNames) -> tuple[str, ...]:
    own = [process for process in one.processes or () if process.run == run.key]
    job = next((process.job for process in own if process.job), "") or run.facts.job
    uid, pod = pod_parts(next((process.pod for process in own if process.pod), ""))
    texts = (users.words(text, run.user) for text in (job, uid, pod))
    return (one.uuid, users.run_id(run.id, run.user), users.words(run.name, run.user), users.told(run.user), *texts)


GPU = ("gpu", "uuid")
STATES = ("free", "busy", "held_idle", "lost", "unknown")
_STATE = {
    GpuState.FREE: "free",
    GpuState.BUSY: "busy",
    GpuState.HELD: "held_idle",
    GpuState.LOST: "lost",
}
_BY_DESIGN = (Availability.OF_WHOLE_GPU, Availability.IN_MIG_MODE)
"""Metrics that every MIG instance lacks: told of 56 of them it would be most of a scrape, and no news."""
_PROCESSES = "gpumon_gpu_processes"
ALL = "all"
"""The metric that is not available where a GPU does not answer."""


def native_families(snapshot: Snapshot, users: UserNames) -> list[Family]:
    """Return all families of a node."""
    found = [*node_families(snapshot), gpus_family(snapshot)]
    if snapshot.live:
        found += device_families(snapshot)
        found += host_families(snapshot)
        found += use_families(snapshot, users)
        found += run_families(snapshot, users)
        found += job_families(snapshot, users)
    return [family for family in found if family.series]


def node_families(snapshot: Snapshot) -> Iterator[Family]:
    """Yield what is known even of a node that is silent."""
    yield gauge("gpumon_up", "Whether a daemon samples the GPUs now.", (), [((), float(snapshot.live))])
    yield gauge("gpumon_last_sample_timestamp_seconds", "Time of the newest sample, in seconds since 1970.", (),
                [((), snapshot.newest)])  # fmt: skip
    if is_known(snapshot.newest):
        yield gauge("gpumon_sample_interval_seconds", "Seconds between samples, as planned.", (),
                    [((), snapshot.interval)])  # fmt: skip
    if snapshot.origin.source:
        yield info(
            "gpumon_source_info",
            "Where the numbers come from; `label` is there where that is no hardware of now: SIMULATED, REPLAY.",
            ("source", "label"),
            [(label_text(snapshot.origin.source), label_text(snapshot.origin.label))],
        )
    if snapshot.problem:
        yield info("gpumon_problem_info", "Why no GPU can be read, for people.", ("problem",),
                   [(sentence(snapshot.problem),)])  # fmt: skip
    if snapshot.version:
        yield info("gpumon_build_info", "Version of the gpumon that samples.", ("version",),
                   [(label_text(snapshot.version),)])  # fmt: skip


def gpus_family(snapshot: Snapshot) -> Family:
    """GPUs by state; those of a node that is silent are unknown, and of one that never sampled nobody knows of any."""
    devices = countable_uuids([one.sample.device for one in snapshot.gpus])
    counts = Counter(_state(one) for one in snapshot.gpus if one.uuid in devices)
    if not snapshot.live:
        counts["unknown"] = snapshot.devices
    return gauge(
        "gpumon_gpus",
        "GPUs by state. free: nobody holds it. busy: it works or has in the last minute, or was taken in it. "
        "held_idle: it is held and does nothing. lost: the driver lost it. unknown: it does not answer, or it is not "
        "known whether it works. "
        "A MIG instance counts as a GPU, and one that MIG divides does not; one that is lost counts once.",
        ("state",),
        [((state,), float(counts[state])) for state in STATES] if is_known(snapshot.newest) else (),
    )


def _state(one: GpuFacts) -> str:
    if one.state is GpuState.ALLOCATED:
        # Idle for longer than it is held; or else nobody has watched it for long enough, or can: a MIG instance.
        return "busy" if one.idle >= PAUSE else "unknown"
    return _STATE.get(one.state, "unknown")


def device_families(snapshot: Snapshot) -> Iterator[Family]:
    """Yield the metrics of GPUs, what they are, and which metrics they lack."""
    gpus = snapshot.gpus
    answering = [((one.gpu, one.uuid), one.sample.values) for one in gpus if one.answers]
    for place, metric in enumerate(GPU_METRICS):
        yield _family(metric, GPU, [(labels, values[place]) for labels, values in answering])
    driver = label_text(snapshot.driver.version)
    yield info(
        "gpumon_gpu_info", "Model, driver and place of a GPU; of a MIG instance, `parent` is the UUID of its GPU.",
        (*GPU, "model", "driver", "pci_bus_id", "parent"),
        [(one.gpu, one.uuid, label_text(one.sample.device.name), driver,
          label_text(one.sample.device.address), one.sample.device.parent)
         for one in gpus],
    )  # fmt: skip
    listed = [one for one in gpus if one.processes is not None]
    yield gauge(_PROCESSES, "Processes on a GPU.", GPU,
                [((one.gpu, one.uuid), float(len(one.processes or ()))) for one in listed])  # fmt: skip
    yield gauge("gpumon_gpu_idle_seconds", "Seconds for which a GPU has done nothing without a break.", GPU,
                [((one.gpu, one.uuid), one.idle) for one in gpus])  # fmt: skip
    yield gauge(
        "gpumon_gpu_unavailable",
        'Metrics that a GPU does not have now, and why; metric "all": it does not answer.',
        (*GPU, "metric", "reason"),
        list(_unavailable(gpus)),
    )


def host_families(snapshot: Snapshot) -> Iterator[Family]:
    """Yield the metrics of the host."""
    for metric, value in zip(HOST_METRICS, snapshot.host, strict=False):
        yield _family(metric, (), [((), value)])


def _family(metric: Metric, labels: Sequence[str], series: Sequence[tuple[tuple[str, ...], float]]) -> Family:
    make = counter if metric.kind is Kind.COUNTER else gauge
    return make(EXPORTED[metric.name], metric.help, labels, [one for one in series if -inf < one[1] < inf])


def _unavailable(gpus: Sequence[GpuFacts]) -> Iterator[tuple[tuple[str, ...], float]]:
    for one in gpus:  # first: of too many lines the first ones are kept
        if not one.answers:
            yield (one.gpu, one.uuid, ALL, _reason(one.sample.state)), 1.0
    for one in gpus:
        if not one.answers:
            continue
        values = one.sample.values
        if one.processes is None:
            yield (one.gpu, one.uuid, _PROCESSES, _reason(one.sample.device.missing[PROCESSES])), 1.0
        for name, why in one.sample.device.missing.items():
            place = GPU_INDEX.get(name)
            is_usual = why in _BY_DESIGN and one.sample.device.is_instance
            if place is not None and not is_usual and not -inf < values[place] < inf:
                yield (one.gpu, one.uuid, EXPORTED[name], _reason(why)), 1.0


def _reason(why: Availability) -> str:
    return why.name.lower()
