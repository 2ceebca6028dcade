"""Device memory of the training's framework, which only its own process can report.

Read on the training's own thread, at most every half second and at boundaries, from the books that the framework
keeps anyway. Nothing here waits for a GPU, wakes one, or resets a peak, which is the user's. A framework that was not
imported, or has not yet come up on a GPU by itself, is not asked.

What is unknown stays unknown. TensorFlow reports what it uses, never what it took from the driver. JAX's
`bytes_limit` is what it may take and its `bytes_reserved` a stack outside the heap; only `pool_bytes` is what it took.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from time import monotonic_ns
from typing import Any

from gpumon.tracking import out_of_memory
from gpumon.tracking.board import Board
from gpumon.tracking.context import torch_uuid, visible_uuids
from gpumon.tracking.out_of_memory import count_of
from gpumon.tracking.warn import warn_once
from gpumon.tracking.wire import NOT_KNOWN, Memory, device_mark

EVERY = 500_000_000
"""ns between two reads."""
BOUNDARIES_AT_ONCE = 5_000_000
"""ns that reading at boundaries may take before its share of the time counts."""
BOUNDARIES_SHARE = 200
"""Of so much time, one part may go into reading at boundaries: a training of very short epochs leaves some out."""
SCAN_EVERY = 10_000_000_000
"""ns between two looks at the devices that torch sees and does not use: each costs as much as one that it uses."""
NEVER = 1 << 63
_WHOLE_UUID = 40

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
"""Counters that only torch's own allocator has."""


class MemoryReader:
    """Publishes on `board` what the frameworks of this process hold; watches for their out-of-memory errors.

    Never raises. A framework that cannot be read is left out from then on, with one warning.
    """

    def __init__(
        self,
        board: Board,
        modules: Mapping[str, Any] | None = None,
        monotonic: Callable[[], int] = monotonic_ns,
        failures: out_of_memory.Failures = out_of_memory.PROCESS,
    ) -> None:
        self.due_ns = 0 if board.on else NEVER
        """When the next `read` is due: ns, monotonic. Compared by the caller, so that a step pays nothing more."""
        self._board = board
        self._modules = sys.modules if modules is None else modules
        self._monotonic = monotonic
        self._published = False
        self._begun = monotonic()
        self._at_boundaries = 0
        self._peak = NOT_KNOWN
        visible = visible_uuids(board.description.visible)
        self._readers: dict[str, Callable[[Mapping[str, Any], int], list[Memory]]] = {
            "torch": _Torch(visible, failures),
            "TensorFlow": _TensorFlow(visible),
            "JAX": _Jax(visible),
        }
        if board.on:
            failures.watch(board)

    def read(self, now: int = 0) -> None:
        """Read and publish; `now` is the time, when it was just taken."""
        if not self._board.on:
            self.due_ns = NEVER
            return
        now = now or self._monotonic()
        self.due_ns = now + EVERY
        held: list[Memory] = []
        for framework, reader in list(self._readers.items()):
            try:
                held += reader(self._modules, now)
            except Exception as error:  # a version of another shape, a context that is lost
                self._readers.pop(framework, None)
                warn_once(f"memory {framework}", f"{framework}'s memory is not shown: {type(error).__name__}: {error}")
        self._peak = _sum(one.peak for one in held)
        if held or self._published:  # what is no longer known is taken back
            self._published = bool(held)
            self._board.memory(held)

    def at_boundary(self) -> None:
        """Something begins or ends: read the peak until then for the event that follows.

        A peak that rises between two boundaries belongs to what lies between them; only the user resets it.
        """
        if self.due_ns == NEVER:
            return
        begun = self._monotonic()
        allowed = BOUNDARIES_AT_ONCE + (begun - self._begun) // BOUNDARIES_SHARE
        if self._at_boundaries >= allowed and begun < self.due_ns:
            return
        self.read(begun)
        self._board.peak = self._peak
        self._at_boundaries += self._monotonic() - begun


class _Torch:
    """Memory that torch's caching allocators hold."""

    def __init__(self, visible: tuple[str, ...], failures: out_of_memory.Failures) -> None:
        self._visible = visible
        self._failures = failures
        self._used: set[int] = set()
        self._scan_due = 0
        self._marks: dict[int, int] = {}

    def __call__(self, modules: Mapping[str, Any], now: int) -> list[Memory]:
        torch: Any = modules.get("torch")
        cuda: Any = getattr(torch, "cuda", None)
        if not _initialized(cuda):
            return _other_accelerator(torch)
        self._failures.observe(torch, self._visible)
        looked_at = {*self._used, cuda.current_device()}
        if now >= self._scan_due:
            self._scan_due = now + SCAN_EVERY
            looked_at.update(range(cuda.device_count()))
        held = [
            _of_torch(index, self._mark(cuda, index), cuda.memory_stats_as_nested_dict(index))
            for index in sorted(looked_at)
        ]
        # A device that was in use is reported from then on, so that its emptiness shows.
        self._used.update(one.number for one in held if one.reserved not in (0, NOT_KNOWN))
        return [one for one in held if one.number in (self._used or {cuda.current_device()})]

    def _mark(self, cuda: Any, index: int) -> int:
        if index not in self._marks:
            self._marks[index] = _mark(torch_uuid(cuda, index, self._visible))
        return self._marks[index]


class _TensorFlow:
    """Memory that TensorFlow uses on its logical GPUs."""

    def __init__(self, visible: tuple[str, ...]) -> None:
        self._visible = visible

    def __call__(self, modules: Mapping[str, Any], now: int) -> list[Memory]:
        config = getattr(modules.get("tensorflow"), "config", None)
        context = getattr(modules.get("tensorflow.python.eager.context"), "context_safe", lambda: None)()
        if config is None or not getattr(context, "_initialized", False):
            return []  # each question to `config` would bring it up
        logical, physical = config.list_logical_devices("GPU"), config.get_visible_devices("GPU")
        found = []
        for number, device in enumerate(logical):
            # Several logical devices on a GPU: which is whose is not told.
            of = physical[number] if len(physical) == len(logical) else physical[0] if len(physical) == 1 else None
            ordinal = str(getattr(of, "name", "")).rpartition(":")[2]
            used = config.experimental.get_memory_info(device.name)
            mark = _mark(self._visible[int(ordinal)]) if _in(ordinal, self._visible) else 0
            found.append(Memory(number, mark, count_of(used.get("current")), peak=count_of(used.get("peak"))))
        return found


class _Jax:
    """Memory that XLA's allocators hold for JAX on the GPUs of this process."""

    def __init__(self, visible: tuple[str, ...]) -> None:
        self._visible = visible

    def __call__(self, modules: Mapping[str, Any], now: int) -> list[Memory]:
        # Every public function brings JAX up, and asking it whether it is up waits for the thread that starts it.
        backends = getattr(modules.get("jax._src.xla_bridge"), "_backends", {})
        found = []
        for backend in [backends[name] for name in list(backends) if name in ("cuda", "rocm", "gpu")]:
            for device in backend.local_devices():
                told = device.memory_stats() or {}
                allocated, held = count_of(told.get("bytes_in_use")), count_of(told.get("pool_bytes"))
                if allocated == NOT_KNOWN:
                    continue
                ordinal = str(getattr(device, "local_hardware_id", None))
                found.append(
                    Memory(
                        int(device.id),
                        _mark(self._visible[int(ordinal)]) if _in(ordinal, self._visible) else 0,
                        allocated,
                        reserved=held if held >= allocated else NOT_KNOWN,
                        peak=count_of(told.get("peak_bytes_in_use")),
                        # Earlier versions of XLA leave it at zero on GPUs.
                        largest_free=count_of(told.get("largest_free_block_bytes")) or NOT_KNOWN,
                    )
                )
        return found


def _sum(counts: Iterable[int]) -> int:
    found = list(counts)
    return sum(found) if found and NOT_KNOWN not in found else NOT_KNOWN


def _initialized(backend: Any) -> bool:
    asked = getattr(backend, "is_initialized", None)
    return asked is not None and bool(asked())


def _other_accelerator(torch: Any) -> list[Memory]:
    """Memory that torch holds on devices other than CUDA's."""
    # `torch.accelerator` itself would look for devices, and so wake a driver: first whether one is in use.
    if not any(_initialized(getattr(torch, name, None)) for name in ("xpu", "mtia")):
        return []
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None or not hasattr(accelerator, "memory_stats"):
        return []
    found = []
    for index in range(accelerator.device_count()):
        held = _of_torch(index, 0, _nested(accelerator.memory_stats(index)))
        if held.reserved not in (0, NOT_KNOWN):
            found.append(held)
    return found


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Statistics of `torch.accelerator` in the shape of `torch.cuda`, as far as gpumon reads them."""
    nested: dict[str, Any] = dict(flat)
    for key, which in _TORCH_BYTES.values():
        nested.setdefault(key, {}).setdefault("all", {})[which] = flat.get(f"{key}.all.{which}")
    return nested


def _of_torch(number: int, mark: int, told: Mapping[str, Any]) -> Memory:
    known = {field: count_of(told.get(key)) for field, key in _TORCH_COUNTS.items()}
    for field, (key, which) in _TORCH_BYTES.items():
        known[field] = count_of(told.get(key, {}).get("all", {}).get(which))
    if known["active"] == 0 < known["allocated"] < NOT_KNOWN:
        # An allocator that is not torch's own, such as cudaMallocAsync, leaves at zero what it does not count.
        known.update(dict.fromkeys(_TORCH_NATIVE, NOT_KNOWN))
    return Memory(number, mark, **known)


def _mark(uuid: str) -> int:
    # CUDA_VISIBLE_DEVICES may shorten a UUID, and then its mark would match no device.
    return device_mark(uuid) if len(uuid) >= _WHOLE_UUID else 0


def _in(ordinal: str, visible: tuple[str, ...]) -> bool:
    return ordinal.isascii() and ordinal.isdigit() and int(ordinal) < len(visible)
