"""The partitions of a card that is divided, such as an MI300X in mode CPX.

The driver reports power, temperature and used memory for the whole card. For a partition it reports nothing, or a copy
of the card's values. So a partition has its memory size, its processes, and the utilization if the table has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpumon.common.numbers import NAN, is_known
from gpumon.model.device import Device
from gpumon.model.frame import Sample
from gpumon.model.metrics import FROM_DRIVERS, GPU_INDEX, PROCESSES, Availability
from gpumon.model.vendors import AMD
from gpumon.sources.base import NO_VALUES
from gpumon.sources.drm.files import read_text
from gpumon.sources.drm.kfd import Node

_TOTAL, _UTILIZATION = GPU_INDEX["gpu.memory_total"], GPU_INDEX["gpu.utilization"]
_TOO_EARLY: Mapping[str, Availability] = {PROCESSES: Availability.TOO_EARLY}


class Partitions:
    """The partitions of one card. Empty if it is not divided."""

    def __init__(self) -> None:
        self._nodes: tuple[Node, ...] = ()
        self._mode = ""
        self._devices: dict[int, tuple[tuple[Device, Mapping[str, Availability], bool], Device]] = {}
        """By number of the partition: its device, after what the device was made of."""
        self.process_reasons: dict[int, Mapping[str, Availability]] = {}
        """Reasons of `PROCESSES` and `PROCESS_SHARES` by number of the partition."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of all partitions."""
        return tuple(node.partition for node in self._nodes)

    def update(self, nodes: Sequence[Node], folder: str) -> None:
        """Set the nodes of the card. `folder`: folder of the card in sysfs."""
        is_divided = any(node.partition > 0 for node in nodes)
        self._nodes = tuple(sorted(nodes, key=lambda node: node.partition)) if is_divided else ()
        self._mode = read_text(f"{folder}/current_compute_partition", 16) if is_divided else ""
        if not is_divided:
            self._devices, self.process_reasons = {}, {}

    def samples(self, whole: Sample, shares: Sequence[float]) -> list[Sample]:
        """Return the samples of all partitions.

        `whole`: sample of the card, which has all other values. `shares`: utilization of each partition.
        """
        return [self._sample(node, whole, shares) for node in self._nodes]

    def _sample(self, node: Node, whole: Sample, shares: Sequence[float]) -> Sample:
        values = list(NO_VALUES)
        if whole.state is Availability.OK:
            values[_TOTAL] = node.memory
            values[_UTILIZATION] = shares[node.partition] if node.partition < len(shares) else NAN
        reasons = self.process_reasons.get(node.partition, _TOO_EARLY)
        has_share = is_known(values[_UTILIZATION])
        key = whole.device, reasons, has_share
        known = self._devices.get(node.partition)
        if known is None or known[0] != key:
            device = self._device(node, whole.device, reasons, has_share=has_share)
            known = self._devices[node.partition] = key, device
        return Sample(known[1], whole.state, values, age=whole.age, monotonic_ns=whole.monotonic_ns)

    def _device(self, node: Node, whole: Device, reasons: Mapping[str, Availability], *, has_share: bool) -> Device:
        known = {"gpu.memory_total": is_known(node.memory), "gpu.utilization": has_share}
        missing = {
            metric: Availability.NOT_SUPPORTED
            if whole.missing.get(metric) is Availability.NOT_SUPPORTED
            else Availability.OF_WHOLE_GPU
            for metric in FROM_DRIVERS
            if not known.get(metric, False)
        }
        return Device(
            partition_uuid(whole.uuid, node.partition), whole.index, f"{whole.name} {self._mode}".rstrip(),
            {**missing, **reasons}, parent=whole.uuid, instance=node.partition, address=whole.address,
        )  # fmt: skip


def partition_uuid(card: str, number: int) -> str:
    """Return the identifier of a partition. Partitions of a card may have the same serial number."""
    return f"{AMD.parts[0]}{number}-{card.removeprefix(AMD.whole[0])}"
