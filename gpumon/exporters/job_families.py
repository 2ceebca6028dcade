"""Families of jobs and pods: whose work a GPU has, or was given to, for joins."""

from __future__ import annotations

from collections.abc import Iterator

from gpumon.exporters.family import Family, info
from gpumon.exporters.jobs import job_of
from gpumon.exporters.people import UserNames
from gpumon.exporters.snapshot import Snapshot
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
