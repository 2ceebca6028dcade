"""Metrics with gpumon's own names.

Metrics of a GPU have only the labels `gpu` and `uuid`. Other information, such as the model, is in separate families,
which queries can join by these labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf

from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.thresholds import PAUSE
from gpumon.common.numbers import NAN, is_known
from gpumon.export.family import EXPORTED, Family, counter, gauge, info, label_text, sentence
from gpumon.export.snapshot import GpuFacts, Snapshot, UserNames, find_job
from gpumon.export.usage import usage_families
from gpumon.model.device import countable_uuids
from gpumon.model.frame import Run, RunState
from gpumon.model.metrics import GPU_INDEX, GPU_METRICS, HOST_METRICS, PROCESSES, Availability, Kind, Metric
from gpumon.model.process import pod_parts

BY_ALLOCATION, BY_PROCESS = "allocation", "process"


def job_families(snapshot: Snapshot, users: UserNames) -> Iterator[Family]:
    """Yield the scheduler job and the pods of each GPU.

    If there are several jobs on a GPU, no job is exported, so that a join in PromQL matches at most one job.
    """
    jobs = [(gpu, job) for gpu in snapshot.gpus if (job := find_job(gpu)).job]
    yield info(
        "gpumon_gpu_job_info",
        "The Slurm job of a GPU. by: allocation if the scheduler allocated the GPU to the job, process if the job's "
        "processes are on it.",
        ("gpu", "uuid", "slurm_job", "user", "by"),
        [
            (gpu.gpu, gpu.uuid, job.job, users.label(job.user), BY_ALLOCATION if job.is_allocated else BY_PROCESS)
            for gpu, job in jobs
        ],
    )
    pods = [
        (gpu.gpu, gpu.uuid, *(users.redact(part, process.user) for part in pod_parts(process.pod)))
        for gpu in snapshot.gpus
        for process in gpu.processes or ()
        if process.pod
    ]
    yield info("gpumon_gpu_pod_info", "The Kubernetes pods whose processes are on a GPU.",
               ("gpu", "uuid", "pod_uid", "pod_name"), pods)  # fmt: skip


_LABELS = ("uuid", "run")
IDENTITY = ("uuid", "run", "name", "user", "slurm_job", "pod_uid", "pod_name")
"""Labels that identify a run. `job` and `pod` are not used as names, because a scrape adds labels with these names."""


def run_families(snapshot: Snapshot, users: UserNames) -> Iterator[Family]:
    """Yield the current run of each GPU.

    There is at most one run per GPU, so that a join in PromQL matches only one.
    """
    runs = [(gpu, run) for gpu in snapshot.gpus if (run := _current_run(gpu, snapshot)) is not None]
    yield info(
        "gpumon_run_info",
        "The run on a GPU, with its user, and its Slurm job and Kubernetes pod if it has one.",
        IDENTITY,
        [_identity(gpu, run, users) for gpu, run in runs],
    )
    labeled = [((gpu.uuid, users.run_id(run.id, run.user)), run) for gpu, run in runs]
    yield gauge("gpumon_run_epoch", "Epoch of the run, as its framework counts epochs.", _LABELS,
                [(labels, float(run.epoch) if run.epoch >= 0 else NAN) for labels, run in labeled])  # fmt: skip
    yield gauge("gpumon_run_epochs", "Planned epochs of the run.", _LABELS,
                [(labels, float(run.epochs) if run.epochs > 0 else NAN) for labels, run in labeled])  # fmt: skip
    # These series have no label for the run, because each run would then add new series on each GPU. Queries can join
    # the run.
    yield gauge("gpumon_run_step", "Last published step of the run on a GPU.", _LABELS[:1],
                [((gpu.uuid,), float(run.step)) for gpu, run in runs])  # fmt: skip
    yield gauge("gpumon_run_start_timestamp_seconds", "Start of the run on a GPU, in seconds since 1970.", _LABELS[:1],
                [((gpu.uuid,), run.started) for gpu, run in runs])  # fmt: skip


def _current_run(gpu: GpuFacts, snapshot: Snapshot) -> Run | None:
    run = snapshot.runs.get(gpu.sample.run) if gpu.sample.run else None
    if run is None:
        run = next((ranks.first for ranks in gpu.runs), None)
    return run if run is not None and run.state is RunState.RUNNING else None


def _identity(gpu: GpuFacts, run: Run, users: UserNames) -> tuple[str, ...]:
    own = [process for process in gpu.processes or () if process.run == run.key]
    job = next((process.job for process in own if process.job), "") or run.facts.job
    uid, pod = pod_parts(next((process.pod for process in own if process.pod), ""))
    texts = (users.redact(text, run.user) for text in (job, uid, pod))
    return (gpu.uuid, users.run_id(run.id, run.user), users.redact(run.name, run.user), users.label(run.user), *texts)


GPU = ("gpu", "uuid")
STATES = ("free", "busy", "held_idle", "lost", "unknown")
_STATE = {
    GpuState.FREE: "free",
    GpuState.BUSY: "busy",
    GpuState.HELD: "held_idle",
    GpuState.LOST: "lost",
}
_BY_DESIGN = (Availability.OF_WHOLE_GPU, Availability.IN_MIG_MODE)
"""Reasons for which every MIG instance lacks a metric. They are not exported, because they are not useful, and with 56
instances they would be most of a scrape."""
_PROCESSES = "gpumon_gpu_processes"
ALL_METRICS = "all"
"""Value of the label `metric` for a GPU that does not answer."""


def native_families(snapshot: Snapshot, users: UserNames) -> list[Family]:
    """Return all families of a node. `users`: how users are named in labels."""
    families = [*node_families(snapshot), gpus_family(snapshot)]
    if snapshot.live:
        families += device_families(snapshot)
        families += host_families(snapshot)
        families += usage_families(snapshot, users)
        families += run_families(snapshot, users)
        families += job_families(snapshot, users)
    return [family for family in families if family.series]


def node_families(snapshot: Snapshot) -> Iterator[Family]:
    """Yield the families that are exported even if no daemon is sampling."""
    yield gauge("gpumon_up", "Whether a daemon samples the GPUs now.", (), [((), float(snapshot.live))])
    yield gauge("gpumon_last_sample_timestamp_seconds", "Time of the newest sample, in seconds since 1970.", (),
                [((), snapshot.newest)])  # fmt: skip
    if is_known(snapshot.newest):
        yield gauge("gpumon_sample_interval_seconds", "Planned seconds between samples.", (),
                    [((), snapshot.interval)])  # fmt: skip
    if snapshot.origin.source:
        yield info(
            "gpumon_source_info",
            "Source of the values. `label` is SIMULATED or REPLAY, and missing for live hardware.",
            ("source", "label"),
            [(label_text(snapshot.origin.source), label_text(snapshot.origin.label))],
        )
    if snapshot.problem:
        yield info("gpumon_problem_info", "Why no GPU can be read, as a sentence.", ("problem",),
                   [(sentence(snapshot.problem),)])  # fmt: skip
    if snapshot.version:
        yield info("gpumon_build_info", "Version of gpumon that the daemon runs.", ("version",),
                   [(label_text(snapshot.version),)])  # fmt: skip


def gpus_family(snapshot: Snapshot) -> Family:
    """Return the number of GPUs in each state.

    Without a daemon, all GPUs are in the state `unknown`. Before the first sample, there is no series.
    """
    devices = countable_uuids([gpu.sample.device for gpu in snapshot.gpus])
    counts = Counter(_state(gpu) for gpu in snapshot.gpus if gpu.uuid in devices)
    if not snapshot.live:
        counts["unknown"] = snapshot.devices
    return gauge(
        "gpumon_gpus",
        "GPUs by state. free: not held. busy: busy now or in the last minute, or held for less than that. "
        "held_idle: held and idle. lost: lost by the driver. unknown: the GPU does not answer, or no data shows if "
        "it is busy. A MIG instance counts as a GPU. A GPU divided by MIG does not count. A lost GPU counts once.",
        ("state",),
        [((state,), float(counts[state])) for state in STATES] if is_known(snapshot.newest) else (),
    )


def _state(gpu: GpuFacts) -> str:
    if gpu.state is GpuState.ALLOCATED:
        # The GPU has been idle for a minute, but held for less than a minute. A GPU without an idle time, such as a MIG
        # instance, has no such state.
        return "busy" if gpu.idle >= PAUSE else "unknown"
    return _STATE.get(gpu.state, "unknown")


def device_families(snapshot: Snapshot) -> Iterator[Family]:
    """Yield the metrics and descriptions of GPUs, and a family with the metrics that GPUs lack."""
    gpus = snapshot.gpus
    answering = [((gpu.gpu, gpu.uuid), gpu.sample.values) for gpu in gpus if gpu.answers]
    for index, metric in enumerate(GPU_METRICS):
        yield _family(metric, GPU, [(labels, values[index]) for labels, values in answering])
    driver = label_text(snapshot.driver.version)
    yield info(
        "gpumon_gpu_info", "Model, driver and bus address of a GPU. `parent`: for a MIG instance, the UUID of its GPU.",
        (*GPU, "model", "driver", "pci_bus_id", "parent"),
        [(gpu.gpu, gpu.uuid, label_text(gpu.sample.device.name), driver,
          label_text(gpu.sample.device.address), gpu.sample.device.parent)
         for gpu in gpus],
    )  # fmt: skip
    listed = [gpu for gpu in gpus if gpu.processes is not None]
    yield gauge(_PROCESSES, "Processes on a GPU.", GPU,
                [((gpu.gpu, gpu.uuid), float(len(gpu.processes or ()))) for gpu in listed])  # fmt: skip
    yield gauge("gpumon_gpu_idle_seconds", "Seconds for which a GPU has been idle without a break.", GPU,
                [((gpu.gpu, gpu.uuid), gpu.idle) for gpu in gpus])  # fmt: skip
    yield gauge(
        "gpumon_gpu_unavailable",
        'Metrics that are missing on a GPU now, and the reason; metric "all": the GPU does not answer.',
        (*GPU, "metric", "reason"),
        list(_unavailable(gpus)),
    )


def host_families(snapshot: Snapshot) -> Iterator[Family]:
    """Yield the metrics of the host."""
    for metric, value in zip(HOST_METRICS, snapshot.host, strict=False):
        yield _family(metric, (), [((), value)])


def _family(metric: Metric, labels: Sequence[str], series: Sequence[tuple[tuple[str, ...], float]]) -> Family:
    make = counter if metric.kind is Kind.COUNTER else gauge
    return make(EXPORTED[metric.name], metric.help, labels, series)


def _unavailable(gpus: Sequence[GpuFacts]) -> Iterator[tuple[tuple[str, ...], float]]:
    for gpu in gpus:  # first, because the last series are dropped if there are too many
        if not gpu.answers:
            yield (gpu.gpu, gpu.uuid, ALL_METRICS, gpu.sample.state.name.lower()), 1.0
    for gpu in gpus:
        if not gpu.answers:
            continue
        values = gpu.sample.values
        if gpu.processes is None:
            yield (gpu.gpu, gpu.uuid, _PROCESSES, gpu.sample.device.missing[PROCESSES].name.lower()), 1.0
        for name, reason in gpu.sample.device.missing.items():
            index = GPU_INDEX.get(name)
            is_usual = reason in _BY_DESIGN and gpu.sample.device.is_instance
            if index is not None and not is_usual and not -inf < values[index] < inf:
                yield (gpu.gpu, gpu.uuid, EXPORTED[name], reason.name.lower()), 1.0
