"""Combines all AMD and Intel GPUs of this machine into one source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpumon.common.clock import SECOND, Clock
from gpumon.common.text import clean
from gpumon.model.device import by_number
from gpumon.model.frame import Sample
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.origin import HARDWARE, Driver, Origin
from gpumon.model.process import Process
from gpumon.sources.base import FIRST_TIMEOUT, NO_VALUES, TIMEOUT, Describe, Reading, late_sample
from gpumon.sources.drm.cards import AMDGPU, Card, is_present, relevant_cards
from gpumon.sources.drm.device import DrmDevice
from gpumon.sources.drm.files import read_text
from gpumon.sources.drm.intel import ClientUse
from gpumon.sources.drm.kfd import Node, read_nodes
from gpumon.sources.drm.partitions import Partitions, partition_uuid
from gpumon.sources.drm.processes import READ_EVERY, CardProcesses, ProcessReader, ProcessReading
from gpumon.sources.executor import AnyCall, Executor, PendingCall, WorkerPool
from gpumon.sources.process_cache import ProcessCache

SCAN_EVERY = 5 * SECOND
"""ns between two searches for cards."""
NO_CARD = "no AMD or Intel GPU was found in /sys/class/drm (drivers amdgpu, i915 and xe)"


@dataclass(frozen=True, slots=True)
class _Scan:
    """Result of a search for cards."""

    cards: Sequence[Card]
    nodes: Sequence[Node]
    driver: Driver


class _Row:
    """A device, the call that reads it, and its last sample."""

    def __init__(self, device: DrmDevice) -> None:
        self.device = device
        self.call = PendingCall(device.read)
        self.partitions = Partitions()
        self.is_lost = False
        self._last: Sample | None = None

    def sample(self, now: int) -> Sample:
        """Return the sample of the tick at `now` (ns). Without a new sample, return the last one as STALE."""
        if self.is_lost:
            return Sample(self.device.device, Availability.LOST, NO_VALUES)
        new = self.call.pop()
        if new is not None:
            self._last = new
            return new
        return late_sample(self.device.device, self.call, self._last, now)


class DrmSource:
    """Reads all cards. If reading one card hangs, it becomes STALE and does not delay the others."""

    capabilities = HARDWARE
    tick_period = 0.0

    def __init__(
        self, clock: Clock, describe: Describe, timeout: float = TIMEOUT, executor: Executor | None = None,
        root: str = "",
    ) -> None:  # fmt: skip
        """`timeout`: maximum seconds that a tick waits for a card. `root`: folder put before all paths, for tests."""
        self._clock = clock
        self._describe = describe
        self._root = root
        self._timeout, self._first_timeout = round(timeout * SECOND), round(FIRST_TIMEOUT * SECOND)
        self._executor = executor or WorkerPool(clock)
        self._rows: dict[str, _Row] = {}
        """Rows by key of the card."""
        self._indexes: dict[str, int] = {}
        self._scan_call: PendingCall[_Scan] = PendingCall(self._scan)
        self._scan_at = 0
        self._scanned: _Scan | None = None
        self._process_reader = ProcessReader(root)
        self._process_call: PendingCall[ProcessReading] = PendingCall(self._read_processes)
        self._processes_at = 0
        self._caches: dict[str, ProcessCache] = {}
        self._processes_of: dict[str, tuple[Process, ...]] = {}
        self._processes: tuple[Process, ...] = ()

    def origin(self) -> Origin:
        has_none = self._scanned is not None and not self._rows
        return Origin("drm", problem=NO_CARD if has_none else "", capabilities=self.capabilities)

    def driver(self) -> Driver:
        return self._scanned.driver if self._scanned is not None else Driver()

    def read(self) -> Sequence[Reading]:
        monotonic, time = self._clock.monotonic(), self._clock.time()
        until = monotonic + max(self._timeout, self._first_timeout)
        self._first_timeout = 0
        rows = dict(self._rows)
        calls = [row.call for row in rows.values() if not row.is_lost]
        if monotonic >= self._scan_at:
            self._scan_at = monotonic + SCAN_EVERY
            self._run([*calls, self._scan_call], until)
        else:
            self._run(calls, until)
        scan = self._scan_call.pop()
        if scan is not None:
            self._apply(scan)
        if monotonic >= self._processes_at and self._rows:
            self._processes_at = monotonic + READ_EVERY
            self._run([self._process_call], until)
        processes = self._process_call.pop()
        if processes is not None:
            self._apply_processes(processes)
        self._run([row.call for key, row in self._rows.items() if row is not rows.get(key) and not row.is_lost], until)
        samples = []
        for row in self._rows.values():
            whole = row.sample(monotonic)
            samples += [whole, *row.partitions.samples(whole, row.device.partition_shares)]
        samples.sort(key=lambda sample: by_number(sample.device))
        return [Reading(monotonic, time, samples, self._processes)]

    def close(self) -> None:
        self._executor.close()
        for row in self._rows.values():
            if not row.call.is_running:
                row.device.close()

    def _run(self, calls: Sequence[AnyCall], until: int) -> None:
        if calls:
            self._executor.run(calls, max(0, until - self._clock.monotonic()))

    def _scan(self) -> _Scan:
        cards = relevant_cards(self._root)
        return _Scan(cards, read_nodes(self._root), _read_driver(self._root, cards))

    def _read_processes(self) -> ProcessReading:
        scan = self._scanned
        assert scan is not None
        shared = [row.device.card.address for row in list(self._rows.values()) if row.device.uses_host_memory]
        return self._process_reader.read(scan.cards, scan.nodes, shared, self._clock.monotonic())

    def _apply_processes(self, reading: ProcessReading) -> None:
        """Store the processes of each device. The joined list stays the same object while nothing has changed."""
        present: dict[str, tuple[Process, ...]] = {}
        for row in self._rows.values():
            device = row.device
            if row.is_lost:
                continue
            device.set_clients(reading.uses.get(device.card.address, ClientUse()))
            if row.partitions.numbers:
                device.process_reasons = {PROCESSES: Availability.OF_INSTANCES}
            for number in row.partitions.numbers:
                found = reading.by_card.get((device.card.address, number))
                if found is not None:
                    row.partitions.process_reasons[number] = found.reasons
                    uuid = partition_uuid(device.uuid, number)
                    present[uuid] = self._cached(uuid, found)
            whole = reading.by_card.get((device.card.address, -1))
            if whole is not None and not row.partitions.numbers:
                device.process_reasons = whole.reasons
                present[device.uuid] = self._cached(device.uuid, whole)
        before = self._processes_of
        if present.keys() != before.keys() or any(present[uuid] is not before[uuid] for uuid in present):
            self._processes = tuple(process for processes in present.values() for process in processes)
        self._processes_of = present
        self._caches = {uuid: self._caches[uuid] for uuid in present}

    def _cached(self, uuid: str, found: CardProcesses) -> tuple[Process, ...]:
        cache = self._caches.setdefault(uuid, ProcessCache(uuid, self._describe))
        return cache.update(found.listed)

    def _apply(self, scan: _Scan) -> None:
        """Add rows for new cards. A card that left the bus is lost; one whose driver was unbound gets no row."""
        self._scanned = scan
        first = {node.address: node for node in reversed(scan.nodes)}
        present = {card.key: card for card in scan.cards}
        for card in sorted(scan.cards, key=lambda card: _position(card, first.get(card.address))):
            row = self._rows.get(card.key)
            if row is None or row.is_lost:
                index = self._indexes.setdefault(card.key, len(self._indexes))
                serial = first[card.address].serial if card.address in first else 0
                row = self._rows[card.key] = _Row(DrmDevice(card, index, self._clock, self._root, serial))
            row.partitions.update([node for node in scan.nodes if node.address == card.address], card.folder)
        for key in [key for key in self._rows if key not in present]:
            self._remove(key)

    def _remove(self, key: str) -> None:
        row = self._rows[key]
        if row.is_lost:
            return
        if not row.call.is_running:
            row.device.close()
        if is_present(row.device.card, self._root):
            del self._rows[key]
        else:
            row.is_lost = True


def _position(card: Card, node: Node | None) -> tuple[int, str]:
    """Return a sort key: cards are in ROCm's order, and then by address."""
    return (node.number if node is not None else 1 << 16), card.key


def _read_driver(root: str, cards: Sequence[Card]) -> Driver:
    """Return the version of the kernel driver, or of the kernel that contains it, and of ROCm."""
    kernel = read_text(f"{root}/proc/sys/kernel/osrelease")
    versions, in_kernel = [], []
    for name in sorted({card.driver for card in cards}):
        version = read_text(f"{root}/sys/module/{name}/version")
        if version:
            versions.append(f"{name} {clean(version, 32)}")
        else:
            in_kernel.append(name)
    if in_kernel:
        versions.append(" and ".join(in_kernel) + (f" of Linux {clean(kernel, 64)}" if kernel else ""))
    rocm = read_text(f"{root}/opt/rocm/.info/version") if any(card.driver == AMDGPU for card in cards) else ""
    return Driver(", ".join(versions), clean(f"ROCm {rocm.partition('-')[0]}", 32) if rocm else "")
