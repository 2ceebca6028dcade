"""What the ledger keeps of hand-made ticks, whose answers are known."""

from __future__ import annotations

import gc
import json
import math
import os
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.model.frame import Boundary, Frame, FrameworkMemory, Mark, Run, RunState, Sample, Tick
from gpumon.model.metrics import Availability
from gpumon.model.origin import SIMULATED, Origin
from gpumon.ring.reader import RingReader
from gpumon.ring.writer import RingWriter
from gpumon.storage.ledger.recorder import BatchWriter, LedgerRecorder
from gpumon.storage.ledger.row_keys import OUTSIDE_EPOCHS, WHOLE_RUN
from gpumon.storage.ledger.writer import Batch, LateMetrics, LedgerRow, LedgerWriter, OpenRank, StoredRuns, StoredTrace
from tests.builders import TIME, device, run, sample, tick
from tests.programs import PATIENCE

KEY = run().key
GPU = device(0).uuid


class Memory:
    """A ledger that keeps its rows in a dict."""

    def __init__(self, known: StoredRuns | None = None) -> None:
        self.stored: StoredRuns | None = known or StoredRuns({}, set(), {})
        self.rows: dict[tuple[Any, ...], LedgerRow] = {}
        self.batches: list[Batch] = []
        self.closed = False

    def put(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.rows |= batch.rows

    def close(self, timeout: float = 5.0) -> bool:
        self.closed = True
        return True

    def row(self, *key: object) -> dict[str, Any]:
        return self.rows[key].values

    def all(self, table: str) -> list[dict[str, Any]]:
        return [row.values for key, row in sorted(self.rows.items(), key=str) if key[0] == table]

    def usage(self, ordinal: int, phase: str = "", uuid: str = GPU) -> dict[str, Any]:
        return self.row("usage", KEY, ordinal, phase, uuid)


class Course:
    """Makes the boundaries of a run, numbered, at given seconds."""

    def __init__(self, key: str = KEY) -> None:
        self.key = key
        self.number = 0

    def __call__(
        self,
        mark: Mark,
        at: float,
        epoch: int = 0,
        phase: str = "train",
        step: int = 0,
        wait: float = 0.0,
        **fields: Any,
    ) -> Boundary:
        self.number += 1
        moment = round(at * SECOND)
        return Boundary(self.key, self.number, mark, epoch, step, phase, moment, TIME + moment, wait)._replace(**fields)

    def epoch(self, begin: float, end: float, number: int = 0) -> list[Boundary]:
        return [self(Mark.EPOCH_BEGIN, begin, number), self(Mark.EPOCH_END, end, number, "")]

    def epochs(self, *spans: tuple[float, float]) -> list[Boundary]:
        """The begin of the run at 1 s, and epochs from 0 on."""
        found = [self(Mark.RUN_BEGIN, 1.0, -1, "")]
        for number, (begin, end) in enumerate(spans):
            found += self.epoch(begin, end, number)
        return found


def keep(
    ledger: BatchWriter, ticks: Sequence[Tick], recorder: LedgerRecorder | None = None, *, close: bool = True
) -> LedgerRecorder:  # fmt: skip
    recorder = recorder or LedgerRecorder(ledger)
    for one in ticks:
        recorder.add(one)
    if close:
        recorder.close()
    return recorder


def on(number: float, boundaries: Sequence[Boundary] = (), of: Run | None = None, **values: float) -> Tick:
    """A tick at second `number` with one device."""
    moment = round(number * SECOND)
    mine = of or run(gpus=(GPU,), started=(TIME + SECOND) / SECOND, step=0, wait=0.0)
    samples = [sample(0, Availability.OK, "", **values)]
    return tick(0, samples, runs=[mine], boundaries=boundaries, monotonic_ns=moment, time_ns=TIME + moment)


def one_epoch(begin: float, end: float) -> list[Boundary]:
    make = Course()
    return [
        make(Mark.RUN_BEGIN, 1.0, -1, ""),
        make(Mark.EPOCH_BEGIN, begin, step=5, wait=1.0),
        make(Mark.EPOCH_END, end, step=45, wait=1.5, phase="", metrics={"loss": 0.25}),
        make(Mark.RUN_END, end + 1, phase=""),
    ]


def spread(ticks: Sequence[Tick], boundaries: Sequence[Boundary]) -> list[Tick]:
    """Ticks with each boundary in the first one that is not before it; the last ones in the last."""
    left = list(boundaries)
    found = []
    for i, one in enumerate(ticks):
        due = [b for b in left if b.monotonic_ns <= one.monotonic_ns or i == len(ticks) - 1]
        left = left[len(due) :]
        found.append(one._replace(boundaries=due))
    return found


def restarted(
    before: Sequence[Tick], after: Sequence[Tick], *, in_ring: bool = True, traces: Sequence[StoredTrace] = ()
) -> Memory:
    """A ledger after a daemon was killed. `in_ring`: the next one finds the ticks that were not written in its ring."""
    first, second = Memory(), Memory()
    keep(first, before, close=False)
    progress = json.loads(first.row("progress", KEY)["state"])
    second.stored = StoredRuns({KEY: OpenRank("resnet50-1a2b", 4711, "node1", 0, progress, [*traces])}, set(), {})
    second.rows |= first.rows
    recorder = LedgerRecorder(second)
    if in_ring:
        recorder.add_earlier(frames(before))
    keep(second, after, recorder)
    return second


def frames(ticks: Sequence[Tick]) -> list[Frame]:
    """The frames of ticks, as a ring has them."""
    with closing(RingWriter.private(1, SECOND)) as writer:
        for one in ticks:
            writer.append(one)
        with closing(RingReader(os.dup(writer.fd))) as reader:
            return list(reader.since(0))


def test_an_epoch_has_the_training_own_times_steps_wait_and_numbers() -> None:
    ledger = Memory()
    keep(ledger, spread([on(n, power=100.0) for n in range(12)], one_epoch(2.25, 7.75)))
    epoch = ledger.row("epoch", KEY, 0)
    assert epoch == {
        "rank": KEY, "ordinal": 0, "epoch": 0, "begun": TIME + round(2.25 * SECOND),
        "ended": TIME + round(7.75 * SECOND), "seconds": 5.5, "steps": 40, "wait": 0.5, "metrics": '{"loss": 0.25}',
        "trained": 5.5, "wait_of": 5.5, "peak": None, "peak_reached": None,
    }  # fmt: skip
    assert ledger.row("phase", KEY, 0, "train") == {
        "rank": KEY, "ordinal": 0, "phase": "train", "seconds": 5.5, "times": 1, "steps": 40, "wait": 0.5,
        "spans": None, "place": 0, "peak": None, "peak_reached": None,
    }  # fmt: skip


@pytest.mark.parametrize("marks", [[Mark.EPOCH_ABORTED], [Mark.EPOCH_END, Mark.EPOCH_ABORTED]])
def test_an_epoch_that_was_left_is_kept_without_an_end(marks: list[Mark]) -> None:
    ledger, make = Memory(), Course()
    boundaries = [
        make(Mark.RUN_BEGIN, 1.0, -1, ""),
        make(Mark.EPOCH_BEGIN, 2.0, 0),
        make(Mark.EPOCH_END, 4.0, 0, "", metrics={"loss": 0.5}),
        make(Mark.EPOCH_BEGIN, 4.0, 1),
        *(make(mark, 7.0, 1, "", metrics={"loss": 0.25}) for mark in marks),
        make(Mark.RUN_END, 9.0, 1, ""),
    ]
    keep(ledger, spread([on(second) for second in range(1, 12)], boundaries))
    first, second = ledger.all("epoch")
    assert (first["ended"], first["seconds"]) == (TIME + 4 * SECOND, 2.0)
    assert (second["ended"], second["seconds"], second["metrics"]) == (None, 3.0, '{"loss": 0.25}')


def test_energy_is_interpolated_at_the_boundaries() -> None:
    ledger = Memory()
    # The counter follows t², which no straight line does: between ticks it is a line all the same.
    ticks = [on(n, energy=float(n * n)) for n in range(12)]
    keep(ledger, spread(ticks, one_epoch(2.25, 7.75)))
    at = {2.25: 4 + 0.25 * 5, 7.75: 49 + 0.75 * 15}
    assert ledger.usage(0)["energy"] == pytest.approx(at[7.75] - at[2.25], abs=1e-9)
    assert ledger.usage(-1)["energy"] == pytest.approx(64 + 0.75 * 17 - 1, abs=1e-9), "from 1 to 8.75 s"


def test_epochs_before_the_gpu_is_known_have_their_usage() -> None:
    """A training that reports no GPU gets it from the driver's process list, some seconds after its start."""
    ledger, make = Memory(), Course()
    boundaries = make.epochs(*((1.25 + epoch, 2.25 + epoch) for epoch in range(6)))
    boundaries.append(make(Mark.RUN_END, 7.5, phase=""))
    unknown = run(gpus=(), started=(TIME + SECOND) / SECOND, step=0, wait=0.0)
    ticks = [on(0.5 * n, of=unknown if n < 10 else None, energy=100.0 * n) for n in range(20)]
    keep(ledger, spread(ticks, boundaries))
    assert [ledger.usage(epoch)["energy"] for epoch in range(6)] == pytest.approx([200.0] * 6)


def test_a_run_without_a_gpu_keeps_few_epochs_open() -> None:
    ledger, make = Memory(), Course()
    boundaries = make.epochs(*((1.0 + epoch / 250, 1.003 + epoch / 250) for epoch in range(2000)))
    ticks = [on(n, of=run(gpus=(), started=(TIME + SECOND) / SECOND)) for n in range(10)]
    keep(ledger, spread(ticks, boundaries), close=False)
    assert len(ledger.all("epoch")) >= 1500
    assert sum(row.table == "epoch" for batch in ledger.batches for row in batch.rows.values()) < 2 * 2000


def stamped(at: float, reads: Sequence[float], boundaries: Sequence[Boundary], counters: float = 0.0) -> Tick:
    """A tick whose devices were read at `reads`, each at 500 W; `counters`: how much older the counters are."""
    mine = run(gpus=tuple(device(i).uuid for i in range(len(reads))), started=(TIME + SECOND) / SECOND)
    samples = [
        sample(i, energy=500.0 * (read - counters), power=500.0)._replace(
            monotonic_ns=round(read * SECOND),
            counters_monotonic_ns=round((read - counters) * SECOND) if counters else 0,
        )
        for i, read in enumerate(reads)
    ]
    moment = round(at * SECOND)
    return tick(0, samples, runs=[mine], boundaries=boundaries, monotonic_ns=moment, time_ns=TIME + moment,
                interval_ns=SECOND // 5)  # fmt: skip


@pytest.mark.parametrize("counters", [0.0, 0.15])
@pytest.mark.parametrize("hang", [0.6, 4.0])
def test_a_hang_for_seconds_leaves_the_energy_of_epochs_exact_or_unknown(hang: float, counters: float) -> None:
    make = Course()
    # Epochs end before, within and after the hang of the second device's call at 5 s, which delays the third, too.
    events = make.epochs(*((2.05 + 1.3 * epoch, 3.3 + 1.3 * epoch) for epoch in range(9)))
    events.append(make(Mark.RUN_END, 15.0, phase=""))
    times = [0.2 * i for i in range(100) if not 5.0 < 0.2 * i <= 5.0 + hang]
    ticks = [
        stamped(at, [at, *([at + hang] * 2 if abs(at - 5) < 0.01 else [at + 0.01] * 2)], (), counters) for at in times
    ]
    ledger = Memory()
    keep(ledger, spread(ticks, events))
    cut = [epoch for epoch in range(9) if hang > 1 and any(5.0 < 2.05 + 1.3 * epoch + at < 9.0 for at in (0, 1.25))]
    for index in range(3):
        for epoch in range(9):
            usage = ledger.usage(epoch, uuid=device(index).uuid)
            if epoch in cut:  # a border of it lies in time in which nobody sampled this device
                assert "energy" not in usage
                assert usage.get("energy_least", 0.0) < 500 * 1.25
            else:
                assert usage["energy"] == pytest.approx(500 * 1.25, abs=1e-6)
                assert usage["power_mean"] == pytest.approx(500.0)
        assert ledger.usage(-1, uuid=device(index).uuid)["energy"] == pytest.approx(500 * 14.0, abs=1e-6)


@pytest.mark.parametrize("stamp", [0.0, 0.9], ids=["read at first", "read at last"])
def test_a_device_that_answers_after_its_tick_for_a_while_loses_no_energy_of_an_epoch(stamp: float) -> None:
    ledger, make = Memory(), Course()
    events = make.epochs(*((2.05 + 1.3 * epoch, 3.3 + 1.3 * epoch) for epoch in range(9)))
    events.append(make(Mark.RUN_END, 15.0, phase=""))
    ticks = []
    for i in range(100):
        one = stamped(i / 5, [i / 5 + 0.01], ())
        if 25 <= i <= 45:  # asked at 5, 6, 7 and 8 s; each answer is in the tick a second later
            asked = i // 5 - 1
            answer = sample(0, energy=500.0 * (asked + stamp), power=500.0)._replace(
                state=Availability.OK if i > 25 and i % 5 == 0 else Availability.STALE,
                monotonic_ns=asked * SECOND,
                counters_monotonic_ns=round((asked + stamp) * SECOND),
            )
            one = one._replace(samples=[answer])
        ticks.append(one)
    keep(ledger, spread(ticks, events))
    for epoch in range(9):
        assert ledger.usage(epoch)["energy"] == pytest.approx(500 * 1.25, abs=1e-6)


def test_a_counter_that_the_driver_renews_seldom_is_counted_between_its_own_stamps() -> None:
    ledger = Memory()
    ticks = []
    for n in range(24):
        at, renewed = n * 0.5, n // 4 * 2.0
        one = on(at, energy=100.0 * renewed)
        ticks.append(one._replace(samples=[one.samples[0]._replace(counters_monotonic_ns=round(renewed * SECOND))]))
    keep(ledger, spread(ticks, one_epoch(2.25, 7.75)))
    assert ledger.usage(0)["energy"] == pytest.approx(550.0)


@pytest.mark.parametrize("glitch", [2.0**62 / 1000, 4.29e6, 0.0], ids=["near the type's end", "4.29 MJ", "nothing"])
def test_a_glitch_of_the_energy_counter_is_in_no_epoch_and_loses_none_of_its_energy(glitch: float) -> None:
    ledger = Memory()
    ticks = [on(n / 2, energy=glitch if 9 <= n < 12 else 1e6 + 150.0 * n, power_limit=690.0) for n in range(30)]
    keep(ledger, spread(ticks, one_epoch(2.25, 7.75)))
    assert ledger.usage(0)["energy"] == pytest.approx(300.0 * 5.5)
    assert ledger.usage(-1)["energy"] == pytest.approx(300.0 * 7.75)


def test_a_counter_that_starts_over_leaves_a_long_run_all_but_an_interval_of_its_energy() -> None:
    ledger, make = Memory(), Course()
    events = [make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.RUN_END, 101.0, phase="")]
    ticks = [on(n, energy=300.0 * n + (1e6 if n < 50 else 0.0), power_limit=690.0) for n in range(110)]
    keep(ledger, spread(ticks, events))
    assert ledger.usage(-1)["energy"] == pytest.approx(300.0 * 99)


def test_a_running_epoch_has_the_steps_that_belong_to_its_seconds() -> None:
    ledger, make = Memory(), Course()
    events = [make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.EPOCH_BEGIN, 2.0, 0, step=0)]
    ticks = spread([on(n, of=run(gpus=(GPU,), started=(TIME + SECOND) / SECOND, step=40 * max(0, n - 2), wait=0.5 * n))
                    for n in range(15)], events)  # fmt: skip
    keep(ledger, ticks, close=False)
    epoch = ledger.row("epoch", KEY, 0)
    assert epoch["seconds"] >= 1
    assert epoch["steps"] == 40 * epoch["seconds"]


def test_all_that_is_known_of_an_open_epoch_is_written_with_the_last_tick_of_a_recording() -> None:
    """It goes on in none, so that nobody would write it later."""
    ledger, make = Memory(), Course()
    events = [make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.EPOCH_BEGIN, 2.0, 0, step=0)]
    ticks = spread([on(n, of=run(gpus=(GPU,), started=(TIME + SECOND) / SECOND, epoch=0, metrics={"loss": 8.0 - n}))
                    for n in range(9)], events)  # fmt: skip
    ticks = [one._replace(origin=Origin("replay", "REPLAY", ended=one is ticks[-1])) for one in ticks]
    keep(ledger, ticks, LedgerRecorder(ledger, keep=True), close=False)
    epoch = ledger.row("epoch", KEY, 0)
    assert epoch["seconds"] == 6
    assert json.loads(epoch["metrics"]) == {"loss": 0.0}


def test_the_length_of_an_open_run_ends_where_its_energy_ends() -> None:
    ledger = Memory()
    ticks = [on(n, energy=100.0 * n) for n in range(1, 14)]
    keep(ledger, spread(ticks, one_epoch(2.25, 60.0)[:2])[:-1], close=False)  # as after kill -9 of the daemon
    length, whole = ledger.all("rank")[-1]["seconds"], ledger.usage(-1)
    assert length == whole["seconds"] < 11.0
    assert whole["energy"] == pytest.approx(100.0 * length)


def test_the_energy_of_a_run_that_has_ended_is_a_bound_until_its_last_samples_are_known() -> None:
    ledger = Memory()
    ticks = spread([on(n, energy=100.0 * n) for n in range(12)], one_epoch(2.25, 7.75))
    over = [*ticks[:9], ticks[9]._replace(samples=[])]
    recorder = keep(ledger, over, close=False)
    (rank,) = recorder._ranks.values()
    rank.close_if_ended(gone=False)
    rows = {row.key: row.values for row in rank.rows(ticks[7].monotonic_ns)}
    whole = next(row for row in rows.values() if row.get("ordinal") == -1)
    assert whole["seconds"] == 7.75
    assert whole.get("energy") is None


def test_mean_power_is_energy_by_time_where_energy_is_known() -> None:
    ledger = Memory()
    # The driver's reading lags by a second behind a load that comes and goes.
    ticks = [on(n, energy=100.0 * n + 50.0 * (n % 2), power=900.0) for n in range(14)]
    keep(ledger, spread(ticks, one_epoch(2.0, 8.0)))
    assert ledger.usage(0)["energy"] == pytest.approx(600.0)
    assert ledger.usage(0)["power_mean"] == pytest.approx(100.0)


def test_a_value_holds_until_the_next_tick() -> None:
    ledger = Memory()
    ticks = [on(n, power=float(n), utilization=n / 100) for n in range(12)]
    keep(ledger, spread(ticks, one_epoch(2.25, 7.75)))
    usage = ledger.usage(0)
    assert usage["power_mean"] == pytest.approx((0.75 * 2 + 3 + 4 + 5 + 6 + 0.75 * 7) / 5.5)
    assert usage["utilization_mean"] == pytest.approx((0.75 * 2 + 3 + 4 + 5 + 6 + 0.75 * 7) / 550)
    assert usage["utilization_p5"] == 0.02
    assert usage["utilization_p95"] == 0.07
    assert usage["idle_share"] == pytest.approx((0.75 + 1 + 1) / 5.5), "below 5 %"
    assert usage["sampled"] == pytest.approx(5.5)
    assert usage["utilization_from"] == "ticks"


def test_peaks_are_of_samples_inside_and_of_what_held_only_where_there_is_none() -> None:
    ledger = Memory()
    events = Course().epochs((2.5, 4.5), (4.6, 4.9))
    values = {0: 1, 1: 1, 2: 9, 3: 5, 4: 6, 5: 8}
    keep(ledger, spread([on(n, memory_used=float(values.get(n, 1)), temperature=50.0 + n) for n in range(9)], events))
    assert ledger.usage(0)["memory_used_peak"] == 6.0, "the 9 was read before it began"
    assert ledger.usage(0)["temperature_start"] == 52.0
    assert ledger.usage(1)["memory_used_peak"] == 6.0, "no sample inside: what held"
    assert ledger.usage(1)["seconds"] == pytest.approx(0.3)


def test_an_epoch_without_a_sample_of_its_own_has_no_utilization() -> None:
    ledger = Memory()
    events = Course().epochs((2.5, 4.5), (4.6, 4.9), (5.99, 6.007))
    keep(ledger, spread([on(n, memory_used=1.0, utilization=0.71) for n in range(9)], events))
    assert ledger.usage(0)["utilization_mean"] == pytest.approx(0.71)
    for short in (1, 2):
        assert not {"utilization_mean", "utilization_p5", "idle_share"} & ledger.usage(short).keys()
        assert ledger.usage(short)["utilization_from"] == ""


def test_phases_are_the_union_of_their_stretches_within_one_tick_too() -> None:
    ledger = Memory()
    make = Course()
    events = [make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.EPOCH_BEGIN, 2.0)]
    for at, phase in ((2.1, "validate"), (2.4, "train"), (2.5, "validate"), (3.5, "train")):
        events.append(make(Mark.PHASE, at, phase=phase, step=round(10 * at)))
    events += [make(Mark.EPOCH_END, 4.0, step=40, phase="")]
    ticks = [on(n, energy=100.0 * n, power=float(n)) for n in range(8)]
    keep(ledger, spread(ticks, events))
    validate, train = ledger.row("phase", KEY, 0, "validate"), ledger.row("phase", KEY, 0, "train")
    assert (validate["seconds"], validate["times"]) == (pytest.approx(1.3), 2)
    assert (train["seconds"], train["times"]) == (pytest.approx(0.7), 3)
    assert (json.loads(validate["spans"]), train["spans"]) == ([[0.1, 0.3], [0.5, 1.0]], None)
    assert validate["steps"] == (24 - 21) + (35 - 25)
    assert ledger.usage(0, "validate")["energy"] == pytest.approx(130.0)
    assert "energy" not in ledger.usage(0, "train"), "none is claimed below a second"
    assert ledger.usage(0, "validate")["power_mean"] == pytest.approx(130.0 / 1.3)
    assert ledger.usage(0, "train")["power_mean"] == pytest.approx((0.1 * 2 + 0.1 * 2 + 0.5 * 3) / 0.7)
    assert ledger.usage(0)["energy"] == pytest.approx(200.0)


def test_the_wait_is_known_of_the_phases_in_which_somebody_measured_it() -> None:
    ledger, make = Memory(), Course()
    events = [
        make(Mark.RUN_BEGIN, 1.0, -1, "", wait=0.0),
        make(Mark.EPOCH_BEGIN, 2.0, 0, wait=0.0), make(Mark.PHASE, 5.0, 0, "validate", wait=0.75),
        make(Mark.PHASE, 6.0, 0, "train", wait=0.75), make(Mark.EPOCH_END, 7.0, 0, "", wait=1.0),
        make(Mark.EPOCH_BEGIN, 7.0, 1, wait=1.0), make(Mark.EPOCH_END, 9.0, 1, "", wait=1.0),
    ]  # fmt: skip
    keep(ledger, spread([on(n) for n in range(13)], events))
    assert ledger.row("phase", KEY, 0, "train")["wait"] == 1.0
    assert ledger.row("phase", KEY, 0, "validate")["wait"] is None
    assert [(row["wait"], row["wait_of"]) for row in ledger.all("epoch")] == [(1.0, 4.0), (None, None)]


def test_a_run_in_which_nobody_measured_a_wait_has_none() -> None:
    ledger = Memory()
    events = [boundary._replace(wait=0.0) for boundary in one_epoch(2.25, 7.75)]
    keep(ledger, spread([on(n, of=run(gpus=(GPU,), started=TIME / SECOND + 1, wait=NAN)) for n in range(12)], events))
    assert ledger.row("epoch", KEY, 0)["wait"] is None
    assert ledger.row("rank", KEY)["wait"] is None


def test_the_steps_of_an_epoch_are_those_of_training_and_not_of_validation() -> None:
    ledger, make = Memory(), Course()
    events = [
        make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.EPOCH_BEGIN, 2.0, 0, step=0),
        make(Mark.PHASE, 4.0, 0, "validate", step=10), make(Mark.EPOCH_END, 7.0, 0, "", step=20),
    ]  # fmt: skip
    keep(ledger, spread([on(n) for n in range(12)], events))
    epoch = ledger.row("epoch", KEY, 0)
    assert (epoch["steps"], epoch["trained"], epoch["seconds"]) == (10, 2.0, 5.0)
    assert ledger.row("phase", KEY, 0, "validate")["steps"] == 10
    assert [ledger.row("phase", KEY, 0, phase)["place"] for phase in ("train", "validate")] == [0, 1]


@pytest.mark.parametrize(("phase", "steps"), [("validate", 0), ("fit", 10)])
def test_steps_of_validation_are_not_those_of_a_training_that_counts_none(phase: str, steps: int) -> None:
    ledger, make = Memory(), Course()
    events = [
        make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.EPOCH_BEGIN, 2.0, 0, step=0),
        make(Mark.PHASE, 4.0, 0, phase, step=0), make(Mark.EPOCH_END, 7.0, 0, "", step=10),
    ]  # fmt: skip
    keep(ledger, spread([on(n) for n in range(12)], events))
    epoch = ledger.row("epoch", KEY, 0)
    assert (epoch["steps"], epoch["trained"]) == (steps, None)


def test_the_framework_own_peak_is_that_of_the_stretch_in_which_its_counter_moved() -> None:
    ledger, make = Memory(), Course()
    events = [
        make(Mark.RUN_BEGIN, 1.0, -1, ""),  # the framework has not come up
        make(Mark.EPOCH_BEGIN, 2.0, 0, peak=1.0),
        make(Mark.PHASE, 3.0, 0, "validate", peak=5.0), make(Mark.EPOCH_END, 4.0, 0, "", peak=5.0),
        make(Mark.EPOCH_BEGIN, 4.0, 1, peak=5.0), make(Mark.EPOCH_END, 5.0, 1, "", peak=5.0),
        make(Mark.EPOCH_BEGIN, 5.0, 2, peak=2.0),  # reset by the training
        make(Mark.EPOCH_END, 6.0, 2, "", peak=3.0),
        make(Mark.EPOCH_BEGIN, 6.0, 3), make(Mark.PHASE, 6.5, 3, "validate"),  # not read
        make(Mark.EPOCH_END, 7.0, 3, "", peak=4.0),
        make(Mark.EPOCH_BEGIN, 7.0, 4), make(Mark.EPOCH_END, 8.0, 4, ""), make(Mark.RUN_END, 8.5, 4, "", peak=9.0),
    ]  # fmt: skip
    keep(ledger, spread([on(n) for n in range(12)], events))
    peaks = [(row["peak"], row["peak_reached"]) for row in ledger.all("epoch")]
    assert peaks == [(5.0, 1), (5.0, 0), (3.0, 1), (4.0, 0), (9.0, 0)]
    found = {row["phase"]: (row["peak"], row["peak_reached"]) for row in ledger.all("phase") if row["ordinal"] == 0}
    assert found == {"train": (5.0, 1), "validate": (5.0, 0)}
    assert ledger.row("rank", KEY)["peak"] == 9.0


def test_a_running_epoch_has_the_peak_that_its_framework_tells_now() -> None:
    ledger, make = Memory(), Course()
    events = [make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.EPOCH_BEGIN, 2.0, 0, peak=1.0)]
    mine = run(gpus=(GPU,), started=TIME / SECOND + 1, memory=FrameworkMemory(peak=6.0))
    keep(ledger, spread([on(n, of=mine) for n in range(15)], events), close=False)
    assert (ledger.row("epoch", KEY, 0)["peak"], ledger.row("epoch", KEY, 0)["peak_reached"]) == (6.0, 1)


def test_the_peak_goes_on_over_a_restart_of_the_daemon() -> None:
    make = Course()
    events = [
        make(Mark.RUN_BEGIN, 1.0, -1, "", peak=1.0), make(Mark.EPOCH_BEGIN, 2.0, 0, peak=5.0),
        make(Mark.EPOCH_END, 20.0, 0, "", peak=5.0),
    ]  # fmt: skip
    ticks = spread([on(n) for n in range(28)], events)
    second = restarted(ticks[:16], ticks[18:], in_ring=False)
    assert (second.row("epoch", KEY, 0)["peak"], second.row("epoch", KEY, 0)["peak_reached"]) == (5.0, 0)


def test_how_long_a_run_took_is_by_the_steady_clock() -> None:
    ledger = Memory()
    ticks = spread([on(n) for n in range(14)], one_epoch(2.0, 9.0))
    # Somebody sets the wall clock an hour forward at 5 s.
    ticks = [one._replace(time_ns=one.time_ns + (3600 * SECOND if n > 5 else 0)) for n, one in enumerate(ticks)]
    keep(ledger, ticks)
    assert ledger.row("rank", KEY)["seconds"] == 9.0


def test_an_epoch_that_proves_broken_after_it_was_settled_is_told_to_the_ledger() -> None:
    ledger, make = Memory(), Course()
    events = [make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.EPOCH_BEGIN, 2.0, 0), make(Mark.EPOCH_END, 4.0, 0, ""),
              make(Mark.EPOCH_ABORTED, 9.0, 0, "")]  # fmt: skip
    keep(ledger, spread([on(n) for n in range(13)], events))
    assert [end for batch in ledger.batches for end in batch.revoked_ends] == [(KEY, 0)]


def test_a_loss_that_is_no_number_is_kept_in_words_and_marks_its_course() -> None:
    ledger, make = Memory(), Course()
    events = [
        make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.EPOCH_BEGIN, 2.0, 0),
        make(Mark.EPOCH_END, 4.0, 0, "", metrics={"loss": NAN, "up": float("inf"), "down": float("-inf"), "lr": 0.5}),
        make(Mark.RUN_END, 6.0, 0, ""),
    ]  # fmt: skip
    ticks = [on(n, of=run(gpus=(GPU,), started=TIME / SECOND + 1, metrics={"loss": 1.0 if n < 4 else NAN}))
             for n in range(10)]  # fmt: skip
    keep(ledger, spread(ticks, events))
    logged = json.loads(ledger.row("epoch", KEY, 0)["metrics"])
    assert logged == {"loss": "NaN", "up": "Infinity", "down": "-Infinity", "lr": 0.5}
    row = ledger.row("trace", KEY, "")
    points = [point for line in row["cells"] for point in zip(*line, strict=True)]
    assert (-math.inf, math.inf) in {(low, high) for low, _, high in points}
    assert {mean for _, mean, _ in points if mean == mean} == {1.0, 0.5}, "of loss and lr: it is no part of any mean"


def test_of_a_phase_that_is_entered_all_the_time_it_is_kept_when_for_the_first_times() -> None:
    ledger, make = Memory(), Course()
    events = [make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.EPOCH_BEGIN, 1.0)]
    for time in range(40):
        events.append(make(Mark.PHASE, 1.0 + time / 10, phase="validate"))
        events.append(make(Mark.PHASE, 1.05 + time / 10))
    events.append(make(Mark.EPOCH_END, 6.0, phase=""))
    keep(ledger, spread([on(n) for n in range(9)], events))
    row = ledger.row("phase", KEY, 0, "validate")
    assert row["times"] == 40
    assert json.loads(row["spans"]) == [[time / 10, 0.05] for time in range(16)]


def test_when_phases_were_is_kept_over_a_restart_of_the_daemon() -> None:
    make = Course()
    events = [make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.EPOCH_BEGIN, 2.0)]
    for at, phase in ((4.0, "validate"), (5.0, "train"), (20.0, "validate")):
        events.append(make(Mark.PHASE, at, phase=phase))
    events.append(make(Mark.EPOCH_END, 22.0, phase=""))
    ticks = spread([on(n) for n in range(28)], events)
    second = restarted(ticks[:16], ticks[18:], in_ring=False)
    assert json.loads(second.row("phase", KEY, 0, "validate")["spans"]) == [[2.0, 1.0], [18.0, 2.0]]


@pytest.mark.parametrize(("reset_at", "told"), [(5, False), (9, True)])
def test_a_counter_that_goes_back_gives_nothing_for_that_interval(reset_at: int, told: bool) -> None:
    ledger = Memory()
    ticks = [on(n, energy=100.0 * (n if n < reset_at else n - reset_at)) for n in range(12)]
    keep(ledger, spread(ticks, one_epoch(2.0, 8.0)))
    if told:
        assert ledger.usage(0)["energy"] == pytest.approx(600.0)
    else:
        assert "energy" not in ledger.usage(0), "a sixth of the time is not known"


def test_no_energy_is_told_of_a_mig_instance() -> None:
    ledger = Memory()
    mig = device(0)._replace(uuid="MIG-1")
    ticks = [
        on(n, energy=100.0 * n, of=run(gpus=("MIG-1",), started=TIME / SECOND + 1)) for n in range(12)
    ]  # fmt: skip
    ticks = [one._replace(samples=[one.samples[0]._replace(device=mig)]) for one in ticks]
    keep(ledger, spread(ticks, one_epoch(2.0, 8.0)))
    assert ledger.usage(0, uuid="MIG-1")["sampled"] == pytest.approx(6.0)
    assert "energy" not in ledger.usage(0, uuid="MIG-1")


def test_throttling_comes_from_the_counters() -> None:
    ledger = Memory()
    ticks = [
        on(n, throttled_sw_power=0.5 * n, throttled_sw_thermal=0.25 * n, throttled_hw_thermal=0.125 * n)
        for n in range(12)
    ]
    keep(ledger, spread(ticks, one_epoch(2.0, 8.0)))
    assert ledger.usage(0)["capped_share"] == pytest.approx(0.5)
    assert ledger.usage(0)["throttled_share"] == pytest.approx(0.375)


def test_the_driver_own_samples_give_utilization_where_they_cover_the_stretch() -> None:
    ledger = Memory()
    ticks = []
    for n in range(12):
        # Four samples a second: busy in the first half of each second, which no tick sees.
        moments = [n * SECOND - SECOND + (i + 1) * SECOND // 4 for i in range(4)]
        busy = [(moment, 1.0 if i < 2 else 0.0) for i, moment in enumerate(moments)]
        ticks.append(on(n, utilization=1.0)._replace(utilization_samples={GPU: busy} if n else {}))
    keep(ledger, spread(ticks, one_epoch(2.25, 7.75)))
    usage = ledger.usage(0)
    assert usage["utilization_from"] == "driver"
    # 2.25 to 7.75 s: a quarter busy, half idle, four whole seconds, half a second busy, a quarter idle.
    assert usage["utilization_mean"] == pytest.approx((0.25 + 4 * 0.5 + 0.5) / 5.5)
    assert usage["idle_share"] == pytest.approx(1 - (0.25 + 4 * 0.5 + 0.5) / 5.5)
    assert (usage["utilization_p5"], usage["utilization_p95"]) == (0.0, 1.0)


def test_what_the_driver_remembers_of_a_time_without_samples_is_no_utilization_of_it() -> None:
    """It was away from 4 to 14 s; the last value before that holds for 3 s."""
    ledger = Memory()
    make = Course()
    events = make.epochs((1.0, 4.0), (8.0, 13.0), (15.0, 20.0))
    ticks = []
    for n in (*range(5), *range(14, 24)):
        since = n - 1 if n != 14 else 4
        times = [since + (i + 1) / 4 for i in range(4 * (n - since))]
        busy = [(round(time * SECOND), 0.0 if 7 < time <= 14 else 0.5) for time in times]
        ticks.append(on(n, utilization=0.5)._replace(utilization_samples={GPU: busy} if n else {}))
    keep(ledger, spread(ticks, events))
    for epoch in (0, 2):
        assert ledger.usage(epoch)["utilization_from"] == "driver"
        assert ledger.usage(epoch)["idle_share"] == 0.0
    away = ledger.usage(1)
    assert away["sampled"] == 0
    assert not away.keys() & {"idle_share", "utilization_mean", "utilization_p5"}
    assert away["utilization_from"] == ""
    assert ledger.usage(WHOLE_RUN)["idle_share"] == 0.0


def test_a_daemon_that_comes_late_keeps_the_epochs_and_says_what_it_saw() -> None:
    ledger = Memory()
    make = Course()
    events = [make(Mark.RUN_BEGIN, 1.0, -1, "")]
    for epoch in range(3):
        events += [
            make(Mark.EPOCH_BEGIN, 10.0 * epoch + 2, epoch, step=10 * epoch),
            make(Mark.EPOCH_END, 10.0 * epoch + 11, epoch, "", step=10 * epoch + 10),
        ]
    ticks = [on(n, energy=100.0 * n, power=100.0) for n in range(25, 36)]
    ticks[0] = ticks[0]._replace(boundaries=events[:-1])
    ticks[7] = ticks[7]._replace(boundaries=events[-1:])
    keep(ledger, ticks)
    assert [(row["seconds"], row["steps"]) for row in ledger.all("epoch")] == [(9.0, 10)] * 3
    assert ledger.usage(0)["utilization_from"] == ""
    assert ledger.usage(0)["sampled"] == 0
    assert "power_mean" not in ledger.usage(0)
    assert ledger.usage(2)["sampled"] == pytest.approx(6.0), "25 to 31 of 22 to 31"
    assert "energy" not in ledger.usage(2), "a third of it is not known"


def test_a_run_that_comes_later_has_the_samples_of_the_last_half_minute_and_older_ones_do_not_wait() -> None:
    ledger, make = Memory(), Course()
    events = [make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.EPOCH_BEGIN, 75.0)]
    ends = [make(Mark.EPOCH_END, 110.0, phase=""), make(Mark.RUN_END, 111.0, phase="")]
    ticks = [on(second, power=100.0) for second in range(115)]
    recorder = keep(ledger, [one._replace(runs=()) for one in ticks[:100]], close=False)
    assert len(recorder._recent[GPU].samples) == 32
    ticks[100] = ticks[100]._replace(boundaries=events)
    ticks[111] = ticks[111]._replace(boundaries=ends)
    keep(ledger, ticks[100:], recorder)
    assert ledger.usage(0)["sampled"] == pytest.approx(35.0)


def test_a_run_that_was_over_before_anybody_looked_is_kept_though_it_shows_once() -> None:
    ledger = Memory()
    ended = run(gpus=(GPU,), started=TIME / SECOND + 1, state=RunState.FINISHED, step=50)
    ticks = [on(100, one_epoch(2.0, 8.0), of=ended), on(101)._replace(runs=[]), on(102)._replace(runs=[])]
    keep(ledger, ticks)
    assert ledger.row("rank", KEY)["state"] == RunState.FINISHED
    assert ledger.row("rank", KEY)["ended"] == TIME + 9 * SECOND
    assert ledger.row("epoch", KEY, 0)["seconds"] == 6.0


@pytest.mark.parametrize("how", [RunState.INTERRUPTED, RunState.FAILED, RunState.FINISHED])
def test_a_run_that_ends_right_after_a_sample_has_the_end_that_the_next_tick_tells(how: RunState) -> None:
    """Its end is in the tick whose state of the run is that of the sample: still running."""
    ledger = Memory()
    alive = run(gpus=(GPU,), started=TIME / SECOND + 1, step=50)
    events = [on(3, one_epoch(2.0, 2.5)[:2], of=alive), on(4, one_epoch(2.0, 3.01)[2:], of=alive)]
    ticks = [*events, *(on(n, of=alive._replace(state=how)) for n in (5, 6, 7))]
    keep(ledger, ticks)
    assert ledger.row("rank", KEY)["state"] == how


def test_a_killed_run_died_when_it_was_last_seen_alive_and_keeps_its_open_epoch() -> None:
    ledger = Memory()
    make = Course()
    events = [
        make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.EPOCH_BEGIN, 2.0, 0), make(Mark.LOG, 2.5, 0, metrics={"old": 1.0}),
    ]  # fmt: skip
    alive = run(gpus=(GPU,), started=TIME / SECOND + 1, step=7, wait=0.25, metrics={"old": 1.0, "loss": 0.5, "no": NAN})
    dead = alive._replace(state=RunState.DIED)
    ticks = spread([on(n, of=alive if n < 6 else dead, energy=100.0 * n) for n in range(9)], events)
    keep(ledger, ticks)
    rank, epoch = ledger.row("rank", KEY), ledger.row("epoch", KEY, 0)
    assert (rank["state"], rank["ended"]) == (RunState.DIED, TIME + 5 * SECOND)
    assert (epoch["ended"], epoch["seconds"], epoch["steps"], epoch["wait"]) == (None, 3.0, 7, 0.25)
    assert json.loads(epoch["metrics"]) == {"old": 1.0, "loss": 0.5, "no": "NaN"}
    assert ledger.usage(0)["energy"] == pytest.approx(300.0)


def killed(epoch_begun: float) -> tuple[list[Boundary], Run, Run]:
    """Boundaries of a run that is killed at 5.75 s, 20 steps into its epoch, and its board before and after that."""
    make = Course()
    events = [make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.EPOCH_BEGIN, epoch_begun, 0, step=50)]
    alive = run(gpus=(GPU,), started=TIME / SECOND + 1, step=50, wait=0.0, updated=TIME / SECOND + 5)
    return events, alive, alive._replace(state=RunState.DIED, step=70, wait=0.25, updated=TIME / SECOND + 5.75)


def test_a_killed_run_keeps_the_steps_that_it_made_since_the_last_tick() -> None:
    ledger = Memory()
    events, alive, dead = killed(5.2)
    keep(ledger, spread([on(n, of=alive if n < 6 else dead) for n in range(9)], events))
    epoch = ledger.row("epoch", KEY, 0)
    assert ledger.row("rank", KEY)["state"] == RunState.DIED
    assert (epoch["ended"], epoch["steps"], epoch["wait"]) == (None, 20, 0.25)
    assert epoch["seconds"] == pytest.approx(0.55)


def test_a_killed_run_keeps_its_last_steps_while_samples_of_the_driver_are_awaited() -> None:
    ledger = Memory()
    events, alive, dead = killed(2.2)
    # The driver's samples are three seconds late: so late is it known what the GPU did until the end.
    late = [{GPU: [((n - 3) * SECOND, 1.0)]} if n > 3 else {} for n in range(16)]
    ticks = [on(n, of=alive if n < 6 else dead)._replace(utilization_samples=late[n]) for n in range(16)]
    keep(ledger, spread(ticks, events), close=False)
    epoch = ledger.row("epoch", KEY, 0)
    assert (epoch["ended"], epoch["steps"], epoch["wait"]) == (None, 20, 0.25)
    assert epoch["seconds"] == pytest.approx(3.55)


def test_a_run_that_ended_has_progress_until_the_samples_of_its_last_epoch_have_come() -> None:
    ledger = Memory()
    late = [{GPU: [((n - 3) * SECOND, 1.0)]} if n > 3 else {} for n in range(24)]
    over = run(gpus=(GPU,), started=(TIME + SECOND) / SECOND, state=RunState.FINISHED)
    ticks = [on(n, of=None if n < 8 else over)._replace(utilization_samples=late[n]) for n in range(24)]
    keep(ledger, spread(ticks, one_epoch(2.0, 6.5)), close=False)
    told = [batch for batch in ledger.batches if any(row.values.get("ended") for row in batch.rows.values())]
    assert len(told) > 1, "its end is written before all that was measured until then"
    *before, last = [batch for batch in told if ("rank", KEY) in batch.rows]
    open_epochs = [
        [row["epoch"][0] for row in json.loads(batch.rows["progress", KEY].values["state"])["course"]["epochs"]]
        for batch in before
    ]
    assert open_epochs[0] == [0], "it is over, and not settled"
    assert [batch.final for batch in (*before, last)] == [[]] * len(before) + [[KEY]]
    assert ("progress", KEY) not in last.rows


def test_epochs_with_one_number_are_told_apart_and_what_is_logged_later_goes_to_the_last() -> None:
    ledger = Memory()
    make = Course()
    events = [make(Mark.RUN_BEGIN, 1.0, -1, "")]
    for i in range(2):
        events += [make(Mark.EPOCH_BEGIN, 2 + i, 4), make(Mark.EPOCH_END, 2.5 + i, 4, "", metrics={"loss": float(i)})]
    soon = make(Mark.LOG, 3.6, 4, "", metrics={"accuracy": float("inf")})
    late = make(Mark.LOG, 9.0, 4, "", metrics={"late": 3.0})
    keep(ledger, spread([on(n) for n in range(14)], [*events, soon, late]))
    assert [(row["ordinal"], row["epoch"]) for row in ledger.all("epoch")] == [(0, 4), (1, 4)]
    assert ledger.row("epoch", KEY, 0)["metrics"] == '{"loss": 0.0}'
    assert json.loads(ledger.row("epoch", KEY, 1)["metrics"]) == {"loss": 1.0, "accuracy": "Infinity"}
    assert [late for batch in ledger.batches for late in batch.late] == [LateMetrics(KEY, 4, '{"late": 3.0}')]


def test_lost_boundaries_are_counted_and_nothing_is_guessed_of_the_epoch_whose_end_is_lost() -> None:
    ledger = Memory()
    make = Course()
    events = [make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.EPOCH_BEGIN, 2.0, 0)]
    make.number += 5
    events += [make(Mark.EPOCH_BEGIN, 6.0, 3), make(Mark.EPOCH_END, 7.0, 3, "")]
    keep(ledger, spread([on(n) for n in range(11)], events))
    assert ledger.row("rank", KEY)["lost_events"] == 5
    assert [(row["epoch"], row["ended"] is None) for row in ledger.all("epoch")] == [(0, True), (3, False)]


def test_out_of_memory_and_checkpoints_leave_marks() -> None:
    ledger = Memory()
    make = Course()
    events = [
        make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.EPOCH_BEGIN, 2.0), make(Mark.CHECKPOINT, 3.0, phase="checkpoint"),
        make(Mark.OUT_OF_MEMORY, 3.5, phase="checkpoint", asked=2.0**31, free=2.0**20),
    ]  # fmt: skip
    keep(ledger, spread([on(n) for n in range(6)], events))
    assert [(row["mark"], row["asked"], row["free"]) for row in ledger.all("mark")] == [
        (Mark.CHECKPOINT, None, None), (Mark.OUT_OF_MEMORY, 2.0**31, 2.0**20),
    ]  # fmt: skip
    assert ledger.row("phase", KEY, 0, "checkpoint")["times"] == 1


def test_a_device_that_was_not_seen_for_long_is_not_sampled_but_its_counter_goes_on() -> None:
    ledger = Memory()
    ticks = [on(n, energy=100.0 * n, power=100.0) for n in range(13)]
    for n in range(4, 10):
        lost = Sample(device(0), Availability.LOST, [NAN] * len(ticks[n].samples[0].values))
        ticks[n] = ticks[n]._replace(samples=[lost])
    keep(ledger, spread(ticks, one_epoch(2.0, 11.0)))
    assert ledger.usage(0)["sampled"] == pytest.approx(9 - 7), (
        "from 3 to 10 s: the last value before a gap holds for none of it"
    )
    assert ledger.usage(0)["energy"] == pytest.approx(900.0)


def test_the_energy_of_a_long_gap_is_the_run_own_where_an_epoch_ended_in_it() -> None:
    told = {}
    for length in (4, 7):
        ledger = Memory()
        ticks = [on(n, energy=100.0 * n) for n in range(16) if not 4 < n < 4 + length]
        keep(ledger, spread(ticks, one_epoch(2.0, 7.0)))
        told[length] = (ledger.usage(0).get("energy"), ledger.usage(-1).get("energy"))
        assert ledger.usage(0)["energy_least"] == pytest.approx(200.0), "up to the last sample before the gap"
    assert told == {4: (None, pytest.approx(700.0)), 7: (None, None)}, "the run ends in the longer one"


def test_a_restarted_daemon_goes_on_with_what_was_kept() -> None:
    events = one_epoch(2.25, 27.75)
    ticks = spread([on(n, energy=float(n), power=float(n), memory_used=float(n)) for n in range(32)], events)
    whole = Memory()
    keep(whole, ticks)
    again = [ticks[18]._replace(boundaries=events[:2]), *ticks[19:]]  # the board tells all from the start
    second = restarted(ticks[:16], again, in_ring=False)
    assert second.row("epoch", KEY, 0) == whole.row("epoch", KEY, 0)
    one, two = whole.usage(0), second.usage(0)
    assert two["energy"] == pytest.approx(one["energy"]), "the counter tells of the gap"
    assert two["memory_used_peak"] == one["memory_used_peak"]
    assert one["sampled"] == pytest.approx(25.5)
    assert two["sampled"] == pytest.approx(25.5 - 6), "written at 13 s, with all before 12 s; back at 18 s"
    assert second.usage(-1)["energy"] == pytest.approx(whole.usage(-1)["energy"])


DAMAGE = [
    "UPDATE progress SET state = replace(state, '\"busy\":0', '\"busy\":[]')",
    "UPDATE progress SET state = CAST(x'fffe' AS TEXT)",
    "UPDATE progress SET state = 5",
    "UPDATE rank SET pid = 'pid'",
    "UPDATE rank SET key = x'00'",
    "UPDATE run SET user = CAST(x'fffe' AS TEXT)",
    "UPDATE run SET updated = 'now'",
    "UPDATE rank SET ended = 'then'",
    "UPDATE run SET ended = 'then'",
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_row_stops_no_recording(tmp_path: Path, damage: str) -> None:
    path, events = tmp_path / "state" / "ledger.sqlite", one_epoch(2.25, 27.75)
    ticks = spread([on(n, energy=float(n)) for n in range(32)], events)
    first = LedgerWriter(str(path), os.getuid(), pytest.fail).start()
    assert first.wait_until_open(PATIENCE)
    keep(first, ticks[:16], close=False)
    first.close(PATIENCE)
    with closing(sqlite3.connect(path)) as connection:
        changed = connection.execute(damage).rowcount
        connection.commit()
    assert changed == 1
    other = run(key="tag.1000.4712.abcd", id="other", gpus=(GPU,), started=(TIME + 20 * SECOND) / SECOND)
    second = LedgerWriter(str(path), os.getuid(), pytest.fail).start()
    assert second.wait_until_open(PATIENCE)
    keep(second, [one._replace(runs=[*one.runs, other]) for one in ticks[20:]])
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM run WHERE id = 'other'").fetchone() == (1,)


def test_what_a_killed_daemon_left_in_its_ring_is_not_lost() -> None:
    events = one_epoch(2.25, 27.75)
    ticks = spread([on(n, energy=float(n), power=float(n), run_used=100.0 - n) for n in range(32)], events)
    whole = Memory()
    keep(whole, ticks)
    second = restarted(ticks[:16], [ticks[18]._replace(boundaries=events[:2]), *ticks[19:]])
    one, two = whole.usage(0), second.usage(0)
    assert two["sampled"] == pytest.approx(one["sampled"] - 3), (
        "the last tick at 15 s says nothing of the time after it"
    )
    assert two["energy"] == pytest.approx(one["energy"])
    assert two["utilization_from"] == one["utilization_from"]
    assert two["run_used_peak"] == one["run_used_peak"]


class TestKilledDaemon:
    """It took its last tick at 16 s. Epoch 0 ended before that; epoch 1 lasts from 15.2 to 16.9 s."""

    def ledger(self, back: float, **options: bool) -> Memory:
        make = Course()
        events = make.epochs((2.0, 14.0), (15.2, 16.9), (22.0, 27.0))
        events.append(make(Mark.RUN_END, 29.0, phase=""))
        times = [*map(float, range(17)), *(back + n for n in range(16))]
        ticks = spread([on(at, utilization=0.5, memory_used=900.0 if at == 16 else 100.0) for at in times], events)
        return restarted(ticks[:17], ticks[17:], **options)

    @pytest.mark.parametrize("back", [17.6, 18.0, 18.9, 19.5, 21.0])
    def test_sampled_nothing_after_its_last_tick(self, back: float) -> None:
        ledger = self.ledger(back)
        away = back - 16
        assert ledger.usage(0)["sampled"] == pytest.approx(12.0)
        assert ledger.usage(1)["sampled"] == pytest.approx(0.8), "of 1.7 s"
        assert "utilization_mean" not in ledger.usage(1), "more than half of it is not known"
        assert ledger.usage(1, "train")["sampled"] == pytest.approx(0.8)
        between = ledger.usage(OUTSIDE_EPOCHS)
        assert between["seconds"] - between["sampled"] == pytest.approx(away - 0.9), "from 16.9 s until it is back"
        whole = ledger.usage(WHOLE_RUN)
        assert whole["seconds"] - whole["sampled"] == pytest.approx(away)

    @pytest.mark.parametrize("back", [18.0, 21.0])
    def test_its_last_tick_still_has_the_peak(self, back: float) -> None:
        assert self.ledger(back).usage(1)["memory_used_peak"] == 900.0

    def test_that_left_no_ring_sampled_nothing_after_its_last_write(self) -> None:
        ledger = self.ledger(18.0, in_ring=False)
        whole = ledger.usage(WHOLE_RUN)
        assert whole["sampled"] <= whole["seconds"] - 2

    def test_that_is_back_at_the_next_tick_leaves_no_gap(self) -> None:
        whole = self.ledger(17.0).usage(WHOLE_RUN)
        assert whole["sampled"] == pytest.approx(whole["seconds"])

    @pytest.mark.parametrize("intervals", [(1, 10), (10, 1)])
    def test_whose_successor_has_another_interval_sampled_nothing_after_its_last_tick(
        self, intervals: tuple[int, int]
    ) -> None:
        before, after = (
            [on(begin + n)._replace(interval_ns=interval * SECOND) for n in range(0, 21, interval)]
            for begin, interval in zip((0.0, 22.5), intervals, strict=True)
        )
        events = one_epoch(2.0, 35.0)
        ticks = spread([*before, *after], events)
        usage = restarted(ticks[: len(before)], ticks[len(before) :]).usage(0)
        assert usage["sampled"] == pytest.approx(33.0 - 2.5)


def after_a_kill(events: Sequence[Boundary]) -> Memory:
    """A run of seconds 1 to 31 in which power and loss count seconds: traces were written at 6, no daemon at 16, 17."""
    of = run(gpus=(GPU,), started=(TIME + SECOND) / SECOND, step=0, wait=0.0)
    ticks = spread(
        [on(n, power=float(n), of=of._replace(metrics={"loss": float(n)}) if n else None) for n in range(32)], events
    )
    traced = Memory()
    keep(traced, ticks[:6])
    written = []
    for uuid in (GPU, ""):
        row = traced.row("trace", KEY, uuid)
        written.append(tuple(row[name] for name in ("uuid", "begun", "step", "points", "columns", "cells")))
    missed = [boundary for one in ticks[16:18] for boundary in one.boundaries]
    back = ticks[18]._replace(boundaries=[*missed, *ticks[18].boundaries])
    return restarted(ticks[:16], [back, *ticks[19:]], traces=written)


def traced(ledger: Memory, uuid: str, name: str) -> dict[int, float]:
    """The means, or last values, of a trace by their second."""
    row = ledger.row("trace", KEY, uuid)
    begun = round((row["begun"] - TIME) / SECOND)
    means = row["cells"][json.loads(row["columns"]).index(name)].mean
    return {begun + place: value for place, value in enumerate(means) if not math.isnan(value)}


def test_the_traces_of_a_run_have_all_that_was_sampled_before_a_daemon_was_killed_and_after() -> None:
    ledger = after_a_kill(one_epoch(2.25, 27.75))
    for uuid, name in ((GPU, "gpu.power"), ("", "loss")):
        assert traced(ledger, uuid, name) == {n: float(n) for n in range(1, 31) if n not in (16, 17)}


def test_what_was_logged_while_no_daemon_ran_is_on_the_trace() -> None:
    make = Course()
    ledger = after_a_kill([
        make(Mark.RUN_BEGIN, 1.0, -1, ""), make(Mark.EPOCH_BEGIN, 2.25, 0),
        make(Mark.EPOCH_END, 16.5, 0, "", metrics={"loss": 0.25}), make(Mark.EPOCH_BEGIN, 16.5, 1),
        make(Mark.EPOCH_END, 27.75, 1, "", metrics={"loss": 0.125}), make(Mark.RUN_END, 28.75, phase=""),
    ])  # fmt: skip
    loss = traced(ledger, "", "loss")
    assert loss == {n: 0.25 if n == 16 else float(n) for n in range(1, 31) if n != 17}
    assert 16 not in traced(ledger, GPU, "gpu.power")


def test_the_frames_of_a_killed_daemon_fill_an_epoch_that_nobody_wrote() -> None:
    ledger, make = Memory(), Course()
    events = make.epochs((2.0, 5.0), (5.0, 8.0))
    recorder = LedgerRecorder(ledger)
    recorder.add_earlier(frames([on(number, run_used=50.0, energy=100.0 * number) for number in range(7)]))
    ticks = [on(n, run_used=50.0, energy=100.0 * n) for n in range(7, 13)]
    keep(
        ledger,
        [ticks[0]._replace(boundaries=events[:-1]), ticks[1]._replace(boundaries=events[-1:]), *ticks[2:]],
        recorder,
    )
    for epoch in (0, 1):
        usage = ledger.usage(epoch)
        assert (usage["sampled"], usage["run_used_peak"]) == (3.0, 50.0)
        assert usage["energy"] == pytest.approx(300.0)


def test_runs_left_by_an_earlier_daemon_die_when_their_process_is_gone() -> None:
    left = {key: OpenRank("r", pid, "node1", TIME, {}, []) for key, pid in (("gone", 1), ("lives", 2))}
    ledger = Memory(StoredRuns({**left, "elsewhere": OpenRank("r", 1, "node2", TIME, {}, [])}, set(), {}))
    keep(ledger, [on(n) for n in range(6)], LedgerRecorder(ledger, is_alive=lambda pid: pid == 2))
    died = [dead for batch in ledger.batches for dead in batch.dead]
    assert [key for key, since in died if since >= TIME] == ["gone"]


def test_what_comes_before_the_ledger_is_open_is_not_lost() -> None:
    ledger = Memory()
    stored, ledger.stored = ledger.stored, None
    ticks = spread([on(n, energy=100.0 * n) for n in range(12)], one_epoch(2.0, 8.0))
    recorder = keep(ledger, ticks[:6], close=False)
    ledger.stored = stored
    keep(ledger, ticks[6:], recorder)
    assert ledger.row("epoch", KEY, 0)["seconds"] == 6.0
    assert ledger.usage(0)["energy"] == pytest.approx(600.0)


def test_an_id_that_another_user_or_an_earlier_run_has_is_not_shared() -> None:
    ledger = Memory(StoredRuns({}, set(), {"theirs": ("bob", None), "mine": ("alice", TIME)}))
    runs = [
        run(key="a", id="theirs", started=TIME / SECOND + 2), run(key="b", id="mine", started=TIME / SECOND + 2),
        run(key="c", id="mine", started=TIME / SECOND + 2, rank=1),
    ]  # fmt: skip
    keep(ledger, [tick(n, runs=runs) for n in range(4)])
    assert {row["key"]: row["run"] for row in ledger.all("rank")} == {"a": "theirs~2", "b": "mine~2", "c": "mine~2"}


def test_recordings_and_simulations_are_not_kept_and_a_withdrawn_run_is_forgotten() -> None:
    ledger = Memory()
    keep(ledger, [on(n)._replace(origin=Origin("sim", "SIMULATED", capabilities=SIMULATED)) for n in range(4)])
    assert ledger.rows == {}
    recorder = keep(ledger, [on(n) for n in range(4)], close=False)
    assert ("run", "resnet50-1a2b") in ledger.rows
    recorder.withdraw("resnet50-1a2b")
    assert ledger.batches[-1].withdrawn == ["resnet50-1a2b"]
    ledger.rows.clear()
    keep(ledger, [on(n) for n in range(4, 9)], recorder)
    assert ledger.rows == {}


def test_framework_memory_and_steps_of_the_rank_are_kept() -> None:
    ledger = Memory()
    mine = run(gpus=(GPU,), step=12, wait=3.0, memory=FrameworkMemory(peak=2.0**30, retries=2.0))
    keep(ledger, [on(n, of=mine, run_allocated=float(n), run_reserved=2.0 * n, run_used=3.0 * n) for n in range(5)])
    rank = ledger.row("rank", KEY)
    assert (rank["steps"], rank["wait"], rank["peak"], rank["retries"], rank["ooms"]) == (12, 3.0, 2.0**30, 2.0, None)


class Nowhere(Memory):
    """A ledger that forgets."""

    def put(self, batch: Batch) -> None:
        pass


@pytest.mark.parametrize("ticks", [2_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_memory_does_not_grow_with_the_length_of_a_run(ticks: int) -> None:
    recorder, make = LedgerRecorder(Nowhere()), Course()
    recorder.add(on(0, [make(Mark.RUN_BEGIN, 0, -1, "")]))
    blocks, epoch = [], 0
    for n in range(1, ticks + 1):
        events = []
        for begin, end in ((n - 0.8, n - 0.5), (n - 0.4, n - 0.1)) if ticks < 10_000 or n % 20 == 0 else ():
            events += [
                make(Mark.EPOCH_BEGIN, begin, epoch),
                make(Mark.EPOCH_END, end, epoch, "", metrics={"loss": end}),
            ]
            epoch += 1
        recorder.add(on(n, events, power=float(n % 7), energy=100.0 * n, utilization=n % 100 / 100))
        if n in (ticks // 2, ticks):
            gc.collect()
            blocks.append(sys.getallocatedblocks())
    assert blocks[1] < blocks[0] + 2_000, "an epoch that stays takes ten"
