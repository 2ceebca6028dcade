"""Counters of use, from each tick into the ring: who reads them needs no state of its own, and loses nothing."""

from __future__ import annotations

from collections.abc import Callable

from gpumon.analysis.holders import HolderWatch
from gpumon.model.frame import Tick
from gpumon.ring.layout import Layout
from gpumon.ring.sums import SumPlace, read_sums, write_sums
from gpumon.ring.writer import RingWriter
from gpumon.storage.usage.counters import UseMeter


class UseCounter:
    """Follows every tick. `writer` gives the ring that is written now, with the sums of the one before it.

    `holders` judges the ticks, maybe for others too.
    """

    name = "use"
    writes = "counters of use"

    def __init__(self, writer: Callable[[], RingWriter | None], holders: HolderWatch | None = None) -> None:
        self._writer = writer
        self._holders = holders or HolderWatch()
        self._meter: UseMeter | None = None
        self._problem = ""
        self._layout: Layout | None = None
        """Of the ring that `_place` is in."""
        self._place = SumPlace(0, 0)

    @property
    def problem(self) -> str:
        return self._problem

    def add(self, tick: Tick) -> None:
        writer = self._writer()
        if writer is None:
            return
        layout = writer.layout
        if layout is not self._layout:
            self._layout, self._place = layout, SumPlace.of(layout)
        fd, place = writer.fd, self._place
        if not place.room:
            return
        if self._meter is None:
            self._meter = UseMeter(read_sums(fd, layout), tick.time_ns, place.room, self._holders)
        if not self._meter.add(tick):
            return
        number, names, times, rows = self._meter.record()
        try:
            write_sums(fd, place, number, names, times, rows)
            self._problem = ""
        except OSError as error:
            self._problem = f"counters of use cannot be stored: {error.strerror or error}"

    def close(self) -> None:
        """Leave the ring as it is: the daemon that comes next goes on from its sums."""
