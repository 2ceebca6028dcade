"""Reads a tree through the source, at moments that the test names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from gpumon.common.numbers import is_known
from gpumon.model.frame import Sample
from gpumon.model.metrics import FROM_DRIVERS, GPU_METRICS, Availability
from gpumon.sources.base import ProcessInfo, Reading
from gpumon.sources.drm import METRICS, DrmSource
from tests.drm.trees import Card, Tree
from tests.fakes import FakeClock, Inline


class Machine:
    """A tree, and a source that reads it."""

    def __init__(self, root: Path, cards: Sequence[Card], describe: Callable[[int], ProcessInfo] | None = None) -> None:
        self.tree = Tree(root, cards)
        self.clock = FakeClock()
        self._describe = describe or (lambda pid: ProcessInfo())
        self.t = 0.0
        self.reopen()

    def reopen(self) -> None:
        """A new source on the tree as it is."""
        self.source = DrmSource(self.clock, self._describe, executor=Inline(), root=str(self.tree.root))

    def reading(self, t: float | None = None) -> Reading:
        """What a read at `t` seconds gives; without it, now."""
        if t is not None:
            self.clock.advance(t - self.t)
            self.t = t
            self.tree.write(t)
        (reading,) = self.source.read()
        for sample in reading.samples:
            check(sample)
        return reading

    def read(self, t: float | None = None) -> list[Sample]:
        return list(self.reading(t).samples)

    def one(self, t: float | None = None) -> Sample:
        """The only card."""
        (sample,) = self.read(t)
        return sample


def check(sample: Sample) -> None:
    """Each metric has a value within its bounds, or else a reason."""
    for metric in GPU_METRICS:
        value = sample.value(metric.name)
        if is_known(value):
            assert metric.name in METRICS
            assert metric.name not in sample.device.missing
            assert -200 < value <= metric.maximum
        elif metric.name in FROM_DRIVERS and sample.state is Availability.OK:
            assert metric.name in sample.device.missing


def known(sample: Sample) -> dict[str, float]:
    """The values that a sample has, by key."""
    pairs = zip(GPU_METRICS, sample.values, strict=True)
    return {metric.key: value for metric, value in pairs if is_known(value)}
