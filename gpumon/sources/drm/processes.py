"""The processes on each card: those that compute are listed by KFD, those that draw have opened a DRM device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model.metrics import PROCESS_SHARES, PROCESSES, Availability
from gpumon.sources.drm.cards import AMDGPU, Card
from gpumon.sources.drm.clients import Client, ClientScanner, EngineUse, sum_known, total_memory
from gpumon.sources.drm.intel import ClientUse
from gpumon.sources.drm.kfd import KfdProcess, Node, is_available, read_processes
from gpumon.sources.process_cache import NO_SHARES, EngineShares, ListedProcess

READ_EVERY = 2 * SECOND
"""ns between two reads of the processes that are known."""
SCAN_EVERY = 10 * SECOND
"""ns between two searches through all processes for opened devices."""


@dataclass(frozen=True, slots=True)
class CardProcesses:
    """The processes of a card, or of one of its partitions."""

    listed: tuple[ListedProcess, ...] = ()
    why: Availability = Availability.OK
    """Reason why the list may be incomplete; OK if it is complete."""
    why_shares: Availability = Availability.OK
    """Reason why some processes have no share."""

    @property
    def reasons(self) -> dict[str, Availability]:
        """Both reasons as entries of `Device.missing`."""
        reasons = {PROCESSES: self.why, PROCESS_SHARES: self.why_shares}
        return {key: why for key, why in reasons.items() if why is not Availability.OK}


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """The processes of all cards at one moment."""

    by_card: Mapping[tuple[str, int], CardProcesses]
    """By address of the card and number of the partition; -1 for a card that is not divided."""
    uses: Mapping[str, ClientUse]
    """What all clients of each card use together, by its address."""


class ProcessReader:
    """Reads the processes of all cards."""

    def __init__(self, root: str = "") -> None:
        self._root = root
        self._scanner = ClientScanner(root)
        self._use = EngineUse()
        self._scan_at = 0
        self._is_first = True

    def read(
        self, cards: Sequence[Card], nodes: Sequence[Node], shared: Iterable[str], monotonic_ns: int
    ) -> ProcessReading:
        """Return the processes of `cards`. `shared`: addresses of the GPUs that use the host's memory."""
        if monotonic_ns >= self._scan_at:
            self._scan_at = monotonic_ns + SCAN_EVERY
            self._scanner.scan()
        clients = self._scanner.read()
        shares = self._use.shares(clients, monotonic_ns)
        is_first, self._is_first = self._is_first, False
        has_kfd = is_available(self._root)
        computing = read_processes(self._root) if has_kfd else []
        divided = {node.address for node in nodes if node.partition > 0}
        shared = frozenset(shared)
        why_hidden = Availability.OK if self._scanner.is_complete else Availability.NO_PERMISSION
        by_card: dict[tuple[str, int], CardProcesses] = {}
        for card in cards:
            own = [node for node in nodes if node.address == card.address]
            why = Availability.OK if card.driver == AMDGPU and has_kfd and own else why_hidden
            if card.address in divided:
                for node in own:
                    by_card[card.address, node.partition] = _combine((), {}, computing, [node], why, is_shared=False)
                continue
            drawing = [client for client in clients if client.address == card.address]
            by_card[card.address, -1] = _combine(drawing, shares, computing, own, why, is_shared=card.address in shared)
        uses = {card.address: self._use_of(card, clients, why_hidden, is_first=is_first) for card in cards}
        return ProcessReading(by_card, uses)

    def _use_of(self, card: Card, clients: Sequence[Client], why: Availability, *, is_first: bool) -> ClientUse:
        """Return the use of a card by all clients. It is unknown if some clients are hidden."""
        if why is not Availability.OK:
            return ClientUse(why=why)
        memory = total_memory(clients, card.address)
        # Without clients, nothing works on the card.
        busiest = max(self._use.by_card.get(card.address, {}).values(), default=0.0)
        why = Availability.TOO_EARLY if is_first else Availability.NOT_SUPPORTED
        return ClientUse(NAN if is_first else busiest, memory, why)


def _combine(
    clients: Iterable[Client], shares: Mapping[tuple[str, int], EngineShares], computing: Iterable[KfdProcess],
    nodes: Sequence[Node], why: Availability, *, is_shared: bool,
) -> CardProcesses:  # fmt: skip
    """Combine the two lists of a card by pid. Engines of DRM do not run kernels of ROCm, and report no use for them."""
    by_id = {node.gpu_id: node for node in nodes}
    found = {process.pid: process for process in computing if process.gpu_id in by_id}
    by_pid: dict[int, list[Client]] = {}
    for client in clients:
        by_pid.setdefault(client.pid, []).append(client)
    listed = []
    why_shares = Availability.OK
    for pid in sorted({*found, *by_pid}):
        own, process = by_pid.get(pid, []), found.get(pid)
        share = _sum_shares([shares[client.key] for client in own if client.key in shares])
        is_compute = process is not None or any(client.computes for client in own)
        memory = sum_known(client.device_memory for client in own)
        if is_shared:
            memory = sum_known((memory, *(client.host_memory for client in own)))
        if process is not None:
            units = by_id[process.gpu_id].compute_units
            occupied = _at_most_one(process.compute_units / units) if units else NAN
            share, memory = _with_kernels(share, occupied), _larger(memory, process.memory)
            if not is_known(share.sm):
                why_shares = Availability.NOT_SUPPORTED
        listed.append(ListedProcess(pid, "compute" if is_compute else "graphics", memory, share))
    return CardProcesses(tuple(listed), why, why_shares)


def _with_kernels(share: EngineShares, occupied: float) -> EngineShares:
    """Replace the main share by the share of compute units, unless the engines of DRM were used more."""
    drawing = share.sm if share.sm > 0 else NAN
    main = _larger(drawing, occupied)
    return EngineShares(main if is_known(main) else NAN, NAN, share.encoder, share.decoder)


def _sum_shares(shares: Sequence[EngineShares]) -> EngineShares:
    if not shares:
        return NO_SHARES
    main, encoder, decoder = (
        sum_known(values)
        for values in zip(*((share.sm, share.encoder, share.decoder) for share in shares), strict=True)
    )
    return EngineShares(_at_most_one(main), NAN, _at_most_one(encoder), _at_most_one(decoder))


def _at_most_one(share: float) -> float:
    return min(1.0, share) if is_known(share) else NAN


def _larger(one: float, other: float) -> float:
    return max((value for value in (one, other) if is_known(value)), default=NAN)
