"""Reads how much device memory the training's framework uses. Only the training process itself can determine this.

The training's own thread reads statistics that the framework collects anyway. It reads them at boundaries, and
otherwise at most every half second. Nothing here waits for a GPU or wakes one. Peaks are never reset, because only the
user may do that. A framework that is not imported, or that has not initialized a GPU yet, is not queried.

TensorFlow reports the memory in use, but not the memory that it has taken from the driver. JAX reports the memory taken
from the driver as `pool_bytes`. Its `bytes_limit` is the maximum that it may take, and `bytes_reserved` is a stack
outside the heap.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from time import monotonic_ns
from typing import Any

from gpumon.model.rocm_devices import SERIAL_DIGITS
from gpumon.model.vendors import ADDRESS, AMD
from gpumon.tracking import out_of_memory
from gpumon.tracking.board import Board
from gpumon.tracking.context import torch_uuid, visible_uuids
from gpumon.tracking.out_of_memory import count_of
from gpumon.tracking.warn import warn_once
from gpumon.tracking.wire_format import NOT_KNOWN, Memory, device_mark

EVERY = 500_000_000
"""Nanoseconds between two reads of the framework's memory."""
BOUNDARIES_AT_ONCE = 5_000_000
"""Total ns that may be spent on reads at boundaries before the limit `BOUNDARIES_SHARE` applies."""
BOUNDARIES_SHARE = 200
"""At most 1/`BOUNDARIES_SHARE` of the time may be spent on reads at boundaries. If epochs are very short, some reads
are skipped.
"""
SCAN_EVERY = 10_000_000_000
"""ns between two scans of the devices that torch sees but does not use. Reading such a device takes as long as reading
a device in use.
"""
NEVER = 1 << 63
_UUID_LENGTH = 40

_TORCH_BYTES = {
    "allocated": ("allocated_bytes", "current"),
    "reserved": ("reserved_bytes", "current"),
    "peak": ("allocated_bytes", "peak"),
    "active": ("active_bytes", "current"),
    "inactive_split": ("inactive_split_bytes", "current"),
    "requested": ("requested_bytes", "current"),
}
_TORCH_COUNTS = {"retries": "num_alloc_retries", "ooms": "num_ooms"}
_TORCH_NATIVE = ("active", "inactive_split", "requested", "retries", "ooms")
"""Counters that only torch's native allocator has."""


class MemoryReader:
    """Publishes the framework memory of this process on `board`, and reports out-of-memory errors. Never raises."""

    def __init__(
        self,
        board: Board,
        modules: Mapping[str, Any] | None = None,
        monotonic: Callable[[], int] = monotonic_ns,
        reporter: out_of_memory.OutOfMemoryReporter = out_of_memory.REPORTER,
    ) -> None:
        self.due_ns = 0 if board.on else NEVER
        """Time at which the next `read` is due (ns, monotonic). The caller compares this itself, which saves a call per
        step."""
        self._board = board
        self._modules = sys.modules if modules is None else modules
        self._monotonic = monotonic
        self._published = False
        self._start_ns = monotonic()
        self._boundaries_ns = 0
        self._peak = NOT_KNOWN
        self._frameworks = FrameworkMemoryReader(board.description.visible, self._modules, reporter)
        if board.on:
            reporter.add(board)

    def read(self, now: int = 0) -> None:
        """Read and publish the memory. `now`: the current time (ns) if the caller has just read the clock, else 0."""
        if not self._board.on:
            self.due_ns = NEVER
            return
        now = now or self._monotonic()
        self.due_ns = now + EVERY
        devices = self._frameworks.read(now)
        self._peak = _sum(device.peak for device in devices)
        if devices or self._published:  # an empty record withdraws values that are no longer available
            self._published = bool(devices)
            self._board.memory(devices)

    def read_at_boundary(self) -> None:
        """Read the peak before an epoch or phase begins or ends, and publish it with that event.

        If the peak has risen since the previous boundary, it was reached between the two boundaries.
        """
        if self.due_ns == NEVER:
            return
        start = self._monotonic()
        allowed = BOUNDARIES_AT_ONCE + (start - self._start_ns) // BOUNDARIES_SHARE
        if self._boundaries_ns >= allowed and start < self.due_ns:
            return
        self.read(start)
        self._board.peak = self._peak
        self._boundaries_ns += self._monotonic() - start


class FrameworkMemoryReader:
    """Reads the device memory of the frameworks in this process.

    Never raises. If the memory of a framework cannot be read, the reader warns once and no longer reads that framework.

    `visible`: value of CUDA_VISIBLE_DEVICES, or of the variable of another vendor, if it lists UUIDs. `modules`:
    `sys.modules`. `reporter`: gets the out-of-memory errors of torch; None to leave torch as it is.
    """

    def __init__(
        self, visible: str, modules: Mapping[str, Any], reporter: out_of_memory.OutOfMemoryReporter | None = None
    ) -> None:
        uuids = visible_uuids(visible)
        self._modules = modules
        self._readers: dict[str, Callable[[Mapping[str, Any], int], list[Memory]]] = {
            "torch": _Torch(uuids, reporter),
            "TensorFlow": _TensorFlow(uuids),
            "JAX": _Jax(uuids),
        }

    def read(self, now: int) -> list[Memory]:
        """Return the memory of each device that a framework uses. `now`: current time (ns, monotonic)."""
        devices: list[Memory] = []
        for framework, reader in list(self._readers.items()):
            try:
                devices += reader(self._modules, now)
            except Exception as error:  # such as an unexpected version or a lost context
                self._readers.pop(framework, None)
                warn_once(f"memory {framework}", f"{framework}'s memory is not shown: {type(error).__name__}: {error}")
        return devices


class _Torch:
    """Reads the memory of torch's caching allocators."""

    def __init__(self, visible: tuple[str, ...], reporter: out_of_memory.OutOfMemoryReporter | None) -> None:
        self._visible = visible
        self._reporter = reporter
        self._used: set[int] = set()
        self._scan_due = 0
        self._marks: dict[int, int] = {}

    def __call__(self, modules: Mapping[str, Any], now: int) -> list[Memory]:
        torch: Any = modules.get("torch")
        cuda: Any = getattr(torch, "cuda", None)
        if not _initialized(cuda):
            return _other_accelerator(torch)
        if self._reporter is not None:
            self._reporter.observe(torch, self._visible)
        indexes = {*self._used, cuda.current_device()}
        if now >= self._scan_due:
            self._scan_due = now + SCAN_EVERY
            indexes.update(range(cuda.device_count()))
        devices = [
            _from_torch(index, self._mark(cuda, index), cuda.memory_stats_as_nested_dict(index))
            for index in sorted(indexes)
        ]
        # A device that was in use once is always reported, even when it is empty.
        self._used.update(device.number for device in devices if device.reserved not in (0, NOT_KNOWN))
        return [device for device in devices if device.number in (self._used or {cuda.current_device()})]

    def _mark(self, cuda: Any, index: int) -> int:
        if index not in self._marks:
            self._marks[index] = _mark(torch_uuid(cuda, index, self._visible))
        return self._marks[index]


class _TensorFlow:
    """Reads the memory in use on TensorFlow's logical GPUs."""

    def __init__(self, visible: tuple[str, ...]) -> None:
        self._visible = visible

    def __call__(self, modules: Mapping[str, Any], now: int) -> list[Memory]:
        config = getattr(modules.get("tensorflow"), "config", None)
        context = getattr(modules.get("tensorflow.python.eager.context"), "context_safe", lambda: None)()
        if config is None or not getattr(context, "_initialized", False):
            return []  # any call of `config` would initialize TensorFlow
        logical, physical = config.list_logical_devices("GPU"), config.get_visible_devices("GPU")
        devices = []
        for number, device in enumerate(logical):
            # With several logical devices per GPU, TensorFlow does not report which GPU each is on.
            gpu = physical[number] if len(physical) == len(logical) else physical[0] if len(physical) == 1 else None
            ordinal = str(getattr(gpu, "name", "")).rpartition(":")[2]
            info = config.experimental.get_memory_info(device.name)
            mark = _visible_mark(ordinal, self._visible)
            devices.append(Memory(number, mark, count_of(info.get("current")), peak=count_of(info.get("peak"))))
        return devices


class _Jax:
    """Reads the memory of XLA's allocators for JAX on the GPUs of this process."""

    def __init__(self, visible: tuple[str, ...]) -> None:
        self._visible = visible

    def __call__(self, modules: Mapping[str, Any], now: int) -> list[Memory]:
        # All public functions of JAX initialize it. The function that tells whether JAX is initialized may wait for
        # another thread.
        backends = getattr(modules.get("jax._src.xla_bridge"), "_backends", {})
        devices = []
        for backend in [backends[name] for name in list(backends) if name in ("cuda", "rocm", "gpu")]:
            for device in backend.local_devices():
                stats = device.memory_stats() or {}
                allocated, pool = count_of(stats.get("bytes_in_use")), count_of(stats.get("pool_bytes"))
                if allocated == NOT_KNOWN:
                    continue
                devices.append(
                    Memory(
                        int(device.id),
                        _visible_mark(str(getattr(device, "local_hardware_id", None)), self._visible),
                        allocated,
                        reserved=pool if pool >= allocated else NOT_KNOWN,
                        peak=count_of(stats.get("peak_bytes_in_use")),
                        # Earlier versions of XLA always report zero for GPUs.
                        largest_free=count_of(stats.get("largest_free_block_bytes")) or NOT_KNOWN,
                    )
                )
        return devices


def _sum(counts: Iterable[int]) -> int:
    values = list(counts)
    return sum(values) if values and NOT_KNOWN not in values else NOT_KNOWN


def _initialized(backend: Any) -> bool:
    is_initialized = getattr(backend, "is_initialized", None)
    return is_initialized is not None and bool(is_initialized())


def _other_accelerator(torch: Any) -> list[Memory]:
    """Return torch's memory on devices other than CUDA's."""
    # `torch.accelerator` itself would search for devices and wake a driver. So first check that a device is in use.
    if not any(_initialized(getattr(torch, name, None)) for name in ("xpu", "mtia")):
        return []
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None or not hasattr(accelerator, "memory_stats"):
        return []
    devices = [
        _from_torch(index, 0, _nested(accelerator.memory_stats(index))) for index in range(accelerator.device_count())
    ]
    return [device for device in devices if device.reserved not in (0, NOT_KNOWN)]


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the statistics of `torch.accelerator` that gpumon reads to the nested form of `torch.cuda`."""
    nested: dict[str, Any] = dict(flat)
    for key, which in _TORCH_BYTES.values():
        nested.setdefault(key, {}).setdefault("all", {})[which] = flat.get(f"{key}.all.{which}")
    return nested


def _from_torch(number: int, mark: int, stats: Mapping[str, Any]) -> Memory:
    fields = {field: count_of(stats.get(key)) for field, key in _TORCH_COUNTS.items()}
    for field, (key, which) in _TORCH_BYTES.items():
        fields[field] = count_of(stats.get(key, {}).get("all", {}).get(which))
    if fields["active"] == 0 < fields["allocated"] < NOT_KNOWN:
        # Allocators other than torch's own, such as cudaMallocAsync, report zero for counters that they do not have.
        fields.update(dict.fromkeys(_TORCH_NATIVE, NOT_KNOWN))
    return Memory(number, mark, **fields)


def _mark(uuid: str) -> int:
    # A UUID from CUDA_VISIBLE_DEVICES may be shortened. The mark of a shortened UUID would match no device.
    is_whole = len(uuid) >= _UUID_LENGTH or uuid.startswith(ADDRESS) or len(uuid) == len(AMD.whole[0]) + SERIAL_DIGITS
    return device_mark(uuid) if is_whole else 0


def _visible_mark(ordinal: str, visible: tuple[str, ...]) -> int:
    """Return the mark of the visible device with the number `ordinal`; 0 if it cannot be determined."""
    is_index = ordinal.isascii() and ordinal.isdigit() and int(ordinal) < len(visible)
    return _mark(visible[int(ordinal)]) if is_index else 0
