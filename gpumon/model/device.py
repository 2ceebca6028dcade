"""A device: a GPU or a MIG instance."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from gpumon.model.metrics import PROCESSES, Availability

MADE_UP = "REPLAY-"
"""Begin of the id that stands for the UUID of a GPU in a log that does not tell it."""


class Device(NamedTuple):
    """A GPU or a MIG instance. Known by its UUID; the index is only for people, and -1 where nobody knows it.

    The index of an instance is that of its GPU. Whoever counts GPUs, or adds up what they have, takes either the GPU
    (`is_instance` is false) or its instances (`is_divided` is false).
    """

    uuid: str
    index: int  # type: ignore[assignment]  # tuple.index() is of no use here
    name: str
    missing: Mapping[str, Availability] = {}
    """Metrics that this device does not give, and why."""
    source: str = ""
    """The name of the source that gives it, where several are combined; else empty."""
    parent: str = ""
    """Of a MIG instance, the UUID of its GPU; else empty."""
    instance: int = -1
    """Of a MIG instance, its number on its GPU, as the driver counts; else -1."""
    address: str = ""
    """On the PCI bus, such as `00000000:65:00.0`; empty where nobody knows it."""
    minor: int = -1
    """Number of its device file (`/dev/nvidia3`), which need not be its index; -1 where nobody knows it."""
    job: str = ""
    """Job to which the scheduler of the machine has given it, whether it uses it or not, and, behind a space, the
    number of its user where that is known (`job_parts`); empty where nobody says so."""

    @property
    def is_instance(self) -> bool:
        """Whether it is a part of another device."""
        return self.parent != ""

    @property
    def is_divided(self) -> bool:
        """Whether it is in MIG mode: what it can do, its instances do."""
        return self.missing.get(PROCESSES) is Availability.OF_INSTANCES

    @property
    def label(self) -> str:
        """Its number for people: `2`, of a MIG instance `2:0`; empty where nobody knows it."""
        if self.index < 0:
            return ""
        return f"{self.index}:{self.instance}" if self.is_instance else str(self.index)


def job_parts(job: str) -> tuple[str, str]:
    """Return the number of a job and that of its user, from the text of a `Device`; each is empty where unknown.

    >>> job_parts("4242 1000")
    ('4242', '1000')
    """
    number, _, uid = job.partition(" ")
    return number, uid


def counted(devices: Collection[Device]) -> frozenset[str]:
    """Return the UUIDs of those that count as GPUs: the instances of one that MIG divides, and else the GPU.

    One that the driver lost is no longer divided: it counts once, not each instance that is lost with it.
    """
    whole = {one.uuid for one in devices if not (one.is_instance or one.is_divided)}
    return frozenset(one.uuid for one in devices if not one.is_divided and one.parent not in whole)


def by_number(device: Device) -> tuple[int, int]:
    """The key by which devices are in order: by index, and instances behind their GPU."""
    return device.index, device.instance
