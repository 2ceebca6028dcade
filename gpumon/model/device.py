"""A device: a GPU or a MIG instance."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from gpumon.model.metrics import PROCESSES, Availability

REPLAY_PREFIX = "REPLAY-"
"""Prefix of the id that replaces the UUID of a GPU if a log contains no UUIDs."""


class Device(NamedTuple):
    """A GPU or a MIG instance. The UUID identifies it. The index is only for display; -1 if unknown.

    An instance has the index of its GPU. To count nothing twice, code that counts GPUs or sums their values must use
    either only whole GPUs (`is_instance` is false), or undivided GPUs and instances (`is_divided` is false).
    """

    uuid: str
    index: int  # type: ignore[assignment]  # tuple.index() is of no use here
    name: str
    missing: Mapping[str, Availability] = {}
    """Metrics that this device does not have, each with the reason."""
    source: str = ""
    """Name of the source of the device if several sources are combined; else empty."""
    parent: str = ""
    """UUID of the GPU of a MIG instance; empty for other devices."""
    instance: int = -1
    """Number of a MIG instance on its GPU, according to the driver; -1 for other devices."""
    address: str = ""
    """Address on the PCI bus, such as `00000000:65:00.0`; empty if unknown."""
    minor: int = -1
    """Number of the device file (3 for `/dev/nvidia3`), which may differ from the index; -1 if unknown."""
    job: str = ""
    """The job to which the scheduler has allocated the device, even if the job does not use it. The uid of the job's
    user may follow after a space; `job_parts` separates the two. Empty if no job is reported."""

    @property
    def is_instance(self) -> bool:
        """Whether the device is a MIG instance."""
        return self.parent != ""

    @property
    def is_divided(self) -> bool:
        """Whether the device is a GPU in MIG mode. Only the instances of such a GPU run processes."""
        return self.missing.get(PROCESSES) is Availability.OF_INSTANCES

    @property
    def label(self) -> str:
        """Index of the device as text: `2`, or `2:0` for a MIG instance; empty if unknown."""
        if self.index < 0:
            return ""
        return f"{self.index}:{self.instance}" if self.is_instance else str(self.index)


def job_parts(job: str) -> tuple[str, str]:
    """Return the job and the uid of its user from `Device.job`. Each is empty if missing.

    >>> job_parts("4242 1000")
    ('4242', '1000')
    """
    number, _, uid = job.partition(" ")
    return number, uid


def countable_uuids(devices: Collection[Device]) -> frozenset[str]:
    """Return the UUIDs of the devices that count as GPUs: undivided GPUs, and the instances of divided GPUs.

    A divided GPU that the driver lost counts as one GPU, and its lost instances do not count.
    """
    whole = {device.uuid for device in devices if not (device.is_instance or device.is_divided)}
    return frozenset(device.uuid for device in devices if not device.is_divided and device.parent not in whole)


def by_number(device: Device) -> tuple[int, int]:
    """Return a sort key: devices are sorted by index, with instances after their GPU."""
    return device.index, device.instance
