"""A view that samples by itself opens its ledger with the first run, and misses nothing of that."""

from __future__ import annotations

from collections.abc import Collection

from gpumon.common.clock import SECOND
from gpumon.daemon.followers import LazyLedger
from gpumon.model.frame import Tick
from tests.builders import run, tick


class Noted:
    """A ledger that notes its ticks."""

    name, writes, problem = "ledger", "runs", "the disk is full"

    def __init__(self) -> None:
        self.ticks: list[Tick] = []
        self.is_closed = False

    def add(self, tick: Tick) -> None:
        self.ticks.append(tick)

    def close(self) -> None:
        self.is_closed = True


def test_nothing_is_opened_without_a_run_and_the_ticks_before_the_first_come_with_it() -> None:
    made: list[Noted] = []

    def make(keys: Collection[str]) -> Noted:
        assert [*keys] == [run().key]
        made.append(Noted())
        return made[-1]

    awaited = LazyLedger(make)
    without = [tick(second) for second in range(20)]
    for one in without:
        awaited.add(one)
    assert not made
    assert awaited.problem == ""
    awaited.close()
    first = [tick(20, runs=[run()]), tick(21)]
    for one in first:
        awaited.add(one)
    (ledger,) = made
    assert ledger.ticks[-2:] == first
    assert 3 <= len(ledger.ticks) < len(without)
    assert [one.monotonic_ns for one in ledger.ticks] == sorted(one.monotonic_ns for one in ledger.ticks)
    assert ledger.ticks[-2].monotonic_ns - ledger.ticks[-3].monotonic_ns == SECOND
    assert awaited.problem == "the disk is full"
    awaited.close()
    assert ledger.is_closed
