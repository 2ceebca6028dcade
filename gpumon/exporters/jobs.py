"""Job of a GPU: the one to which the scheduler gave it, or else the one whose processes are on it."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.exporters.labels import label_text
from gpumon.exporters.snapshot import GpuFacts
from gpumon.model.device import job_parts

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
