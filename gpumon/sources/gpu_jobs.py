"""Reads to which scheduler jobs the GPUs of this machine are allocated, from files that the scheduler's prolog writes.

- `/run/gpustat` of Princeton's jobstats: a file per UUID or index (`2`, or `2.3` for a MIG instance) with the job's id
  and the user's uid. https://github.com/PrincetonUniversity/jobstats
- The directory of dcgm-exporter's `--hpc-job-mapping-dir`: a file per index, with one job per line.

The files contain a job even while none of its processes runs. A GPU that several jobs share counts as allocated to none
of them. A directory is trusted only if no user can write to it except root, our own user, or a user to whom root gave
the directory.
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
_READ_EVERY = 2 * SECOND
"""ns between two reads of the files."""
_FIND_EVERY = 30 * SECOND
"""ns between two searches for the directories."""
_LONGEST = 4096
_JOB = re.compile(r"[0-9A-Za-z_.\[\]-]{1,64}")
_UID = re.compile(r"[0-9]{1,10}")


class DeviceJobs:
    """Finds the scheduler job to which each device is allocated."""

    def __init__(
        self, clock: Clock, job_dir: str = "", gpustat: str = GPUSTAT,
        trusts: Callable[[str], bool] = lambda path: is_trusted(path, os.getuid()),
    ) -> None:  # fmt: skip
        """`job_dir`: directory of dcgm-exporter; empty for none."""
        self._clock = clock
        self._gpustat, self._job_dir = gpustat, job_dir
        self._trusts = trusts
        self._directories: tuple[str, ...] = ()
        self._jobs: dict[str, str] = {}
        self._devices: dict[str, tuple[Device, Device]] = {}
        """By UUID: the device as the source returned it, and the same device with its job."""
        self._read_at = self._find_at = -_FIND_EVERY

    def assign(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """Return the samples, with the job of each device added. Return `samples` itself if no device has a job."""
        now = self._clock.monotonic()
        if now - self._find_at >= _FIND_EVERY:
            self._find_at = now
            self._directories = tuple(path for path in (self._gpustat, self._job_dir) if path and self._trusts(path))
        if not self._directories:
            self._jobs.clear()
            return samples
        if now - self._read_at >= _READ_EVERY:
            self._read_at = now
            self._jobs = {sample.device.uuid: job for sample in samples if (job := self._job(sample.device))}
        return [self._with_job(sample) for sample in samples] if self._jobs else samples

    def _with_job(self, sample: Sample) -> Sample:
        """Return the sample with the job of its device. While nothing changes, its device is the same object."""
        device, job = sample.device, self._jobs.get(sample.device.uuid, "")
        if not job:
            return sample
        pair = self._devices.get(device.uuid)
        if pair is None or pair[0] is not device or pair[1].job != job:
            pair = self._devices[device.uuid] = (device, device._replace(job=job))
        return sample._replace(device=pair[1])

    def _job(self, device: Device) -> str:
        number = f"{device.index}.{device.instance}" if device.is_instance else str(device.index)
        if self._gpustat in self._directories:
            for name in (device.uuid, number):
                if job := parse_gpustat(_read(self._gpustat, name)):
                    return job
        return parse_job_lines(_read(self._job_dir, number)) if self._job_dir in self._directories else ""


def with_jobs(processes: Sequence[Process], jobs: Mapping[str, str]) -> Sequence[Process]:
    """Return the processes. A process without a job gets the job of its device, unless the job belongs to another user.

    `jobs`: job of each device by UUID.
    """
    if not jobs:
        return processes
    owners: dict[str, tuple[str, str]] = {}
    for uuid, text in jobs.items():
        job, uid = job_parts(text)
        owners[uuid] = (job, user_name(int(uid)) if uid else "")
    result = []
    for process in processes:
        job, user = owners.get(process.uuid, ("", ""))
        is_its = job and not process.job and user in ("", process.user)
        result.append(process._replace(job=job) if is_its else process)
    return result


def parse_gpustat(text: str) -> str:
    """Return the job and the uid from a file of jobstats; empty if the file has other content.

    >>> parse_gpustat("4242 1000\\n")
    '4242 1000'
    """
    words = text.split()
    if not 1 <= len(words) <= 2 or not _JOB.fullmatch(words[0]) or not all(map(_UID.fullmatch, words[1:])):
        return ""
    return " ".join(words)


def parse_job_lines(text: str) -> str:
    """Return the job in a file with one job per line. Empty if there is no job, or if several jobs share the GPU."""
    jobs = {line.strip() for line in text.splitlines()} - {""}
    return next(iter(jobs)) if len(jobs) == 1 and all(map(_JOB.fullmatch, jobs)) else ""


def _read(directory: str, name: str) -> str:
    """Return the text of a file; empty if the file does not exist, or is too long for a job."""
    if not name or "/" in name or "\0" in name or name.startswith("."):
        return ""  # the name comes from a driver, and must not point outside the directory
    try:
        raw = read_regular(f"{directory}/{name}", _LONGEST + 1)
    except OSError:
        return ""
    return raw.decode("ascii", "replace") if len(raw) <= _LONGEST else ""
