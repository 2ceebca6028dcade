"""Reads KFD, the part of amdgpu for ROCm: its nodes, which are GPUs or partitions of GPUs, and its processes.

A node is read from /sys/class/kfd/kfd/topology/nodes, a process from /sys/class/kfd/kfd/proc/<pid>. Pids are host
pids, even in a container. Programs on ROCm do not use the scheduler of DRM, so only KFD knows that they compute.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpumon.common.numbers import NAN
from gpumon.sources.drm.files import list_folder, parse_number, read_bytes, read_fields, read_number

KFD = "/sys/class/kfd/kfd"
_MAX_NODES = 1024
_LOCAL_MEMORY = ("1", "2")
"""Heap types of device memory: HSA_MEM_HEAP_TYPE_FB_PUBLIC and FB_PRIVATE in kfd_crat.h."""


@dataclass(frozen=True, slots=True)
class Node:
    """A GPU, or a partition of a GPU."""

    number: int
    """Number of the node. ROCm numbers GPUs in this order, from 0."""
    gpu_id: int
    address: str
    """Address of the card on the PCI bus, such as `0000:03:00.0`."""
    partition: int
    """Number of the partition on its card, from 0."""
    compute_units: int
    """Number of compute units; 0 if unknown."""
    memory: float
    """Device memory of the node in bytes; NaN if unknown."""
    serial: int = 0
    """Serial number of the card; 0 if unknown. Partitions may have different numbers."""


def read_nodes(root: str = "") -> list[Node]:
    """Return all nodes with a GPU, in ROCm's order. A container sees only the nodes of its own devices."""
    folder = f"{root}{KFD}/topology/nodes"
    numbers = sorted(int(name) for name in list_folder(folder) if name.isascii() and name.isdigit() and len(name) < 5)
    nodes = (_read_node(f"{folder}/{number}", number) for number in numbers[:_MAX_NODES])
    return _numbered([node for node in nodes if node is not None])


def _numbered(nodes: list[Node]) -> list[Node]:
    """Number the partitions of each card. Older drivers give all partitions of a card the number 0."""
    by_card: dict[str, list[Node]] = {}
    for node in nodes:
        by_card.setdefault(node.address, []).append(node)
    for address, own in by_card.items():
        if len({node.partition for node in own}) < len(own):
            by_card[address] = [replace(node, partition=number) for number, node in enumerate(own)]
    return sorted((node for own in by_card.values() for node in own), key=lambda node: node.number)


def _read_node(folder: str, number: int) -> Node | None:
    gpu_id = read_number(f"{folder}/gpu_id")
    if not gpu_id > 0:  # a CPU
        return None
    properties = read_fields(f"{folder}/properties")
    location, domain = _integer(properties, "location_id"), _integer(properties, "domain")
    simd_count, per_unit = _integer(properties, "simd_count"), _integer(properties, "simd_per_cu")
    # linux/drivers/gpu/drm/amd/amdkfd/kfd_topology.c: the upper four bits are the number of the partition
    bus, device, function = location >> 8 & 0xFF, location >> 3 & 0x1F, location & 0x7
    return Node(
        number=number,
        gpu_id=int(gpu_id),
        address=f"{domain:04x}:{bus:02x}:{device:02x}.{function:x}",
        partition=location >> 28 & 0xF,
        compute_units=simd_count // per_unit if per_unit > 0 else 0,
        memory=_local_memory(f"{folder}/mem_banks"),
        serial=_integer(properties, "unique_id"),
    )


def _integer(fields: dict[str, str], name: str) -> int:
    text = fields.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 21 else 0


def _local_memory(folder: str) -> float:
    total = 0
    for name in list_folder(folder)[:16]:
        bank = read_fields(f"{folder}/{name}/properties")
        if bank.get("heap_type") in _LOCAL_MEMORY:
            total += _integer(bank, "size_in_bytes")
    return float(total) if total else NAN


@dataclass(frozen=True, slots=True)
class KfdProcess:
    """A process that uses a node."""

    pid: int
    gpu_id: int
    memory: float
    """Device memory of the process in bytes; NaN if unknown."""
    compute_units: float
    """Compute units that run the process at this moment; NaN if the card does not count them."""


def read_processes(root: str = "") -> list[KfdProcess]:
    """Return the processes on each node. A process opens all nodes, but only those on which it does something count."""
    folder = f"{root}{KFD}/proc"
    pids = [int(name) for name in list_folder(folder) if name.isascii() and name.isdigit() and len(name) < 10]
    return [process for pid in pids for process in _read_process(f"{folder}/{pid}", pid)]


def _read_process(folder: str, pid: int) -> Iterator[KfdProcess]:
    names = (name.partition("_") for name in list_folder(folder))
    numbers = {number for kind, _, number in names if kind in ("vram", "stats") and number.isascii()}
    for number in sorted(number for number in numbers if number.isdigit() and len(number) < 11):
        memory = parse_number(read_bytes(f"{folder}/vram_{number}", 64))
        if memory == 0:  # the process has opened the node, but does nothing on it
            continue
        units = parse_number(read_bytes(f"{folder}/stats_{number}/cu_occupancy", 64))
        if memory > 0 or units > 0:
            yield KfdProcess(pid, int(number), memory if memory >= 0 else NAN, units if units >= 0 else NAN)


def is_available(root: str = "") -> bool:
    """Return whether KFD is loaded and lists its processes."""
    return bool(list_folder(f"{root}{KFD}/topology/nodes"))
