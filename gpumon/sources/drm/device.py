"""One card: reads its values unless it is powered down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gpumon.common.clock import Clock
from gpumon.model.device import Device
from gpumon.model.frame import Sample
from gpumon.model.metrics import PROCESS_SHARES, PROCESSES, Availability
from gpumon.sources.drm import amdgpu, intel
from gpumon.sources.drm.amdgpu import AmdCard
from gpumon.sources.drm.cards import AMDGPU, Card, card_name, is_asleep, is_integrated, unique_id
from gpumon.sources.drm.intel import ClientUse, IntelCard
from gpumon.sources.drm.values import CardValues

METRICS = amdgpu.METRICS | intel.METRICS


class Reader(Protocol):
    """Reads the values of a card from the files of its driver."""

    uses_host_memory: bool
    """Whether the memory of programs on the GPU is the host's."""
    partition_shares: tuple[float, ...]
    """Utilization of each partition at the last read; empty if it is not reported."""
    clients: ClientUse
    """What all programs on the card use together."""

    def read(self, values: CardValues, monotonic_ns: int) -> None:
        """Read all values of a card that is awake. `monotonic_ns`: present time of CLOCK_MONOTONIC."""

    def sleep(self) -> None:
        """Close all files, because the card is powered down."""

    def close(self) -> None:
        """Close all files."""


class DrmDevice:
    """Reads one card. Devices share no state, so each device may be read by its own thread."""

    def __init__(self, card: Card, index: int, clock: Clock, root: str = "", serial: int = 0) -> None:
        """`serial`: serial number of the card according to KFD, for a card whose own file cannot be read."""
        self.card = card
        self.uuid = card_uuid(card, serial)
        self._clock = clock
        self._values = CardValues()
        self._values.set_missing(PROCESSES, Availability.NOT_SUPPORTED)
        reader = AmdCard if card.driver == AMDGPU else IntelCard
        self._reader: Reader = reader(card, is_integrated=is_integrated(card))
        self.process_reasons: Mapping[str, Availability] = {PROCESSES: Availability.TOO_EARLY}
        """Reasons of `PROCESSES` and `PROCESS_SHARES` that the next read stores. Replaced by the source's thread."""
        name = card_name(card, root)
        self.device = Device(self.uuid, index, name, self._values.missing.copy(), address=card.address)

    def read(self) -> Sample:
        """Read the card. A card that is powered down is not touched, because reading any sensor would wake it."""
        now = self._clock.monotonic()
        values = self._values
        state = Availability.OK
        if is_asleep(self.card):
            self._reader.sleep()
            state = Availability.ASLEEP
            values.clear(state)
            values.set_missing(PROCESSES, state)
        else:
            self._reader.read(values, now)
            for key in (PROCESSES, PROCESS_SHARES):
                if key in self.process_reasons:
                    values.set_missing(key, self.process_reasons[key])
                else:
                    values.missing.pop(key, None)
        if values.missing != self.device.missing:
            self.device = self.device._replace(missing=values.missing.copy())
        return Sample(self.device, state, values.row(), monotonic_ns=now)

    def set_clients(self, clients: ClientUse) -> None:
        """Set what all programs on the card use together, for drivers that do not report it."""
        self._reader.clients = clients

    @property
    def uses_host_memory(self) -> bool:
        """Whether the memory of programs on this GPU is the host's."""
        return self._reader.uses_host_memory

    @property
    def partition_shares(self) -> tuple[float, ...]:
        """Utilization (0 to 1) of each partition at the last read; empty if it is not reported."""
        return self._reader.partition_shares

    def close(self) -> None:
        """Close all files."""
        self._reader.close()


def card_uuid(card: Card, serial: int = 0) -> str:
    """Return the identifier of a card: its serial number as ROCm writes it, or else its address on the PCI bus.

    `serial`: serial number from another source, used if the card's own file cannot be read.
    """
    number = unique_id(card) or (f"{serial:016x}" if 0 < serial < 1 << 64 else "")
    if number:
        return f"GPU-{number}"
    return f"{'AMD' if card.driver == AMDGPU else 'INTEL'}-{card.address}"
