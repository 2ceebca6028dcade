"""A process on a GPU, as part of a frame."""

from typing import NamedTuple

from gpumon.common.numbers import NAN


class Process(NamedTuple):
    """A process that holds memory on a device. Values that the driver does not report are NaN."""

    pid: int
    uuid: str
    kind: str
    """Kind of GPU work: `compute` or `graphics`."""
    name: str
    user: str
    started: float = NAN
    """Start of the process, in seconds since 1970."""
    memory_used: float = NAN
    """Device memory of the process in bytes."""
    sm_utilization: float = NAN
    """Share of time in which kernels of this process ran."""
    memory_utilization: float = NAN
    cpu_utilization: float = NAN
    """CPU seconds per second. For example, 2.5 means two and a half cores."""
    host_memory: float = NAN
    """Resident set size in bytes."""
    run: str = ""
    """Key of the `Run` that the process publishes; empty if it publishes none."""
    encoder_utilization: float = NAN
    """Share of time in which the video encoder worked for this process."""
    decoder_utilization: float = NAN
    container: str = ""
    """Container of the process, such as `docker 3f2a9c1b04de`; empty if there is none or it cannot be determined."""
    pod: str = ""
    """UID of the Kubernetes pod of the process. A space and `namespace/name` may follow; `pod_parts` separates the two.
    Empty if the process is in no pod."""
    job: str = ""
    """Slurm job id of the process; empty if it is in no job."""


def pod_parts(pod: str) -> tuple[str, str]:
    """Return the UID of a pod and its `namespace/name` from `Process.pod`. Each is empty if missing.

    >>> pod_parts("0a1b2c3d-1111-2222-3333-444455556666 ml/train-0")
    ('0a1b2c3d-1111-2222-3333-444455556666', 'ml/train-0')
    """
    uid, _, name = pod.partition(" ")
    return uid, name
