"""Jobs to which a scheduler has given the GPUs of this machine, from the files that its prolog leaves.

- `/run/gpustat` of Princeton's jobstats: a file by UUID or index (`2`, of a MIG instance `2.3`) with the number of the
  job and that of its user. https://github.com/PrincetonUniversity/jobstats
- A directory as `--hpc-job-mapping-dir` of NVIDIA's dcgm-exporter has it: a file by index, with a job in each line.

They name a job also while it uses nothing, which no process tells. What several jobs share is nobody's alone. The
directories are believed only where nobody writes them but root, our own user, or whom root gave them to.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence

from gpumon.common.clock import SECOND, Clock
from gpumon.common.paths import is_trusted, read_regular
from gpumon.model.device import Device, job_parts
from gpumon.model.frame import Sample
from gpumon.model.process import Process
from gpumon.sources.processes import user_name

GPUSTAT = "/run/gpustat"
_EVERY = 2 * SECOND
"""ns between two looks at the files."""
_SELDOM = 30 * SECOND
"""ns between two looks for directories that are not there."""
_LONGEST = 4096
_JOB = re.compile(r"[0-9A-Za-z_.\[\]-]{1,64}")
_UID = re.compile(r"[0-9]{1,10}")


class Allocations:
    """Finds the job of each device. `job_dir`: the directory that dcgm-exporter is given; empty: there is none."""

    def __init__(
        self, clock: Clock, job_dir: str = "", gpustat: str = GPUSTAT,
        trusts: Callable[[str], bool] = lambda path: is_trusted(path, os.getuid()),
    ) -> None:  # fmt: skip
        self._clock = clock
        self._gpustat, self._job_dir = gpustat, job_dir
        self._trusts = trusts
        self._found: tuple[str, ...] = ()
        self._jobs: dict[str, str] = {}
        self._named: dict[str, tuple[Device, Device]] = {}
        """By UUID: a device of the source, and the same with its job."""
        self._due = self._look_again = -_SELDOM

    def given(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """Return the samples, of devices that know to which job they were given; as they are where nobody says so."""
        now = self._clock.monotonic()
        if now - self._look_again >= _SELDOM:
            self._look_again = now
            self._found = tuple(path for path in (self._gpustat, self._job_dir) if path and self._trusts(path))
        if not self._found:
            self._jobs.clear()
            return samples
        if now - self._due >= _EVERY:
            self._due = now
            self._jobs = {one.device.uuid: job for one in samples if (job := self._job(one.device))}
        return [self._with_job(one) for one in samples] if self._jobs else samples

    def _with_job(self, sample: Sample) -> Sample:
        """The same device again and again, while nothing of it changes."""
        device, job = sample.device, self._jobs.get(sample.device.uuid, "")
        if not job:
            return sample
        known = self._named.get(device.uuid)
        if known is None or known[0] is not device or known[1].job != job:
            known = self._named[device.uuid] = (device, device._replace(job=job))
        return sample._replace(device=known[1])

    def _job(self, device: Device) -> str:
        number = f"{device.index}.{device.instance}" if device.is_instance else str(device.index)
        if self._gpustat in self._found:
            for name in (device.uuid, number):
                if job := job_of_gpustat(_read(self._gpustat, name)):
                    return job
        return job_of_lines(_read(self._job_dir, number)) if self._job_dir in self._found else ""


def with_jobs(processes: Sequence[Process], given: Mapping[str, str]) -> Sequence[Process]:
    """Return the processes, of which those that say nothing of a job have that of their device.

    `given`: jobs by UUID. A process of another user than the job's is not its.
    """
    if not given:
        return processes
    of = {uuid: (job, user_name(int(uid)) if uid else "") for uuid, (job, uid) in
          ((uuid, job_parts(text)) for uuid, text in given.items())}  # fmt: skip
    return [
        one._replace(job=of[one.uuid][0])
        if not one.job and one.uuid in of and of[one.uuid][1] in ("", one.user)
        else one
        for one in processes
    ]


def job_of_gpustat(text: str) -> str:
    """Return job and user's number of a file of jobstats; empty where it says something else.

    >>> job_of_gpustat("4242 1000\\n")
    '4242 1000'
    """
    words = text.split()
    if not 1 <= len(words) <= 2 or not _JOB.fullmatch(words[0]) or not all(map(_UID.fullmatch, words[1:])):
        return ""
    return " ".join(words)


def job_of_lines(text: str) -> str:
    """Return the job of a file with a job in each line; empty where there is none, or several share the GPU."""
    jobs = {line.strip() for line in text.splitlines()} - {""}
    return next(iter(jobs)) if len(jobs) == 1 and all(map(_JOB.fullmatch, jobs)) else ""


def _read(directory: str, name: str) -> str:
    """The text of a file; empty where there is none, or it is longer than any that names a job."""
    if not name or "/" in name or "\0" in name or name.startswith("."):
        return ""  # a driver's text, which is not to lead anywhere else
    try:
        raw = read_regular(f"{directory}/{name}", _LONGEST + 1)
    except OSError:
        return ""
    return raw.decode("ascii", "replace") if len(raw) <= _LONGEST else ""
