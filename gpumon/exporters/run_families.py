"""Families of runs: identity in one that is joined, epoch and step as values."""

from __future__ import annotations

from collections.abc import Iterator

from gpumon.common.numbers import NAN
from gpumon.exporters.family import Family, gauge, info
from gpumon.exporters.people import UserNames
from gpumon.exporters.snapshot import GpuFacts, Snapshot
from gpumon.model.frame import Run, RunState
from gpumon.model.process import pod_parts

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
    named = [((one.uuid, users.words(run.id, run.user)), run) for one, run in found]
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
    return (one.uuid, users.words(run.id, run.user), users.words(run.name, run.user), users.told(run.user), *texts)
