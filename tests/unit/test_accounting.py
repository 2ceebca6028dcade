"""Accounts of users: their sums against a truth that is known, and everything that was not seen."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from gpumon.analysis.holders import HolderWatch
from gpumon.common.clock import SECOND
from gpumon.daemon.followers import ActivityRecorder
from gpumon.model.frame import RunState, Sample, Tick
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.process import Process
from gpumon.reports.usage import lines
from gpumon.storage.history.schema import TABLES
from gpumon.storage.usage.account import Account, DeviceUse
from gpumon.storage.usage.hours import AccountBook
from gpumon.storage.usage.period_totals import summary
from gpumon.storage.usage.query import StoredAccounts, by_user, group_hours, read_accounts, total, unattributed
from tests.activity import keep
from tests.builders import device, process, run, sample, tick

HOUR = 3600
MIDNIGHT = 1_790_035_200
"""A border of a day and of an hour, seconds since 1970, UTC."""
GIB = 2.0**30


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "history.sqlite"


def at(seconds: float, samples: Sequence[Sample], *, up: float | None = None, **fields: Any) -> Tick:
    """The tick `seconds` after midnight, `up` seconds after the boot."""
    steady = 10_000 + seconds if up is None else up
    return tick(
        samples=samples, time_ns=round((MIDNIGHT + seconds) * SECOND), monotonic_ns=round(steady * SECOND), **fields
    )


def busy(energy: float = nan, index: int = 0, **values: float) -> Sample:
    return sample(index, utilization=0.9, energy=energy, memory_used=8 * GIB, memory_total=80 * GIB, **values)


def idle(energy: float = nan, index: int = 0, used: float = 8.0, **values: float) -> Sample:
    return sample(index, utilization=0.0, energy=energy, memory_used=used * GIB, memory_total=80 * GIB, **values)


def kept(path: Path, ticks: Iterable[Tick]) -> StoredAccounts:
    """What one daemon keeps of these ticks."""
    keep(path, ticks)
    return read_accounts(str(path))


def of(found: StoredAccounts, user: str) -> Account:
    return next((one for one in by_user(found.hours) if one.user == user), Account(user))


def seconds(first: int, last: int, make: Callable[[int], tuple[Sequence[Sample], Sequence[Process]]]) -> Iterable[Tick]:
    for second in range(first, last):
        samples, processes = make(second)
        yield at(second, samples, processes=processes)


def test_who_is_alone_on_a_gpu_has_all_its_time_and_its_energy(path: Path) -> None:
    found = kept(path, seconds(0, 101, lambda s: ([busy(energy=300.0 * s)], [process()])))
    assert by_user(found.hours) == [Account("alice", 100, 100, 100, 0, 100, 30_000)]
    use = total(found.hours)
    assert use == DeviceUse(observed=100, identified=100, judged=100, held=100, busy=100, metered=100, energy=30_000)
    assert unattributed(use, by_user(found.hours)) == Account("")
    assert [(one.uuid, one.number, one.name) for one in found.devices] == [(device().uuid, 0, "NVIDIA H100")]


def test_users_of_one_gpu_hold_it_the_whole_time_and_share_the_rest_by_kernel_time(path: Path) -> None:
    both = [process(1, sm_utilization=0.6), process(2, sm_utilization=0.1), process(3, user="bob", sm_utilization=0.1)]
    found = kept(path, seconds(0, 101, lambda s: ([busy(energy=100.0 * s)], both)))
    alice, bob = by_user(found.hours)
    assert (alice.held, bob.held) == (100, 100)
    assert (alice.busy, bob.busy) == pytest.approx((87.5, 12.5))
    assert (alice.energy, bob.energy) == pytest.approx((8750, 1250))


def test_where_the_driver_does_not_tell_the_parts_of_users_nobody_has_one(path: Path) -> None:
    both = [process(1, sm_utilization=0.6), process(2, user="bob", sm_utilization=nan)]
    found = kept(path, seconds(0, 101, lambda s: ([busy(energy=100.0 * s)], both)))
    alice, bob = by_user(found.hours)
    assert alice == bob._replace(user="alice") == Account("alice", held=100)
    rest = unattributed(total(found.hours), [alice, bob])
    assert (rest.busy, rest.energy) == (100, 10_000)
    (group,) = summary(found, found.hours[0].begin, found.hours[0].begin + HOUR, "user")
    rows = [cells.split() for cells in lines([group], "user")]
    assert not any(row[0] == "(unknown)" and "min" in row for row in rows), "nobody unknown held it"
    assert sum(row[:2] == ["(not", "divided)"] for row in rows) == 1


def test_a_counter_without_end_is_no_energy_and_leaves_a_stretch_as_it_is(path: Path) -> None:
    def at_second(second: int) -> tuple[Sequence[Sample], Sequence[Process]]:
        return [busy(energy=inf if second == 50 else 100.0 * second)], [process()]

    found = kept(path, seconds(0, 101, at_second))
    assert by_user(found.hours) == [Account("alice", 100, 100, 100, 0, 100, 10_000)]
    assert total(found.hours)[:8] == (100, 100, 100, 100, 100, 0, 100, 10_000)


def test_a_gpu_that_changes_hands_within_an_hour_is_each_ones_for_their_own_time(path: Path) -> None:
    def at_second(second: int) -> tuple[Sequence[Sample], Sequence[Process]]:
        here = [process(1, user="alice" if second % 20 < 10 else "bob")]
        return [busy(energy=100.0 * second), idle(index=1, used=0.0, energy=50.0 * second)], here

    found = kept(path, seconds(0, 101, at_second))
    assert [(one.user, one.held, one.energy) for one in by_user(found.hours)] == [
        ("alice", 50, 5000),
        ("bob", 50, 5000),
    ]
    use = total(found.hours)
    assert (use.observed, use.free, use.energy, use.free_energy) == (200, 100, 15_000, 5000)


def test_a_gpu_is_held_and_idle_after_a_minute_as_every_view_says(path: Path) -> None:
    found = kept(path, seconds(0, 1001, lambda s: ([busy() if s <= 100 else idle()], [process()])))
    (alice,) = by_user(found.hours)
    assert (alice.held, alice.judged) == (1000, 1000)
    assert (alice.busy, alice.idle_held) == pytest.approx((160, 840), abs=1), "a minute is a pause"


def test_a_run_holds_what_it_claims_though_its_process_is_hidden(path: Path) -> None:
    claim = run(gpus=(device().uuid,), user="carol")
    over = claim._replace(state=RunState.FINISHED)
    ticks = [at(s, [idle(power=50.0)], runs=[claim if s < 50 else over]) for s in range(101)]
    found = kept(path, ticks)
    assert of(found, "carol").held == of(found, "").held == 50, "the memory is still in use by somebody"
    assert of(found, "carol").energy == 2500
    use = total(found.hours)
    assert (use.held, use.identified, use.energy) == (100, 50, 5000)


def test_a_process_list_that_cannot_be_read_leaves_holders_unknown(path: Path) -> None:
    hidden = [busy(energy=s * 10.0) for s in range(11)]
    hidden = [one._replace(device=device(missing={PROCESSES: Availability.NO_PERMISSION})) for one in hidden]
    found = kept(path, [at(s, [one]) for s, one in enumerate(hidden)])
    assert by_user(found.hours) == [Account("", held=10)]
    assert total(found.hours).identified == 0
    assert unattributed(total(found.hours), by_user(found.hours)).energy == 100


def test_a_free_gpu_is_nobodys_and_its_energy_too(path: Path) -> None:
    found = kept(path, seconds(0, 101, lambda s: ([idle(energy=50.0 * s, used=0.0)], [])))
    assert by_user(found.hours) == []
    use = total(found.hours)
    assert (use.observed, use.identified, use.held, use.busy, use.free) == (100, 100, 0, 0, 100)
    assert use.free_energy == use.energy == 5000
    assert unattributed(use, []) == Account("")


def test_hours_are_split_exactly_at_their_border_and_at_midnight(path: Path) -> None:
    ticks = [
        at(s + 0.25, [busy(energy=100.0 * s)], processes=[process()], interval_ns=2 * SECOND) for s in range(-20, 21, 2)
    ]
    found = kept(path, ticks)
    assert [hour.begin for hour in found.hours] == [MIDNIGHT - HOUR, MIDNIGHT]
    assert [hour.use.observed for hour in found.hours] == pytest.approx([19.75, 20.25])
    assert [hour.accounts[0].energy for hour in found.hours] == pytest.approx([1975, 2025])


def test_a_gap_counts_for_nobody(path: Path) -> None:
    watched = [*range(101), *range(500, 601)]
    found = kept(path, [at(s, [busy(energy=100.0 * s)], processes=[process()]) for s in watched])
    assert total(found.hours)[:2] == (200, 200)
    assert of(found, "alice") == Account("alice", 200, 200, 200, 0, 200, 20_000)


def test_a_machine_that_slept_and_a_clock_that_was_set_count_nothing_in_a_wrong_hour(path: Path) -> None:
    ticks = [at(s, [busy(power=100.0)], processes=[process()]) for s in range(101)]
    ticks += [at(s + 7200, [busy(power=100.0)], processes=[process()], up=10_000 + s) for s in range(101, 201)]
    ticks += [at(s - 7200, [busy(power=100.0)], processes=[process()], up=10_000 + s) for s in range(201, 301)]
    found = kept(path, ticks)
    assert [(hour.begin - MIDNIGHT) // HOUR for hour in found.hours] == [-2, 0, 2]
    assert [hour.use.observed for hour in found.hours] == [99, 100, 99]


def test_a_gpu_that_is_lost_is_not_seen_and_not_idle(path: Path) -> None:
    def found(s: int) -> Sequence[Sample]:
        if 100 <= s < 200:
            return [sample(0, Availability.LOST), busy(index=1)]
        return [busy(), busy(index=1)]

    hours = kept(path, [at(s, found(s), processes=[process(), process(2, 1)]) for s in range(301)]).hours
    assert {hour.device: hour.use.observed for hour in hours} == {device(0).uuid: 200, device(1).uuid: 300}


def test_a_gpu_whose_utilization_is_not_known_is_neither_busy_nor_idle(path: Path) -> None:
    unknown = sample(0, memory_used=8 * GIB, memory_total=80 * GIB)
    found = kept(path, [at(s, [unknown], processes=[process()]) for s in range(101)])
    assert by_user(found.hours) == [Account("alice", held=100)]
    assert total(found.hours).judged == 0


def test_energy_is_the_counters_where_there_is_one_else_that_of_power(path: Path) -> None:
    counted = kept(path, [at(s, [busy(energy=100.0 * s, power=5.0)], processes=[process()]) for s in range(11)])
    assert of(counted, "alice").energy == 1000
    reset = [busy(energy=100.0 * s if s < 6 else s, power=50.0) for s in range(11)]
    begin = HOUR
    found = kept(path, [at(begin + s, [one], processes=[process()]) for s, one in enumerate(reset)])
    assert of(found, "alice").energy - 1000 == 500 + 50 + 4, "a counter that went back is not one for this stretch"


def read_at(stamp: float, energy: float, **more: float) -> Sample:
    """A GPU whose counter was read `stamp` seconds after midnight; 300 W on average, of 690 at most."""
    taken = busy(energy=energy, power_limit=690.0, **more)
    return taken._replace(counters_monotonic_ns=round((10_000 + stamp) * SECOND))


def used(seconds: float) -> float:
    """Joules up to then: 200 W and 400 W by turns, 10 s each."""
    whole, rest = divmod(seconds, 20.0)
    return 6000 * whole + (200 * rest if rest <= 10 else 2000 + 400 * (rest - 10))


@pytest.mark.parametrize(("interval", "every"), [(1.0, 3), (0.1, 4)], ids=["3 s at 1 Hz", "0.4 s at 10 Hz"])
def test_energy_of_a_counter_that_is_read_seldom_is_all_there(path: Path, interval: float, every: int) -> None:
    """The answer is late now and then, too: the tick before it is stale, and it has a stamp of before its tick."""
    ticks, last = [], 0.0
    for number in range(round(60 / interval) + 1):
        now, is_late = number * interval, number % (4 * every) == every - 1
        if number % every == 0:
            last = now - (0.8 * interval if number % (4 * every) == 0 and number else -0.01)
        one = read_at(last, used(last))._replace(state=Availability.STALE if is_late else Availability.OK)
        ticks.append(at(now, [one], processes=[process()], interval_ns=round(interval * SECOND)))
    found = kept(path, ticks)
    alice, use = of(found, "alice"), total(found.hours)
    assert alice.energy == use.energy == pytest.approx(used(last) - used(0.01), abs=1e-3)
    late = sum(one.samples[0].state is Availability.STALE for one in ticks)
    assert use.observed == alice.held == pytest.approx(60 - late * interval)
    assert use.metered <= use.observed + 1e-9
    assert alice.metered >= alice.held - every * interval


@pytest.mark.parametrize(("first", "every"), [(-35.5, 1), (-38, 7)], ids=["at each tick", "seldom"])
def test_energy_is_split_at_midnight_however_seldom_the_counter_is_read(path: Path, first: float, every: int) -> None:
    ticks = []
    for number in range(71):
        read = first + number // every * every
        ticks.append(at(first + number, [read_at(read, 300.0 * (read + 40))], processes=[process()]))
    found = kept(path, ticks)
    assert [hour.use.energy for hour in found.hours] == pytest.approx([300 * -first, 300 * (70 + first)])
    assert [hour.accounts[0].metered for hour in found.hours] == pytest.approx([-first, 70 + first])


def test_what_was_written_before_its_energy_was_known_has_it_later() -> None:
    part, connection = ActivityRecorder(), sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(TABLES)
    for s in range(31):
        part.add(at(s, [read_at(s // 10 * 10, used(s // 10 * 10))], processes=[process()]))
        if s % 4 == 0:
            part.write(connection)
    part.write(connection)
    assert connection.execute("SELECT held, metered, energy FROM account").fetchall() == [(30, 30, used(30))]


def test_time_behind_the_last_reading_of_a_counter_is_not_metered(path: Path) -> None:
    found = kept(path, [at(s, [read_at(min(s, 6), used(min(s, 6)))], processes=[process()]) for s in range(13)])
    assert total(found.hours)[6:8] == (6, used(6))
    assert of(found, "alice")[5:] == (6, used(6))


def test_energy_that_a_gpu_used_while_it_did_not_answer_is_of_those_who_held_it_before_and_after(path: Path) -> None:
    def watched(back: str) -> StoredAccounts:
        ticks = []
        for s in range(31):
            holder, hangs = "alice" if s < 15 else back, 10 <= s < 20
            one = read_at(min(s, 9) if hangs else s, used(min(s, 9) if hangs else s))
            one = one._replace(state=Availability.STALE if hangs else Availability.OK)
            ticks.append(at(s, [one], processes=[process(user=holder)]))
        return kept(path.with_name(back) / "history.sqlite", ticks)

    same, other = watched("alice"), watched("bob")
    assert of(same, "alice").energy == total(same.hours).energy == used(30)
    assert (of(same, "alice").held, of(same, "alice").metered) == (20, 20), "of the time itself nothing is known"
    assert total(other.hours).energy == used(30)
    assert unattributed(total(other.hours), by_user(other.hours)).energy == pytest.approx(used(20) - used(10), rel=0.1)


def test_energy_of_a_long_silence_is_nobodys_and_not_counted(path: Path) -> None:
    ticks = []
    for s in range(61):
        one = read_at(s, used(s))._replace(state=Availability.STALE if 10 <= s < 50 else Availability.OK)
        ticks.append(at(s, [one], processes=[process()]))
    use = total(kept(path, ticks).hours)
    assert (use.observed, use.metered) == (20, 19), "from 9 to 10 s no reading came that ends it"
    assert use.energy == used(9) + used(60) - used(50)


def test_a_gpu_that_is_silent_for_hours_leaves_nothing_that_waits() -> None:
    book, holders = AccountBook(), HolderWatch()
    for s in range(0, 7200, 2):
        one = read_at(0, used(0))._replace(state=Availability.STALE if s > 10 else Availability.OK)
        moment = at(s, [one], processes=[process()], interval_ns=2 * SECOND)
        book.add(moment, holders.judged(moment))
        if s % 60 == 0:
            book.drain()
        assert s <= 30 or not any(meter._spans for meter in book._meters.values())


@pytest.mark.parametrize("interval", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("glitch", [2.0**62 / 1000, 8e6 + 4.29e6, 0.0, 8e6 - 1e5], ids=str)
def test_a_glitch_of_the_energy_counter_is_in_no_account_and_loses_nothing(
    glitch: float, interval: float, path: Path
) -> None:
    ticks = []
    for number in range(round(60 / interval) + 1):
        s = number * interval
        reading = read_at(s, glitch if 20 <= s < 21.6 else 8e6 + used(s))
        ticks.append(at(s, [reading], processes=[process()], interval_ns=round(interval * SECOND)))
    found = kept(path, ticks)
    assert of(found, "alice").energy == total(found.hours).energy == pytest.approx(used(60))
    assert (of(found, "alice").metered, total(found.hours).metered) == pytest.approx((60, 60))


def test_energy_of_a_part_of_a_gpu_is_not_known(path: Path) -> None:
    part = device()._replace(uuid="MIG-1234")
    samples = [busy(energy=100.0 * s, power=100.0)._replace(device=part) for s in range(11)]
    found = kept(path, [at(s, [one], processes=[process(uuid="MIG-1234")]) for s, one in enumerate(samples)])
    assert of(found, "alice") == Account("alice", 10, 10, 10)
    assert total(found.hours).metered == 0


def test_an_account_goes_on_after_a_restart_in_the_same_hour(path: Path) -> None:
    for first in (0, 200):
        found = kept(path, seconds(first, first + 101, lambda s: ([busy(energy=100.0 * s)], [process()])))
    assert of(found, "alice") == Account("alice", 200, 200, 200, 0, 200, 20_000)


def test_the_last_minute_of_a_daemon_that_was_killed_is_counted_once(path: Path) -> None:
    ticks = [at(s, [busy(500.0 * s)], processes=[process(1, user="ana")]) for s in range(401)]
    keep(path, ticks[:101], kill=True)
    rounded = [one._replace(time_ns=one.time_ns + 200) for one in ticks[:150]]
    keep(path, ticks[300:], earlier=rounded)
    found = of(read_accounts(str(path)), "ana")
    assert (found.held, found.busy, found.energy) == pytest.approx((249, 249, 500.0 * 249))


@pytest.mark.parametrize("set_by", [-3600, -20.5, 3600])
def test_the_last_minute_of_a_daemon_that_was_killed_after_the_clock_was_set_is_counted_once(
    path: Path, set_by: float
) -> None:
    ticks = [at(s, [busy(500.0 * s)], processes=[process(1, user="ana")]) for s in range(401)]
    later = [one._replace(time_ns=one.time_ns + round(set_by * SECOND)) for one in ticks[110:]]
    keep(path, ticks[:101], kill=True)
    keep(path, later[190:], earlier=[*ticks[:110], *later[:40]])
    found = of(read_accounts(str(path)), "ana")
    # Nobody has the second in which the clock was set, also where the daemon lives on.
    assert (found.held, found.energy) == pytest.approx((248, 500.0 * 248))


def test_what_could_not_be_written_is_written_later(path: Path) -> None:
    part = ActivityRecorder()
    for s in range(11):
        part.add(at(s, [busy()], processes=[process()]))
    closed = sqlite3.connect(":memory:")
    with pytest.raises(sqlite3.OperationalError):
        part.write(closed)
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(TABLES)
    part.add(at(11, [busy()], processes=[process()]))
    part.write(connection)
    part.write(connection)
    assert connection.execute("SELECT held FROM account").fetchall() == [(11,)]
    connection.close()
    closed.close()


def test_names_are_hostile_and_come_out_harmless(path: Path) -> None:
    evil = "\x1b[31m'); DROP TABLE account; --\n" + "x" * 1000
    found = kept(path, [at(s, [busy()], processes=[process(user=evil)]) for s in range(11)])
    ((user, held, *_),) = by_user(found.hours)
    assert held == 10
    assert user.isprintable()
    assert len(user) < 200


def test_only_hours_of_the_window_are_read(path: Path) -> None:
    kept(path, [at(hour * HOUR + s, [busy()], processes=[process()]) for hour in range(5) for s in range(11)])
    found = read_accounts(str(path), MIDNIGHT + HOUR, MIDNIGHT + 3 * HOUR)
    assert [hour.begin - MIDNIGHT for hour in found.hours] == [HOUR, 2 * HOUR]
    days = list(group_hours(found.hours, lambda hour: hour.begin // 86400))
    assert [(day * 86400 == MIDNIGHT, len(hours)) for day, hours in days] == [(True, 2)]


def test_the_sums_of_a_day_are_those_of_the_truth(path: Path) -> None:
    """Two users on two GPUs for 26 h in ticks of 10 s, with idle hours, a gap of 20 min and a GPU that is lost."""
    step = 10
    energy = [0.0, 0.0]

    def day() -> Iterable[Tick]:
        for s in range(0, 26 * HOUR, step):
            if 5 * HOUR <= s < 5 * HOUR + 1200:
                energy[0] += 400.0 * step  # nobody watches
                continue
            hour = s // HOUR
            first = busy(energy[0], 0) if hour % 2 == 0 else idle(energy[0], 0)
            second = sample(1, Availability.LOST) if 10 <= hour < 12 else busy(energy[1], 1)
            on = [process(1), process(2, 1, sm_utilization=0.75), process(3, 1, user="bob", sm_utilization=0.25)]
            yield at(s, [first, second], processes=on, interval_ns=step * SECOND)
            energy[0] += (400.0 if hour % 2 == 0 else 80.0) * step
            energy[1] += 200.0 * step

    found = kept(path, day())
    alice, bob = of(found, "alice"), of(found, "bob")
    watched = [26 * HOUR - 1200, 24 * HOUR - 1200]
    assert (alice.held, bob.held) == pytest.approx((sum(watched), watched[1]), rel=0.01)
    assert bob.busy == pytest.approx(watched[1] / 4, rel=0.01)
    assert alice.busy == pytest.approx(watched[1] * 0.75 + 13 * HOUR + 13 * 60, rel=0.01), "with a pause each hour"
    assert alice.idle_held == pytest.approx(13 * (HOUR - 60) - 1200, rel=0.01)
    assert bob.energy == pytest.approx(watched[1] * 50, rel=0.01)
    assert alice.energy == pytest.approx(watched[1] * 150 + 13 * HOUR * 400 + (13 * HOUR - 1200) * 80, rel=0.01)
    assert total(found.hours).observed == pytest.approx(sum(watched), rel=0.001)
    assert total(found.hours).energy == pytest.approx(alice.energy + bob.energy)
