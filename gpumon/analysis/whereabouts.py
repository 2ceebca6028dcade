"""Slurm job, pod and container of a process in one short text: the same in all views."""

from gpumon.frame import Process

TITLE = "Job or container"
_UID = 8
"""Letters of a pod's UID that tell it from others on a machine."""


def whereabouts(process: Process) -> str:
    """Return such as `job 4242`, or `pod 1a2b3c4d · containerd 3f2a9c1b04de`; empty where none of them is known."""
    if not (process.job or process.pod or process.container):
        return ""
    job = f"job {process.job}" if process.job else ""
    pod = f"pod {process.pod[:_UID]}" if process.pod else ""
    return " · ".join(part for part in (job, pod, process.container) if part)
