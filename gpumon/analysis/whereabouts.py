"""Slurm job, pod and container of a process in one short text: the same in all views."""

from gpumon.model.process import Process, pod_parts

TITLE = "Job or container"
_UID = 8
"""Letters of a pod's UID that tell it from others on a machine."""


def whereabouts(process: Process) -> str:
    """Return such as `job 4242`, or `pod ml/train-0 · containerd 3f2a9c1b04de`; empty where none of them is known."""
    if not (process.job or process.pod or process.container):
        return ""
    job = f"job {process.job}" if process.job else ""
    uid, name = pod_parts(process.pod)
    pod = f"pod {name or uid[:_UID]}" if uid else ""
    return " · ".join(part for part in (job, pod, process.container) if part)
