"""A training to be timed by `callbacks`: it trains on a loader, which notes the time of each fetch.

From one fetch to the next is a step with all its hooks; from the last of an epoch to the first of the next is what
an epoch adds. So nothing of a framework is replaced, and its start and end are not in the figures. Boosted trees and
searches fetch nothing: there an objective or a fit notes the times, and a step is a round or a fit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

EPOCHS, STEPS = 3, 100
"""Of a block. What an epoch's end leaves in the caches must not reach the median step."""
EMPTY, TWO_CLOCKS = "an empty callback", "a generator, two clock readings"
"""The floors: what any callback of the framework's own class costs, and what it takes to measure a wait at all."""


class Loader:
    """The same batches in each epoch, with the time of each fetch on both clocks (ns)."""

    batch_size = None
    dataset = ()

    def __init__(self, batches: list[Any], work: Callable[[], object] | None = None) -> None:
        self.batches = batches
        self.work = work
        self.epochs: list[list[tuple[int, int]]] = []
        self.away: list[float] = []
        """CPU µs from each batch to the request for the next, without its work; only with work."""
        self._left = 0

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        fetched: list[tuple[int, int]] = []
        self.epochs.append(fetched)
        for batch in self.batches:
            fetched.append(self._fetch())
            yield batch

    def come_by(self) -> None:
        """Note a round of a training that fetches nothing."""
        if not self.epochs or len(self.epochs[-1]) == len(self.batches):
            self.epochs.append([])
        self.epochs[-1].append(self._fetch())

    def _fetch(self) -> tuple[int, int]:
        if self.work:
            if self._left:
                self.away.append((time.process_time_ns() - self._left) / 1000)
            self.work()
            self._left = time.process_time_ns()
        return time.process_time_ns(), time.perf_counter_ns()

    def steps(self, clock: int) -> list[float]:
        """µs from fetch to fetch within epochs; the first epoch warms up where there are more."""
        counted = self.epochs[1:] or self.epochs
        return [(b[clock] - a[clock]) / 1000 for epoch in counted for a, b in pairwise(epoch)]

    def turns(self, clock: int) -> list[float]:
        """µs from the last fetch of an epoch to the first of the next."""
        pairs = zip(self.epochs[1:], self.epochs[2:], strict=False)
        return [(after[0][clock] - before[-1][clock]) / 1000 for before, after in pairs]


Train = Callable[[str, Loader, int], None]
"""Trains with a callback, by its name ('': none), on a loader, for so many epochs."""


class Case(NamedTuple):
    """A training that is ready."""

    train: Train
    names: list[str]
    """Of the callbacks to compare; the first is gpumon's."""
    batches: list[Any]
    """Of an epoch; where nothing is fetched, as many things as it has steps."""


def batches() -> list[Any]:
    """Random pairs for a layer of 16 to 1 in torch."""
    import torch

    return [(torch.randn(8, 16), torch.randn(8, 1)) for _ in range(STEPS)]


def table() -> tuple[Any, Any]:
    """A small table for trees, in numpy."""
    import numpy as np

    x = np.random.default_rng(1).normal(size=(200, 4))
    return x, x.sum(axis=1)
