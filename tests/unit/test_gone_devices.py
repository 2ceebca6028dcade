"""What a daemon keeps of devices that are gone, as MIG instances that were destroyed: nothing, after a while."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from gpumon.analysis.holders import HolderWatch
from gpumon.common.clock import SECOND
from gpumon.model.device import Device
from gpumon.model.frame import Sample, Tick
from gpumon.storage.events.log import EventBook
from gpumon.storage.history.tier_aggregator import Aggregator, values_from_tick
from gpumon.storage.ledger.device import RecentSamples
from gpumon.storage.ledger.recorder import LedgerRecorder
from tests.builders import device, run, sample, tick
from tests.unit.test_ledger_recorder import Memory

MINUTES = 40
EACH = 30
"""Seconds for which an instance is there."""


def instance(number: int) -> Sample:
    """A MIG instance that is idle, or at work, as its number says."""
    whole = device(0).uuid
    made = Device(f"MIG-{number:08d}", 0, "NVIDIA H100", parent=whole, instance=0)
    work = {"utilization": 0.0 if number % 2 else 0.5, "throttled_hw_thermal": float(number)}
    return sample(0, **work, energy=1000.0 * number)._replace(device=made)


def ticks() -> Iterator[Tick]:
    for second in range(0, 60 * MINUTES, 2):
        samples = [sample(0, utilization=0.5, energy=float(second)), instance(second // EACH)]
        yield tick(second, samples, interval_ns=2 * SECOND)


def named(of: object) -> set[str]:
    """The instances that an object holds by name, wherever."""
    found, seen, left = set[str](), set[int](), [of]
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, type) or callable(one):
            continue
        seen.add(id(one))
        if isinstance(one, str) and one.startswith("MIG-"):
            found.add(one)
        left += gc.get_referents(one)
    return found


def test_the_ledger_forgets_samples_of_devices_that_are_gone() -> None:
    recorder = LedgerRecorder(Memory())
    for one in ticks():
        recorder.add(one)
    before, last = (instance(60 * MINUTES // EACH - back).device.uuid for back in (2, 1))
    assert {last} <= named(recorder) <= {before, last}
    recorder.close()


@pytest.mark.parametrize("busy", [False, True])
def test_the_ledger_remembers_a_device_for_as_long_as_a_run_may_need_its_samples(busy: bool) -> None:
    recorder = LedgerRecorder(Memory())
    for second in range(40):
        samples = [sample(0, utilization=0.5), *([sample(1, utilization=0.5)] if second < 10 else [])]
        of = run(gpus=(device(0).uuid,))
        new = {device(1).uuid: [(second * SECOND, 0.5)]} if busy and second < 10 else {}
        recorder.add(tick(second, samples, runs=[of], utilization_samples=new))
        assert (device(1).uuid in recorder._recent) == (second <= 39)
    recorder.add(tick(40, [sample(0, utilization=0.5)]))
    assert device(1).uuid not in recorder._recent
    recorder.close()


def test_samples_of_a_device_are_bounded_at_any_rate() -> None:
    recent = RecentSamples()
    recorder = LedgerRecorder(Memory())
    for number in range(2000):
        at = number * SECOND // 100
        recorder.add(tick(0, [sample(0)], runs=[run()], monotonic_ns=at, time_ns=at, interval_ns=SECOND // 100))
    assert len(recorder._recent[device(0).uuid].samples) == recent.samples.maxlen
    recorder.close()


def test_history_follows_no_device_that_is_gone_for_ten_minutes() -> None:
    aggregator = Aggregator(lambda block: None)
    most = 0
    for one in ticks():
        aggregator.add(values_from_tick(one))
        most = max(most, len(aggregator._subjects))
    in_three_blocks = 3 * 300 // EACH + 1
    assert most <= in_three_blocks + 2, "the machine, its GPU and those of the last ten to fifteen minutes"


def test_history_of_a_device_that_was_gone_for_some_seconds_goes_on_with_its_counters() -> None:
    aggregator = Aggregator(lambda block: None)
    for second in range(1, 700):
        there = [sample(0, energy=1000.0 * second), sample(1, energy=1000.0 * second)]
        aggregator.add(values_from_tick(tick(second, there[:1] if second % 300 == 0 else there)))
    assert {device(0).uuid, device(1).uuid} <= aggregator._subjects.keys()


def test_events_and_the_judgment_of_devices_forget_those_that_are_gone() -> None:
    holders, book = HolderWatch(), EventBook()
    for one in ticks():
        judged = holders.judged(one)
        book.add(one, judged)
        book.drain()
        assert len(named(holders)) <= 2
        assert len(named(book._devices)) <= 3
