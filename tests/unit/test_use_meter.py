"""Counters of use: exact against ticks that a test has made, over gaps, restarts and rings that are replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from math import nan
from pathlib import Path

import pytest

from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.holders import HolderWatch
from gpumon.common.clock import SECOND
from gpumon.daemon.recorder import UsageCounters
from gpumon.model.frame import Sample, Tick, XidEvent
from gpumon.model.metrics import Availability
from gpumon.model.process import Process
from gpumon.ring.reader import RingReader
from gpumon.ring.sums import Sums, SumTable
from gpumon.ring.takeover import SUMS_ROOM, plan_layout
from gpumon.ring.writer import RingWriter
from gpumon.storage.usage import counters as meter_module
from gpumon.storage.usage.account import DeviceUse
from gpumon.storage.usage.counters import UseMeter
from gpumon.storage.usage.hours import AccountBook, DeviceHourKey
from gpumon.storage.usage.running_sums import Totals, totals_from_sums
from tests.builders import TIME, device, process, sample, tick

GIB = 2.0**30
UUID = device().uuid


def on(utilization: float = 0.9, energy: float = nan, index: int = 0, **values: float) -> Sample:
    return sample(index, utilization=utilization, energy=energy, memory_used=8 * GIB, memory_total=80 * GIB, **values)


def free(index: int = 0) -> Sample:
    return sample(index, utilization=0.0, memory_used=0.0, memory_total=80 * GIB)


def sums_of(meter: UseMeter) -> Sums:
    """The record of a meter as a reader of the ring gets it."""
    number, names, times, rows = meter.record()
    values = [tuple(row) for row in rows]
    tables, at = {}, 0
    for name, (columns, keys) in names.tables.items():
        flat = [value for row in values for value in row][at : at + len(columns) * len(keys)]
        at += len(flat)
        tables[name] = SumTable(
            columns,
            {key: tuple(flat[i * len(columns) : (i + 1) * len(columns)]) for i, key in enumerate(keys)},
        )
    return Sums(number, times.monotonic_ns, times.time_ns, times.since_ns, times.dropped, tables)


def totals(meter: UseMeter) -> Totals:
    return totals_from_sums(sums_of(meter))


def metered(ticks: Sequence[Tick], earlier: Sums | None = None) -> UseMeter:
    meter = UseMeter(earlier, TIME, SUMS_ROOM)
    for one in ticks:
        meter.add(one)
    return meter


def each_second(last: int, make: Callable[[int], tuple[Sequence[Sample], Sequence[Process]]]) -> list[Tick]:
    made = [make(second) for second in range(last + 1)]
    return [tick(second, samples, processes) for second, (samples, processes) in enumerate(made, 1)]


def a_day_of_work() -> list[Tick]:
    """A GPU that two users share, that hangs for a while, is idle, then free; and a time without samples."""
    ticks = []
    for second in [*range(301), *range(360, 400)]:
        one = on(0.8 if second < 100 else 0.0, 300.0 * second) if second < 300 else free()
        one = one._replace(state=Availability.STALE if 40 <= second < 60 else Availability.OK)
        both = [process(1, sm_utilization=0.6), process(2, user="bob", sm_utilization=0.2)]
        ticks.append(tick(second + 1, [one], both if second < 300 else []))
    return ticks


def test_sums_are_those_of_accounts() -> None:
    """The rules of accounts are tested in `test_accounting`."""
    book, holders = AccountBook(lambda begin, end: [(0, (end - begin) / SECOND)]), HolderWatch()
    for one in a_day_of_work():
        book.add(one, holders.judged(one))
    found = totals(metered(a_day_of_work()))
    assert found.devices[UUID].use == DeviceUse(*book.devices[DeviceHourKey(0, UUID)])
    assert {user: account[1:] for (_, user), account in found.users.items()} == {
        key.user: tuple(sums) for key, sums in book.users.items()
    }
    assert found.devices[UUID].use.held == 280
    assert found.users[UUID, "bob"].busy == pytest.approx(0.25 * found.devices[UUID].use.busy)
    assert (found.since, found.dropped, found.monotonic_ns) == (TIME / SECOND, 0, 400 * SECOND)


def test_utilization_is_summed_where_it_is_known() -> None:
    found = totals(metered(a_day_of_work())).devices[UUID]
    assert (found.now.utilized, found.now.measured) == pytest.approx((0.8 * 80, 300 - 20 + 39))
    one = totals(metered(each_second(10, lambda _: ([on(nan, power=nan)], [process()])))).devices[UUID]
    assert (one.now.measured, one.now.utilized, one.use.metered, one.use.observed) == (0, 0, 0, 10)


@pytest.mark.parametrize(
    ("second", "state", "idle"), [(50, GpuState.BUSY, nan), (299, GpuState.HELD, 199.0), (340, GpuState.FREE, 239.0)]
)
def test_the_state_is_that_of_the_last_tick(second: int, state: GpuState, idle: float) -> None:
    def made(at: int) -> tuple[Sequence[Sample], Sequence[Process]]:
        return ([on(0.8 if at < 100 else 0.0)], [process()]) if at < 300 else ([free()], [])

    found = totals(metered(each_second(second, made))).devices[UUID]
    assert found.state is state
    assert found.now.idle == pytest.approx(idle, abs=1, nan_ok=True)


def test_the_next_daemon_goes_on_from_the_sums_of_the_last() -> None:
    first = metered(each_second(100, lambda s: ([on(0.8, 300.0 * s)], [process()])))
    later = [one._replace(monotonic_ns=one.monotonic_ns + 500 * SECOND, time_ns=one.time_ns + 500 * SECOND)
             for one in each_second(10, lambda s: ([on(0.8, 300.0 * (s + 600))], [process()]))]  # fmt: skip
    second = UseMeter(sums_of(first), 0, SUMS_ROOM)
    assert totals(second).users == {}, "no tick yet: the record has no names"
    for one in later:
        second.add(one)
    found = totals(second)
    assert found.devices[UUID].use.observed == 110
    assert found.devices[UUID].now.utilized == pytest.approx(88)
    assert found.users[UUID, "alice"].held == 110
    assert found.users[UUID, "alice"].energy == 33_000
    assert found.since == TIME / SECOND


def test_the_sums_know_since_when_a_user_is_on_a_gpu_until_the_machine_is_started_anew() -> None:
    ticks = each_second(30, lambda s: ([on()], [process(user="ada"), *([process(2, user="bob")] if s > 10 else ())]))
    meter = metered(ticks)
    assert totals(meter).ages == {(UUID, "ada"): 29, (UUID, "bob"): 18}
    next_one = metered([ticks[-1]._replace(monotonic_ns=60 * SECOND, time_ns=TIME + 60 * SECOND)], sums_of(meter))
    assert totals(next_one).ages == {(UUID, "ada"): 58, (UUID, "bob"): 47}
    of_next_boot = ticks[-1]._replace(monotonic_ns=25 * SECOND, time_ns=TIME + 90 * SECOND)
    assert totals(metered([of_next_boot], sums_of(meter))).ages == {}, "they are none of a new user"


def test_a_user_is_told_as_idle_since_they_hold_a_gpu_and_not_since_it_was_free() -> None:
    def made(second: int) -> tuple[Sequence[Sample], Sequence[Process]]:
        if second < 3600:
            return [free()], []
        bob = [process(2, user="bob")] if second >= 3700 else []
        return [on(0.0)], [process(), *bob]

    ticks = each_second(3900, made)
    meter = metered(ticks[:3600])
    assert totals(meter).idle == {}
    for one in ticks[3600:3700]:
        meter.add(one)
    assert totals(meter).idle == {(UUID, "alice"): pytest.approx(99, abs=1)}
    assert totals(meter).devices[UUID].now.idle > 3600, "the GPU itself has done nothing for longer"
    for one in ticks[3700:]:
        meter.add(one)
    assert totals(meter).idle == {(UUID, "alice"): 300, (UUID, "bob"): 200}
    meter.add(each_second(3901, lambda s: ([on(0.0)], [process(2, user="bob")]))[-1])
    assert totals(meter).idle == {(UUID, "bob"): 201}, "who has gone holds nothing"
    meter.add(each_second(3902, lambda s: ([on(0.9)], [process(2, user="bob")]))[-1])
    assert totals(meter).idle == {}, "it works"


def test_ticks_that_the_sums_have_are_not_counted_again() -> None:
    event = XidEvent(UUID, 79, SECOND, TIME + 50 * SECOND)
    ticks = each_second(600, lambda s: ([on(0.8, 300.0 * s)], [process()]))
    ticks[50] = ticks[50]._replace(xids=[event])
    kept = sums_of(metered(ticks))
    again = UseMeter(kept, 0, SUMS_ROOM)
    assert not any(again.add(one) for one in ticks), "as a simulation tells them to the daemon that comes next"
    later = each_second(620, lambda s: ([on(0.8, 300.0 * s)], [process()]))[601:]
    assert all(again.add(one) for one in later)
    found = totals(again)
    assert found.devices[UUID].use.observed == 600 + 19, "the second in which nobody was is not known"
    assert found.users[UUID, "alice"].held == 619
    assert found.xids[UUID, 79].errors == 1
    rebooted = UseMeter(kept, 0, SUMS_ROOM)
    assert rebooted.add(ticks[0]._replace(time_ns=TIME + 7000 * SECOND)), "its steady clock begins anew"


def test_a_daemon_that_comes_next_leaves_the_sums_until_it_counts(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    ticks = each_second(60, lambda s: ([on(0.5, 100.0 * s)], [process()]))
    counter, ring = follower(path)
    for one in ticks:
        ring.append(one)
        counter.add(one)
    ring.close()
    for last in (30, 61):
        counter, ring = follower(path)
        for one in ticks[:last]:
            counter.add(one)
        ring.close()
        found = read(path)
        assert found is not None
        assert found.devices[UUID].use.observed == 60


def test_xid_errors_are_counted_by_code_over_restarts() -> None:
    events = [XidEvent(UUID, code, SECOND, TIME + at * SECOND) for code, at in ((79, 5), (31, 6), (79, 7))]
    ticks = each_second(3, lambda _: ([free()], []))
    first = metered([ticks[0], ticks[1]._replace(xids=events[:2]), ticks[2]])
    found = totals(metered([ticks[3]._replace(xids=events[2:])], sums_of(first))).xids
    assert found[UUID, 79] == (2, (TIME + 7 * SECOND) / SECOND)
    assert found[UUID, 31] == (1, (TIME + 6 * SECOND) / SECOND)


def test_users_beyond_the_limit_are_counted_and_those_who_hold_nothing_go_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(meter_module, "MAX_USERS", 3)
    names = [f"user{n}" for n in range(6)]
    ticks = each_second(60, lambda s: ([on()], [process(100 + s // 10, user=names[min(s // 10, 5)])]))
    meter = metered(ticks)
    found = totals(meter)
    assert len(found.users) == 3
    assert (UUID, "user5") in found.users
    assert found.dropped == 3
    crowd = [process(200 + n, user=f"crowd{n}") for n in range(5)]
    for one in ticks:
        meter.add(one._replace(monotonic_ns=one.monotonic_ns + 61 * SECOND, time_ns=one.time_ns + 61 * SECOND,
                               processes=crowd))  # fmt: skip
    found = totals(meter)
    assert {user for _, user in found.users} == {"crowd0", "crowd1", "crowd2"}, "who came first stays"
    assert found.users[UUID, "crowd0"].held == pytest.approx(60, abs=1)
    assert found.dropped == 3 + 3 + 2, "each refused user counts once, however long it stays"


def test_devices_with_long_names_leave_no_record_that_is_too_large(tmp_path: Path) -> None:
    crowd = [process(n, user=f"{n:03}" + "x" * 300) for n in range(200)]
    meter = UseMeter(None, TIME, room := 16 * 1024)
    for one in each_second(3, lambda _: ([on()], crowd)):
        meter.add(one)
    _, names, _, _ = meter.record()
    assert names.size <= room
    assert totals(meter).dropped > 0


def follower(path: Path, continues: str | None = "nvml") -> tuple[UsageCounters, RingWriter]:
    ring = RingWriter.create(str(path), 1, SECOND, continues=continues)
    return UsageCounters(lambda: ring), ring


def read(path: Path) -> Totals | None:
    with closing(RingReader.open(str(path))) as reader:
        sums = reader.sums()
    return totals_from_sums(sums) if sums else None


def test_counters_lie_in_the_ring_and_outlive_its_daemon(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    ticks = each_second(60, lambda s: ([on(0.5, 100.0 * s)], [process()]))
    counter, ring = follower(path)
    for one in ticks[:31]:
        ring.append(one)
        counter.add(one)
    found = read(path)
    assert found is not None
    assert found.devices[UUID].use.observed == 30
    ring.close()  # killed: nothing is said
    counter, ring = follower(path)
    for one in ticks[31:]:
        ring.append(one)
        counter.add(one)
    found = read(path)
    assert found is not None
    assert found.devices[UUID].use.observed == 59, "what nobody sampled is not made up"
    assert found.users[UUID, "alice"].energy == 5900
    ring.close()


def test_counters_of_another_source_begin_at_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    counter, ring = follower(path)
    for one in each_second(5, lambda _: ([on()], [process()])):
        ring.append(one)
        counter.add(one)
    ring.close()
    _, ring = follower(path, continues=None)
    assert read(path) is None
    ring.close()


def test_a_ring_without_a_place_for_sums_is_left_alone(tmp_path: Path) -> None:
    ring = RingWriter.create(str(tmp_path / "ring"), 1, SECOND)
    ring.layout = ring.layout._replace(sums=0)
    counter = UsageCounters(lambda: ring)
    counter.add(tick())
    assert counter.problem == ""
    assert read(tmp_path / "ring") is None
    ring.close()


def test_a_full_disk_is_told_and_stops_nothing(tmp_path: Path) -> None:
    ring = RingWriter.create(str(tmp_path / "ring"), 1, SECOND)
    counter = UsageCounters(lambda: ring)
    counter.add(tick(1))
    ring.layout = plan_layout(1, 8)._replace(sums=64)
    counter.add(tick(2))
    assert counter.problem == "usage counters cannot be stored: No space left on device"
    ring.close()
