"""The simulation: the same for everybody, and right in itself."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from gpumon.common.clock import SECOND
from gpumon.common.errors import UsageError
from gpumon.common.paths import Places
from gpumon.common.text import clean
from gpumon.daemon.recorder import Recorder
from gpumon.daemon.sampler import make_sampler
from gpumon.live import Live, connect
from gpumon.model.frame import Boundary, Frame, Mark, RunState, Tick
from gpumon.model.metrics import GPU_METRICS, HOST_METRICS, Availability, Kind
from gpumon.model.origin import SIMULATED
from gpumon.sources.base import Reading
from gpumon.sources.sim import METRICS, SCENARIOS, SimSource
from gpumon.storage.events.run_watch import RunWatch
from tests.builders import tick
from tests.fakes import FakeClock

START = 5000 * SECOND


def watched(seconds: int, scenario: str = "default") -> list[Reading]:
    """Readings of the history and of so many seconds after it."""
    clock = FakeClock(START)
    source = SimSource(clock=clock, scenario=scenario)
    readings = list(source.read())
    for _ in range(seconds):
        clock.advance(1)
        readings.extend(source.read())
    return readings


@pytest.fixture(scope="module")
def long() -> list[Reading]:
    """The default server for its history and forty minutes."""
    return watched(2400)


@pytest.fixture(scope="module")
def past(long: list[Reading]) -> list[Reading]:
    """Its history alone."""
    return long[:601]


@cache
def minute(scenario: str) -> list[Reading]:
    """The history of a scenario, and the minute after it."""
    return watched(60, scenario)


def last(scenario: str) -> Reading:
    """The last reading of the history of a scenario."""
    return minute(scenario)[600]


def test_it_says_that_it_is_simulated() -> None:
    source = SimSource(clock=FakeClock(START))
    assert (source.origin().label, source.capabilities) == ("SIMULATED", SIMULATED)


def test_it_runs_on_a_machine_that_has_been_up_for_a_minute() -> None:
    clock = FakeClock(60 * SECOND)
    recorder = Recorder(make_sampler("sim", Places(), clock, 1.0), clock)
    recorder.sample_once()
    live = Live(recorder.open_ring)
    frames = live.since(0)
    assert (len(frames), frames[0].monotonic_ns, frames[-1].monotonic_ns) == (601, -540 * SECOND, 60 * SECOND)
    assert len(frames[0].samples) == len(frames[-1].samples) > 0
    assert any(boundary.monotonic_ns < 0 for frame in frames for boundary in frame.boundaries)
    assert len(live.window("10m")) == 600
    live.close()
    recorder.close()


def test_a_follower_never_takes_the_made_up_minutes_for_now(tmp_path: Path) -> None:
    clock = FakeClock(START)
    recorder = Recorder(make_sampler("sim", Places(), clock, 1.0), clock, str(tmp_path))
    live = connect(str(tmp_path))
    seen: list[Frame | None] = []

    class Looks:
        name, writes, problem = "looks", "looks", ""

        def add(self, tick: Tick) -> None:
            seen.append(live.latest())

        def close(self) -> None:
            pass

    recorder.followers.append(Looks())
    recorder.sample_once()
    newest = live.latest()
    assert (len(seen), set(seen)) == (601, {None})
    assert newest is not None
    assert (newest.number, newest.monotonic_ns) == (601, START)
    live.close()
    recorder.close()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("ring.")]


def test_the_first_read_has_ten_minutes(long: list[Reading]) -> None:
    readings = long[:602]
    assert {b.monotonic_ns - a.monotonic_ns for a, b in pairwise(readings)} == {SECOND}
    assert {b.time_ns - a.time_ns for a, b in pairwise(readings)} == {SECOND}
    assert readings[600].monotonic_ns == START


def test_a_moment_is_a_pure_function_of_time_and_seed(past: list[Reading]) -> None:
    one, other = SimSource(clock=FakeClock(START)), SimSource(clock=FakeClock(START))
    one.read()
    for moment in (START + 7 * SECOND, START - 300 * SECOND, START + 10**6 * SECOND):
        # repr, because NaN is not equal to itself
        assert repr(one.reading_at(moment, 1)) == repr(other.reading_at(moment, 1)) == repr(one.reading_at(moment, 1))
    assert repr(watched(0)[-60:]) == repr(past[-60:])
    assert repr(SimSource(clock=FakeClock(START), seed=1).reading_at(START, 1)) != repr(one.reading_at(START, 1))


def test_energy_is_the_sum_of_power() -> None:
    source = SimSource(clock=FakeClock(START))
    tenths = [source.reading_at(START + i * SECOND // 10, 0) for i in range(1001)]
    for gpu in range(8):
        used = tenths[-1].samples[gpu].value("gpu.energy") - tenths[0].samples[gpu].value("gpu.energy")
        summed = sum(reading.samples[gpu].value("gpu.power") for reading in tenths[:-1]) / 10
        assert used == pytest.approx(summed, rel=0.01)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_counters_only_grow_and_values_are_possible(scenario: str) -> None:
    readings = minute(scenario)
    counts = [i for i, metric in enumerate(GPU_METRICS) if metric.kind is Kind.COUNTER and metric.name in METRICS]
    hosts = [i for i, metric in enumerate(HOST_METRICS) if metric.kind is Kind.COUNTER]
    for before, after in pairwise(readings):
        assert before.host is not None
        assert after.host is not None
        assert all(after.host[i] >= before.host[i] for i in hosts)
        for old, new in zip(before.samples, after.samples, strict=True):
            if new.state is Availability.ASLEEP:
                assert all(map(math.isnan, new.values)), "nobody wakes it to ask"
                continue
            assert all(new.values[i] >= old.values[i] for i in counts)
            assert 0 <= new.value("gpu.utilization") <= 1
            assert 60 < new.value("gpu.power") < 700
            assert 25 < new.value("gpu.temperature") < 83
            assert new.value("gpu.memory_used") < new.value("gpu.memory_total")
            assert math.isnan(new.value("gpu.fan"))
            assert new.device.missing["gpu.fan"] is Availability.NOT_SUPPORTED


def test_performance_counters_fit_the_load_and_each_other() -> None:
    source = SimSource(clock=FakeClock(START))
    for second in range(0, 200, 3):
        for gpu, of in enumerate(source.reading_at(START + second * SECOND, 0).samples):
            assert of.value("gpu.graphics_activity") == pytest.approx(of.value("gpu.utilization"), abs=0.02)
            assert of.value("gpu.sm_occupancy") <= of.value("gpu.sm_activity") <= of.value("gpu.graphics_activity")
            assert of.value("gpu.tensor_activity") <= of.value("gpu.sm_activity")
            assert of.value("gpu.temperature_margin") == 87 - of.value("gpu.temperature")
            assert of.value("gpu.utilization_low") <= 1 - of.value("gpu.idle_share") * 0.95
            assert abs(of.value("gpu.power_instant") - of.value("gpu.power")) <= 4
            assert of.value("gpu.power_instant") < of.value("gpu.power_limit")
            assert (of.value("gpu.nvlink_sent_rate") > 0) is (gpu < 4), "one run has several GPUs"
            assert of.value("gpu.pcie_width") == of.value("gpu.pcie_width_max")


def test_rates_are_what_the_counters_grow_by() -> None:
    source = SimSource(clock=FakeClock(START))
    tenths = [source.reading_at(START + i * SECOND // 10, 0).samples[0] for i in range(601)]
    for name in ("pcie_sent", "pcie_received", "nvlink_sent", "nvlink_received"):
        grown = tenths[-1].value(f"gpu.{name}") - tenths[0].value(f"gpu.{name}")
        assert grown == pytest.approx(sum(one.value(f"gpu.{name}_rate") for one in tenths[:-1]) / 10, rel=0.01)


def test_a_stall_shorter_than_a_sample_shows_in_the_seconds_after_it() -> None:
    source = SimSource(clock=FakeClock(START))
    seen = [source.reading_at(START + i * SECOND, 0).samples[0] for i in range(300)]
    lows = [of.value("gpu.utilization_low") for of in seen]
    assert min(lows) == 0.04, "checkpoints"
    assert max(lows) > 0.9, "training"
    assert all(len(set(lows[i : i + 8])) <= 2 for i in range(0, 300, 8))


def test_a_simulation_of_faults_has_them_as_findings_and_xid_errors() -> None:
    readings = minute("faults")[:601]
    samples = readings[-1].samples
    assert samples[2].value("gpu.nvlink_active") < samples[1].value("gpu.nvlink_active")
    assert samples[3].value("gpu.pcie_width") < samples[3].value("gpu.pcie_width_max")
    assert samples[6].value("gpu.ecc_uncorrected") == 1
    assert readings[200].samples[6].value("gpu.ecc_uncorrected") == 0, "not from the beginning"
    events = [event for reading in readings for event in reading.xids]
    assert [(event.uuid, event.code) for event in events] == [(samples[6].device.uuid, 94)] * 2
    assert all(
        reading.monotonic_ns - SECOND < event.monotonic_ns <= reading.monotonic_ns
        for reading in readings
        for event in reading.xids
    )
    assert [sample.value("gpu.xid") for sample in samples] == [0] * 6 + [94, 0]


def test_the_default_server_has_an_error_of_an_application_now_and_then_and_no_fault(long: list[Reading]) -> None:
    readings = long[:1801]
    assert [event.code for reading in readings for event in reading.xids] == [31]
    assert {sample.value("gpu.xid") for reading in readings for sample in reading.samples} == {0}


def test_what_a_card_of_this_kind_reports_is_simulated_and_the_rest_says_that_it_is_not(past: list[Reading]) -> None:
    (sample, *_) = past[-1].samples
    lacking = {name for name, why in sample.device.missing.items() if why is Availability.NOT_SUPPORTED}
    assert lacking == {
        "gpu.fan", "gpu.retirement_pending", "gpu.temperature_slowdown", "gpu.temperature_shutdown",
    }  # fmt: skip


def test_the_gpu_of_a_laptop_sleeps() -> None:
    (sample,) = last("laptop").samples
    assert sample.state is Availability.ASLEEP


def test_the_default_server_is_what_the_screens_need(past: list[Reading]) -> None:
    reading = past[-1]
    assert [sample.run != "" for sample in reading.samples] == [True] * 4 + [False, True, False, False]
    runs = {(r.name, r.user, r.world_size) for r in reading.runs}
    assert runs == {("llama-8b-sft", "alice", 4), ("resnet50", "bob", 1)}
    assert len({r.id for r in reading.runs if r.name == "llama-8b-sft"}) == 1
    assert reading.samples[6].value("gpu.memory_used") > 40 * 2**30
    assert reading.samples[6].value("gpu.utilization") == 0
    assert reading.samples[7].value("gpu.memory_used") < 2**24
    assert {p.run for p in reading.processes} - {""} == {r.key for r in reading.runs}


def test_temperature_follows_power_with_a_lag() -> None:
    source = SimSource(clock=FakeClock(START))
    readings = [source.reading_at(START + i * SECOND, 0).samples[0] for i in range(190)]
    dip = min(range(190), key=lambda i: readings[i].value("gpu.power"))
    coldest = min(range(max(0, dip - 20), min(190, dip + 40)), key=lambda i: readings[i].value("gpu.temperature"))
    assert coldest >= dip


def test_boundaries_are_numbered_without_a_gap_and_fit_the_runs(long: list[Reading]) -> None:
    by_run: dict[str, list[Boundary]] = {}
    for reading in long:
        for boundary in reading.boundaries:
            by_run.setdefault(boundary.run, []).append(boundary)
            assert reading.monotonic_ns - SECOND < boundary.monotonic_ns <= reading.monotonic_ns
            assert reading.time_ns - boundary.time_ns == reading.monotonic_ns - boundary.monotonic_ns
    for found in by_run.values():
        assert [boundary.number for boundary in found] == list(range(1, len(found) + 1))
        assert [b.mark for b in found[:2]] == [Mark.RUN_BEGIN, Mark.EPOCH_BEGIN]
        assert all(b.wait >= a.wait and b.step >= a.step for a, b in pairwise(found))
        # A phase in which nothing waits has no wait, not one of rounding: it would count as measured.
        assert {b.wait == a.wait for a, b in pairwise(found) if a.phase == "validate"} == {True}
    ended = [found for found in by_run.values() if found[-1].mark is Mark.RUN_END]
    assert [found[-1].epoch for found in ended] == [90]  # resnet50, which counts from 1, after 90 epochs of 20 s
    for reading in long[::7]:
        for run in reading.runs:
            past = [b for b in by_run[run.key] if b.monotonic_ns <= reading.monotonic_ns]
            begun = [b for b in past if b.mark is Mark.EPOCH_BEGIN][-1]
            assert run.epoch == begun.epoch
            assert run.epoch_started == pytest.approx(begun.time_ns / SECOND)
            assert run.phase == [b for b in past if b.phase][-1].phase


def test_losses_fall_and_accuracy_rises(past: list[Reading]) -> None:
    early, late = ({run.name: run.metrics for run in past[i].runs} for i in (30, 600))
    assert all(late[name]["loss"] < early[name]["loss"] for name in late)
    assert late["resnet50"]["accuracy"] > early["resnet50"]["accuracy"]


@pytest.mark.parametrize(
    ("scenario", "gpus", "runs"),
    [("idle", 8, 0), ("one", 1, 1), ("sixteen", 16, 13), ("faults", 8, 5), ("hostile", 8, 5)],
)
def test_each_scenario_has_its_gpus_and_runs(scenario: str, gpus: int, runs: int) -> None:
    reading = last(scenario)
    assert (len(reading.samples), len(reading.runs)) == (gpus, runs)


def test_hostile_names_are_cleaned_but_keep_markup_and_wide_letters() -> None:
    hostile = last("hostile")
    names = {p.name for p in hostile.processes} | {r.name for r in hostile.runs} | {p.user for p in hostile.processes}
    names |= {s.device.name for s in hostile.samples}
    assert all(clean(name) == name for name in names)
    assert any("[red]x[/]" in name for name in names)
    assert any("学習" in name for name in names)


def test_an_unknown_scenario_names_those_there_are() -> None:
    with pytest.raises(UsageError, match="default, idle, one, laptop, sixteen, faults, hostile"):
        SimSource(clock=FakeClock(0), scenario="nope")


def test_a_run_that_ends_is_shown_for_a_minute_and_its_end_is_an_event(long: list[Reading]) -> None:
    readings = long[:1901]
    seen = [(reading, run) for reading in readings for run in reading.runs if run.state is RunState.FINISHED]
    assert {run.name for _, run in seen} == {"resnet50"}
    assert 59 <= len(seen) <= 61
    reading, run = seen[0]
    assert (run.epoch_text, run.updated) == ("90/90", pytest.approx(reading.time_ns / SECOND, abs=1.0))
    watch, told = RunWatch(), []
    for reading in readings[-200:]:
        told += watch.add(tick(runs=reading.runs, boundaries=reading.boundaries)._replace(
            monotonic_ns=reading.monotonic_ns, time_ns=reading.time_ns
        ))  # fmt: skip
    assert ("run_ended", run.id) in {(event.kind, event.subject.run) for event in told}
