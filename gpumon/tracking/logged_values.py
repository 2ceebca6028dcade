"""Reads the values that a training logs without waiting for a GPU, ranks them, and divides steps into rows.

`float(tensor)` of a CUDA tensor blocks the training until the GPU has finished its queued work. So the value is copied
asynchronously to pinned memory, and a CUDA event is recorded after the copy. A later call reads the value when that
event has completed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from operator import index
from typing import Any, NamedTuple, Protocol

from gpumon.model.steps import mark_size
from gpumon.tracking.warn import warn_once
from gpumon.tracking.wire_format import NOT_KNOWN


class RowEnd(NamedTuple):
    """The end of a row of steps, which is the time at which the training had completed a round number of steps."""

    step: int
    monotonic_ns: int
    wait_ns: int


class StepMarker:
    """Divides the steps of one run into rows."""

    def __init__(self) -> None:
        self._previous = RowEnd(0, 0, 0)
        self._size = 1
        self.ended = 0
        """Step at which the newest row ended; 0 before the end of the first row."""
        self.next = 0
        """Step at which the next row ends, unless rows become longer before."""

    def advance(self, now: RowEnd) -> list[RowEnd]:
        """Return the ends of rows between the previous call and `now`.

        All steps between two calls are assumed to take equally long. If steps are fast, calls are at most 50 ms apart.
        """
        previous = self._previous
        self.restart(now)
        size = self._size
        # The steps before the first call have no times.
        first = previous.step // size * size + size if previous.monotonic_ns else max(size, now.step // size * size)
        ends = [_interpolate(previous, now, step) for step in range(first, now.step + 1, size)]
        if ends:
            self.ended = ends[-1].step
        return ends

    def restart(self, now: RowEnd) -> None:
        """Continue counting at `now`, without ending a row."""
        self._previous = now
        self._size = size = mark_size(now.step)
        self.next = now.step // size * size + size

    def end_of(self, step: int) -> int:
        """Return the last step of the row that contains `step`, for rows of the current length."""
        return -(-step // self._size) * self._size


def _interpolate(previous: RowEnd, now: RowEnd, step: int) -> RowEnd:
    """Return the time and wait at `step`, estimated by interpolation between two measured positions."""
    if not previous.monotonic_ns or step == now.step or NOT_KNOWN in (previous.wait_ns, now.wait_ns):
        return now._replace(step=step)
    share = (step - previous.step) / (now.step - previous.step)
    return RowEnd(
        step=step,
        monotonic_ns=previous.monotonic_ns + round(share * (now.monotonic_ns - previous.monotonic_ns)),
        wait_ns=previous.wait_ns + round(share * (now.wait_ns - previous.wait_ns)),
    )


_MAX_EPOCHS = 4
"""For each name, the maximum number of epochs or rows whose last value may be pending at the same time."""

_FIRST = frozenset(("loss", "train_loss", "reward", "kl", "accuracy", "acc"))
_MEASURES = frozenset((
    "acc", "accuracies", "accuracy", "auc", "bleu", "bpb", "bpc", "cer", "dice", "elbo", "error", "f1", "fid",
    "iou", "kl", "logloss", "loss", "mae", "map", "miou", "mse", "nll", "perplexity", "ppl", "precision",
    "psnr", "r2", "recall", "return", "reward", "rewards", "rmse", "rouge", "score", "scores", "ssim", "wer",
))  # fmt: skip
_HELD_OUT = frozenset(("dev", "eval", "test", "val", "valid", "validation"))
_DETAILS = frozenset(("max", "min", "runtime", "second", "std", "steps", "time"))
_AMOUNTS = frozenset(("flops", "flos", "length", "lengths", "samples", "tokens"))
_POSITIONS = frozenset(("epoch", "global", "iteration", "step", "trainer"))
"""Words for the progress of a training. A metric whose name consists only of such words is the least informative."""


@lru_cache(maxsize=256)  # each log call asks for the names that have no slot
def metric_rank(name: str) -> int:
    """Return how informative a metric is, judged by its name, from 0 (most informative) to 4.

    0: loss, reward, KL divergence or accuracy. 1: a measure on held-out data (`eval_loss`, `val/acc`). 2: any other
    measure, or another value on held-out data. 3: other values, such as a learning rate. 4: details such as a minimum,
    a maximum, a time, a number of tokens or a step.
    """
    if name.lower() in _FIRST:
        return 0
    words = _words(name)
    if words[-1] in _DETAILS:
        return 4
    if _POSITIONS.issuperset(words) or (_MEASURES.isdisjoint(words) and not _AMOUNTS.isdisjoint(words)):
        return 4
    measures, is_held_out = not _MEASURES.isdisjoint(words), not _HELD_OUT.isdisjoint(words[:1])
    return 1 if measures and is_held_out else 2 if measures or is_held_out else 3


@lru_cache(maxsize=256)
def metric_order(name: str) -> tuple[int, int]:
    """Return a sort key that orders metrics by rank, and within a rank by the number of words in the name:
    `eval_reward` comes before `eval_rewards/format/mean`.
    """
    return metric_rank(name), len(_words(name))


def _words(name: str) -> list[str]:
    return re.split("[^a-z0-9]+", name.lower())


class PendingNumber(Protocol):
    """A number that is being copied from a GPU."""

    def ready(self) -> bool:
        """Return whether the number has arrived. Never waits."""

    def value(self) -> float:
        """Return the number. Call only after `ready` has returned True."""


class _CudaCopy:
    """The copy of a CUDA scalar into pinned memory."""

    def __init__(self, torch: Any, tensor: Any) -> None:
        source = tensor.detach()
        with torch.cuda.device(source.device):
            self._host = torch.empty(source.shape, dtype=source.dtype, pin_memory=True)
            self._host.copy_(source, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()

    def ready(self) -> bool:
        return bool(self._event.query())

    def value(self) -> float:
        return float(self._host)


def number_of(name: str, value: Any, modules: Mapping[str, Any] | None = None) -> float | PendingNumber | None:
    """Return `value` as a number, or as a pending number if it is on a GPU.

    If it is neither, warns once and returns None.

    `name`: name of the metric, for the warning. `modules`: `sys.modules`.
    """
    kind = type(value)
    if kind is float or kind is int or kind is bool:
        try:
            return float(value)
        except OverflowError:
            warn_once(f"metric {name}", f"{name} is not shown: the number is too large")
            return None
    try:
        device = getattr(value, "device", None)
        if device is None or "cpu" in str(device).lower():
            if isinstance(value, str | bytes):
                return None
            # torch warns if a loss that still has its graph is converted to a number.
            return float(value.detach() if hasattr(value, "detach") else value)
        torch = (sys.modules if modules is None else modules).get("torch")
        if torch is not None and isinstance(value, torch.Tensor) and value.is_cuda and value.numel() == 1:
            # During graph capture, a copy or an allocation made here would become part of the graph.
            return None if torch.cuda.is_current_stream_capturing() else _CudaCopy(torch, value)
    except Exception:  # not a number, or no value yet. The framework's message is about its own calls, so it is no help
        device = ""
    if "Tracer" in kind.__name__ or "Symbolic" in kind.__name__:
        reason = "a compiled function has no values while it is traced; log what it returns"
    elif device:
        reason = f"reading a {kind.__name__} on {device} would wait for the device"
    else:
        reason = f"{kind.__name__} is not a number"
    warn_once(f"metric {name}", f"{name} is not shown: {reason}")
    return None


def whole(value: Any) -> int | None:
    """Return `value` as an int; None if it is not whole, or if reading it would wait for a GPU."""
    if type(value) is int:
        return value
    try:
        if (
            isinstance(value, bool | str | bytes)
            or getattr(value, "shape", None)
            or "cpu" not in str(getattr(value, "device", "cpu")).lower()
        ):
            return None
        if hasattr(value, "__index__"):
            return index(value)
        number = float(value)
    except Exception:  # not a number, or a user's type, which may raise anything
        return None
    return int(number) if number.is_integer() else None


class PendingNumbers:
    """Numbers that are still being copied from a GPU.

    For each name, this holds the oldest number, the newest number, and the last number of each epoch. The oldest is
    held so that a training process that logs faster than its GPU computes still shows a value. The last number of an
    epoch is held because it is stored with the epoch.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[tuple[int, int], PendingNumber]]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, name: str, number: PendingNumber, epoch: int = -1, row: int = 0) -> None:
        """Add a pending number of an epoch, or, in a run without epochs, of the row that ends with step `row`.

        It replaces an earlier pending number of the same name, epoch and row, unless the earlier one is the oldest
        number of that name.
        """
        waiting, key = self._waiting.get(name, []), (epoch, row)
        kept = [entry for i, entry in enumerate(waiting) if i == 0 or entry[0] != key]
        self._waiting[name] = [*kept[-_MAX_EPOCHS:], (key, number)]

    def forget(self, name: str) -> None:
        """Drop the pending numbers of `name`, because a newer value is available."""
        self._waiting.pop(name, None)

    def collect(self) -> dict[tuple[int, int], dict[str, float]]:
        """Return the numbers that have arrived since the last call, by (epoch, row) and then by name.

        Never raises or waits.
        """
        arrived: dict[tuple[int, int], dict[str, float]] = {}
        for name, waiting in list(self._waiting.items()):
            try:
                while waiting and waiting[0][1].ready():
                    key, number = waiting.pop(0)
                    arrived.setdefault(key, {})[name] = number.value()
            except Exception as error:  # such as a lost context, or a tensor that is not a number
                waiting.clear()
                warn_once(f"metric {name}", f"{name} is not shown: its value did not arrive ({type(error).__name__})")
            if not waiting:
                self._waiting.pop(name, None)
        return arrived
