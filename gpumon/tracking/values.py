"""Numbers out of whatever a training logs, without ever waiting for a GPU.

`float(tensor)` of a CUDA tensor stops the training until the GPU has caught up. So the value is
copied to pinned memory behind what is already queued, with an event after it, and taken
when the event has passed, on a later call.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from operator import index
from typing import Any, NamedTuple, Protocol

from gpumon.model.steps import mark_size
from gpumon.tracking.warn import warn_once
from gpumon.tracking.wire import NOT_KNOWN


class RowEnd(NamedTuple):
    """A moment at which a training had made a round number of steps."""

    step: int
    monotonic_ns: int
    wait_ns: int


class StepMarker:
    """Follows the steps of one run, as often as they are published."""

    def __init__(self) -> None:
        self._before = RowEnd(0, 0, 0)
        self._size = 1
        self.ended = 0
        """The step with which the newest row ended; 0 before the first."""
        self.next = 0
        """The step with which the next one ends, unless rows have become longer by then."""

    def passed(self, now: RowEnd) -> list[RowEnd]:
        """The ends of rows that lie between the last call and this one.

        Between two calls, which are 50 ms apart at most while steps are fast, steps are taken to be equally long.
        """
        before = self._before
        self.note(now)
        size = self._size
        # Of what came before the first call it is unknown when each step was made.
        first = before.step // size * size + size if before.monotonic_ns else max(size, now.step // size * size)
        ends = [_between(before, now, step) for step in range(first, now.step + 1, size)]
        if ends:
            self.ended = ends[-1].step
        return ends

    def note(self, now: RowEnd) -> None:
        """Note where the training stands when something else was published: no row ends before it."""
        self._before = now
        self._size = size = mark_size(now.step)
        self.next = now.step // size * size + size

    def end_of(self, step: int) -> int:
        """Return the step with which the row of `step` ends, as long as rows are now."""
        return -(-step // self._size) * self._size


def _between(before: RowEnd, now: RowEnd, step: int) -> RowEnd:
    """The moment at which a training that was here and there made that step."""
    if not before.monotonic_ns or step == now.step or NOT_KNOWN in (before.wait_ns, now.wait_ns):
        return now._replace(step=step)
    share = (step - before.step) / (now.step - before.step)
    return RowEnd(
        step=step,
        monotonic_ns=before.monotonic_ns + round(share * (now.monotonic_ns - before.monotonic_ns)),
        wait_ns=before.wait_ns + round(share * (now.wait_ns - before.wait_ns)),
    )


_EPOCHS = 4
"""Epochs whose last number is waited for at once."""


_FIRST = frozenset(("loss", "train_loss", "reward", "accuracy", "acc"))
_MEASURES = frozenset((
    "acc", "accuracy", "auc", "bleu", "bpb", "bpc", "cer", "dice", "elbo", "error", "f1", "fid", "iou", "logloss",
    "loss", "mae", "map", "miou", "mse", "nll", "perplexity", "ppl", "precision", "psnr", "r2", "recall", "return",
    "reward", "rewards", "rmse", "rouge", "score", "ssim", "wer",
))  # fmt: skip
_HELD_OUT = frozenset(("dev", "eval", "test", "val", "valid", "validation"))
_DETAILS = frozenset(("max", "min", "runtime", "second", "std", "steps", "time"))


def metric_rank(name: str) -> int:
    """How much a logged metric tells, by its name: 0 for a loss, reward or accuracy, up to 4 for a detail.

    Before others come those of a held-out set (`eval_loss`, `val/acc`), then what measures anything.
    """
    if name.lower() in _FIRST:
        return 0
    words = re.split("[^a-z0-9]+", name.lower())
    if words[-1] in _DETAILS:
        return 4
    measures, is_held_out = not _MEASURES.isdisjoint(words), not _HELD_OUT.isdisjoint(words[:1])
    return 1 if measures and is_held_out else 2 if measures or is_held_out else 3


class Arriving(Protocol):
    """A number on its way from a GPU."""

    def ready(self) -> bool:
        """Whether it has come; never waits."""

    def value(self) -> float:
        """The number, once `ready`."""


class _Copy:
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


def number_of(name: str, value: Any, modules: Mapping[str, Any] | None = None) -> float | Arriving | None:
    """`value` as a number, a number on its way, or None (with one warning) when it is no number."""
    kind = type(value)
    if kind is float or kind is int or kind is bool:
        try:
            return float(value)
        except OverflowError:
            return None
    try:
        where = getattr(value, "device", None)
        if where is None or "cpu" in str(where).lower():
            if isinstance(value, str | bytes):
                return None
            # torch warns when a loss that still carries its graph becomes a number.
            return float(value.detach() if hasattr(value, "detach") else value)
        torch = (sys.modules if modules is None else modules).get("torch")
        if torch is not None and isinstance(value, torch.Tensor) and value.is_cuda and value.numel() == 1:
            # Inside a graph capture nothing may be queued or allocated that the graph should not replay.
            return None if torch.cuda.is_current_stream_capturing() else _Copy(torch, value)
    except Exception:  # what is no number, or has no value yet; the texts of frameworks are about their own calls
        where = ""
    if "Tracer" in kind.__name__ or "Symbolic" in kind.__name__:
        why = "a compiled function has no values while it is traced; log what it returns"
    elif where:
        why = f"reading a {kind.__name__} on {where} would wait for it"
    else:
        why = f"{kind.__name__} is no number"
    warn_once(f"metric {name}", f"{name} is not shown: {why}")
    return None


def whole(value: Any) -> int | None:
    """`value` as a whole number, of any numeric type; None where it is none, or reading it would wait for a GPU."""
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
    except Exception:  # nothing like a number, or a type of the user's own that may do anything
        return None
    return int(number) if number.is_integer() else None


class Pending:
    """Numbers on their way, by name: the oldest, the newest, and the last one of each epoch.

    The oldest, so that a training which logs faster than its GPU answers still shows something; the
    last one of an epoch, because it is what is kept with it.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[tuple[int, int], Arriving]]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, name: str, number: Arriving, epoch: int = -1, row: int = 0) -> None:
        """Wait for `number` of `epoch`, or without epochs of the row of steps that ends with `row`, unless 0.

        One of the same that waited between it and the oldest is given up.
        """
        waiting, place = self._waiting.get(name, []), (epoch, row)
        kept = [one for i, one in enumerate(waiting) if i == 0 or one[0] != place]
        self._waiting[name] = [*kept[-_EPOCHS:], (place, number)]

    def forget(self, name: str) -> None:
        """A newer value is known: what is on its way is late."""
        self._waiting.pop(name, None)

    def collect(self) -> dict[tuple[int, int], dict[str, float]]:
        """Return the values that arrived since the last call, by their epoch and row. Never raises and never waits."""
        arrived: dict[tuple[int, int], dict[str, float]] = {}
        for name, waiting in list(self._waiting.items()):
            try:
                while waiting and waiting[0][1].ready():
                    place, number = waiting.pop(0)
                    arrived.setdefault(place, {})[name] = number.value()
            except Exception as error:  # a lost context, a tensor that is no number
                waiting.clear()
                warn_once(f"metric {name}", f"{name} is not shown: its value did not arrive ({type(error).__name__})")
            if not waiting:
                self._waiting.pop(name, None)
        return arrived
