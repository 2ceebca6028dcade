"""Texts that views show for a process: reasons for missing values, and its job or container."""

from __future__ import annotations

from collections.abc import Iterable

from gpumon.common.numbers import is_known
from gpumon.model.metrics import Availability
from gpumon.model.process import Process, pod_parts


def missing_value_reasons(process: Process, shares_missing: Availability | None = None) -> str:
    """Return the reasons why values of a process are missing, such as `the driver does not report its memory`.

    Empty if no value is missing. `shares_missing`: why the device reports no utilization of processes; None if it
    reports the utilization.
    """
    no_shares = "the driver has no utilization sample of the process"
    if shares_missing is not None:
        no_shares = f"its utilization cannot be read: {shares_missing.reason}"
    shares = (
        process.sm_utilization, process.memory_utilization, process.encoder_utilization, process.decoder_utilization,
    )  # fmt: skip
    reasons = {
        "the process has ended, or is not visible to gpumon, possibly because of a container": not is_known(
            process.started
        ),
        "the driver does not report its memory": not is_known(process.memory_used),
        no_shares: not any(map(is_known, shares)),
        "its CPU use is available from the next sample on": is_known(process.started)
        and not is_known(process.cpu_utilization),
    }
    return "; ".join(reason for reason, holds in reasons.items() if holds)


TITLES = "Encoder", "Decoder"
"""Titles of the columns that views show only if `uses_video`."""


def uses_video(processes: Iterable[Process]) -> bool:
    """Return whether one of these processes uses a video encoder or decoder. Most runs do not."""
    return any(process.encoder_utilization > 0 or process.decoder_utilization > 0 for process in processes)


TITLE = "Job or container"
"""Title of the column with `job_or_container`."""
_UID = 8
"""Number of characters of a pod's UID that are sufficient to identify the pod on a machine."""


def job_or_container(process: Process) -> str:
    """Return the job or container of a process, such as `job 4242` or `pod ml/train-0 · containerd 3f2a9c1b04de`.

    Empty if the process is in neither.
    """
    if not (process.job or process.pod or process.container):
        return ""
    job = f"job {process.job}" if process.job else ""
    uid, name = pod_parts(process.pod)
    pod = f"pod {name or uid[:_UID]}" if uid else ""
    return " · ".join(part for part in (job, pod, process.container) if part)
