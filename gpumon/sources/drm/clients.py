"""Reads which processes have opened a DRM device, from /proc/<pid>/fdinfo: Documentation/gpu/drm-usage-stats.rst.

Each opened device is a client with a number. Forked processes and duplicated descriptors share the client, which is
counted once. Files of other users can be read only by root.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from gpumon.common.numbers import LARGEST, NAN, is_known
from gpumon.sources.drm.files import list_folder, read_bytes
from gpumon.sources.process_cache import EngineShares

_NODES = "/dev/dri/"
_PREFIX = "drm-"
"""Prefix of the names of all fields."""
_LONGEST = 16_384
"""Maximum bytes of a file in fdinfo."""
_MAX_CLIENTS = 16_384
_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_AMOUNT = re.compile(r"(\d{1,20})\s*([A-Za-z]*)")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
_DEVICE_REGIONS = ("vram", "vram0", "vram1", "local0", "local1", "lmem0")
"""Memory regions of a card. All other regions are memory of the host."""
_MEMORY_KINDS = ("resident", "memory", "total")
"""Kinds of memory, best first. `memory` is the older name of amdgpu."""
_COMPUTE = ("compute", "ccs")
_MAIN = ("gfx", "render", "rcs", *_COMPUTE)
_ENCODERS, _DECODERS = ("enc", "enc_1"), ("dec", "jpeg", "video", "vcs")


@dataclass(slots=True)
class Client:
    """What one client has used so far."""

    pid: int
    """The process with the smallest pid that has the client open."""
    driver: str
    address: str
    """Address of the card on the PCI bus."""
    number: int
    busy: dict[str, float] = field(default_factory=dict)
    """Use of each engine, in ns or in clock cycles."""
    cycles: dict[str, float] = field(default_factory=dict)
    """Cycles of each engine in the same time, if its use is in cycles."""
    capacity: dict[str, float] = field(default_factory=dict)
    """Number of engines of each name, if it is not 1."""
    memory: dict[str, float] = field(default_factory=dict)
    """Bytes in each memory region."""

    @property
    def key(self) -> tuple[str, int]:
        return self.address, self.number

    @property
    def device_memory(self) -> float:
        """Bytes of device memory; NaN if the driver does not report them."""
        amounts = [amount for region, amount in self.memory.items() if region in _DEVICE_REGIONS]
        return sum(amounts) if amounts else NAN

    @property
    def host_memory(self) -> float:
        """Bytes of host memory that the device uses, such as GTT. NaN if the driver does not report them."""
        amounts = [amount for region, amount in self.memory.items() if region not in _DEVICE_REGIONS]
        return sum(amounts) if amounts else NAN

    @property
    def computes(self) -> bool:
        """Whether the client has used an engine for compute."""
        return any(self.busy.get(engine, 0.0) > 0 for engine in _COMPUTE)


def parse_fdinfo(pid: int, content: bytes) -> Client | None:
    """Parse a file in fdinfo; None if it is not of a DRM device on the PCI bus. Accepts any bytes."""
    fields: dict[str, str] = {}
    for line in content.decode("ascii", "replace").splitlines():
        name, separator, value = line.partition(":")
        if separator and name.startswith(_PREFIX):
            fields[name.removeprefix(_PREFIX)] = value.strip()
    number = fields.get("client-id", "")
    address = fields.get("pdev", "").lower()
    if not (number.isascii() and number.isdigit() and len(number) < 20 and _ADDRESS.fullmatch(address)):
        return None
    client = Client(pid, fields.get("driver", "")[:32], address, int(number))
    amounts = {name: _parse_amount(text) for name, text in fields.items()}
    for name, (amount, unit) in amounts.items():
        if amount <= LARGEST:
            _store_use(client, name, amount, unit)
    for kind in _MEMORY_KINDS:
        for name, (amount, unit) in amounts.items():
            region = name.removeprefix(f"{kind}-")
            size = amount * _UNITS.get(unit, NAN)
            if region != name and size <= LARGEST and not region.startswith("cycles-"):
                client.memory.setdefault(region, size)
    return client


def _parse_amount(text: str) -> tuple[float, str]:
    match = _AMOUNT.fullmatch(text)
    return (float(int(match[1])), match[2].lower()) if match else (NAN, "")


def _store_use(client: Client, name: str, amount: float, unit: str) -> None:
    kind, _, rest = name.partition("-")
    if kind == "engine" and rest.startswith("capacity-"):
        client.capacity[rest.removeprefix("capacity-")] = amount
    elif (kind == "engine" and unit == "ns") or (kind == "cycles" and not unit):
        client.busy[rest] = amount
    elif kind == "total" and rest.startswith("cycles-"):
        client.cycles[rest.removeprefix("cycles-")] = amount


class ClientScanner:
    """Finds all clients. Processes without an opened device are looked at again only in the next full scan."""

    def __init__(self, root: str = "") -> None:
        self._proc = f"{root}/proc"
        self._open: dict[int, tuple[str, ...]] = {}
        """Names of the descriptors of DRM devices, by pid."""
        self.is_complete = True
        """False if the descriptors of some processes could not be read in the last full scan."""

    def scan(self) -> None:
        """Search all processes for opened devices."""
        found: dict[int, tuple[str, ...]] = {}
        self.is_complete = True
        for name in list_folder(self._proc):
            if not (name.isascii() and name.isdigit() and len(name) < 10):
                continue
            descriptors = self._device_descriptors(name)
            if descriptors:
                found[int(name)] = tuple(descriptors)
        self._open = found

    def _device_descriptors(self, pid: str) -> list[str]:
        found: list[str] = []
        try:
            folder = os.open(f"{self._proc}/{pid}/fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except PermissionError:
            self.is_complete = False
            return found
        except OSError:  # the process has ended
            return found
        try:
            for name in os.listdir(folder):
                with suppress(OSError):  # closed in the meantime
                    if os.readlink(name, dir_fd=folder).startswith(_NODES):
                        found.append(name)
        except OSError:  # the process has ended
            return found
        finally:
            os.close(folder)
        return found

    def read(self) -> list[Client]:
        """Return the clients of the processes that the last scan found, each client once."""
        clients: dict[tuple[str, int], Client] = {}
        for pid, names in sorted(self._open.items()):
            for name in names:
                client = parse_fdinfo(pid, read_bytes(f"{self._proc}/{pid}/fdinfo/{name}", _LONGEST))
                if client is not None and client.key not in clients and len(clients) < _MAX_CLIENTS:
                    clients[client.key] = client
        return list(clients.values())


class EngineUse:
    """Computes the shares of engines from two readings of a client."""

    def __init__(self) -> None:
        self.by_card: dict[str, dict[str, float]] = {}
        """By address of each card, the share of each engine, summed over all clients in the last call of `shares`."""
        self._before: dict[tuple[str, int], tuple[int, Client]] = {}

    def shares(self, clients: Sequence[Client], monotonic_ns: int) -> dict[tuple[str, int], EngineShares]:
        """Return the shares of each client since the last call, by its key. A new client has none."""
        shares = {}
        self.by_card = {}
        for client in clients:
            begin, before = self._before.get(client.key, (monotonic_ns, client))
            passed = monotonic_ns - begin
            if passed > 0:
                by_engine = _engine_shares(before, client, passed)
                card = self.by_card.setdefault(client.address, {})
                for engine, share in by_engine.items():
                    card[engine] = min(1.0, card.get(engine, 0.0) + share)
                shares[client.key] = EngineShares(
                    _largest(by_engine, _MAIN), NAN, _largest(by_engine, _ENCODERS), _largest(by_engine, _DECODERS)
                )
        self._before = {client.key: (monotonic_ns, client) for client in clients}
        return shares


def _engine_shares(before: Client, after: Client, passed: int) -> dict[str, float]:
    """Return the share of each engine. `passed`: ns between the two readings."""
    shares = {}
    for engine, busy in after.busy.items():
        used = max(0.0, busy - before.busy.get(engine, busy))  # drivers may report a little less than before
        total = float(passed)
        if engine in after.cycles:
            total = after.cycles[engine] - before.cycles.get(engine, after.cycles[engine])
        total *= max(1.0, after.capacity.get(engine, 1.0))
        if total > 0:
            shares[engine] = min(1.0, used / total)
    return shares


def _largest(shares: Mapping[str, float], engines: Sequence[str]) -> float:
    return max((shares[engine] for engine in engines if engine in shares), default=NAN)


def total_memory(clients: Sequence[Client], address: str) -> float:
    """Return the device memory of all clients of a card in bytes; 0 without clients, NaN if none reports its memory."""
    own = [client for client in clients if client.address == address]
    return sum_known(client.device_memory for client in own) if own else 0.0


def sum_known(amounts: Iterable[float]) -> float:
    """Return the sum of the amounts that are not NaN; NaN if there is none."""
    known = [amount for amount in amounts if is_known(amount)]
    return sum(known) if known else NAN
