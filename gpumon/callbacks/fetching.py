"""Measure how long Keras waits for each batch, at the fetch itself: in the iterator of an epoch.

No hook of Keras stands before and after a fetch, and between two hooks other callbacks may wait for the GPU. Keras
keeps the iterator in a variable of `fit`, `evaluate` and `predict`, which is looked up once each time these begin; what
it iterates over is put behind a clock there. TensorFlow fetches inside of its graph: there is nothing to measure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic_ns
from typing import Any

from gpumon.callbacks.caller import frames

_WATCHED = "_gpumon_watched"


def epoch_iterator(method: str) -> Any:
    """The iterator over the batches of the innermost `method` (fit, evaluate, predict) that runs; None without one."""
    for frame in frames(method):
        found = frame.f_locals.get("epoch_iterator")
        if callable(getattr(found, "_get_iterator", None)):
            return found
    return None


def is_fitting(model: Any) -> bool:
    """Whether a `fit` of `model` is running in this thread, around the innermost one."""
    fits = [frame.f_locals for frame in frames("fit") if "epoch_iterator" in frame.f_locals]
    return any(found.get("self") is model for found in fits[1:])


def watch(iterator: Any, waited: Callable[[int], None], first: Callable[[Any], None] | None = None) -> None:
    """Have `waited` told how long each fetch of `iterator` takes, in ns, and `first` its first batch; once for each."""
    told: dict[Callable[[int], None], None] | None = getattr(iterator, _WATCHED, None)
    if told is not None:
        told[waited] = None
        return
    own, told = iterator._get_iterator, {waited: None}
    setattr(iterator, _WATCHED, told)

    def tell(nanoseconds: int) -> None:
        for each in told:
            each(nanoseconds)

    iterator._get_iterator = lambda: Timed(own(), tell, first)


class Timed:
    """Batches, each of whose fetches is timed. Whatever the fetch raises passes through."""

    def __init__(self, batches: Any, waited: Callable[[int], None], first: Callable[[Any], None] | None) -> None:
        self._batches = batches
        self._waited = waited
        self._first = first
        self._iterator: Iterator[Any] | None = None

    def __iter__(self) -> Timed:
        began = monotonic_ns()  # the workers of a loader start here
        self._iterator = iter(self._batches)
        self._waited(monotonic_ns() - began)
        return self

    def __next__(self) -> Any:
        assert self._iterator is not None
        began = monotonic_ns()
        try:
            batch = next(self._iterator)
        finally:
            self._waited(monotonic_ns() - began)
        if self._first is not None:
            first, self._first = self._first, None
            first(batch)
        return batch
