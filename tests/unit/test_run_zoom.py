"""A stretch of a run with the samples of the last frames, and with kept cells behind them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from math import isnan, nan
from pathlib import Path

import pytest

from gpumon.common.clock import SECOND
from gpumon.reports.figures.run_series import RunSeries, zoom
from gpumon.storage.history.envelope import Envelope
from gpumon.storage.history.open import open_history
from gpumon.storage.history.query import MAX_POINTS
from gpumon.storage.history.tiered_history import TieredHistory
from gpumon.storage.history.tiers import SHAPES
from tests.builders import TIME, device, frame_of, sample, tick
from tests.months import fill

GPU = device().uuid
BEGIN = TIME / SECOND
BUSY = "gpu.utilization"


def watched(seconds: Iterable[float], stall: float = nan) -> TieredHistory:
    """The last frames, busy but for one of them."""
    history = open_history()
    for second in seconds:
        value = 0.0 if second == stall else 0.9
        of = tick(1, [sample(0, utilization=value)])
        at = round(second * SECOND)
        history.add(frame_of(of._replace(time_ns=TIME + at, monotonic_ns=at)))
    return history


def trace(begin: float = BEGIN, points: int = 20, step: float = 16.0, missing: Iterable[int] = ()) -> RunSeries:
    mean = [nan if place in missing else 0.8 for place in range(points)]
    return RunSeries(begin, step, {BUSY: Envelope(mean, mean, mean)})


def line(found: RunSeries | None) -> dict[float, float]:
    """The mean by the seconds after the begin of the run in the middle of a bucket."""
    assert found is not None
    mean = found.columns[BUSY].mean
    return {round(found.begun + (place + 0.5) * found.step - BEGIN, 2): value for place, value in enumerate(mean)}


def test_what_is_still_in_the_ring_is_shown_by_its_samples() -> None:
    found = zoom(trace(), watched(range(320), stall=100), GPU, BEGIN + 80, BEGIN + 120)
    assert found is not None
    assert found.step == 1
    assert [at for at, value in line(found).items() if value == 0] == [100.5]
    assert len(line(found)) == pytest.approx(40, abs=2)


def test_fast_samples_are_as_close_as_they_were_taken_and_never_more_than_the_bound() -> None:
    history = watched([place / 10 for place in range(3000)])
    near = zoom(trace(), history, GPU, BEGIN + 10, BEGIN + 30)
    whole = zoom(trace(), history, GPU, BEGIN, BEGIN + 300)
    assert near is not None
    assert whole is not None
    assert near.step == pytest.approx(0.1)
    assert whole.points <= MAX_POINTS
    assert not any(isnan(value) for value in line(near).values())


def test_a_gap_in_the_samples_is_one_although_the_trace_has_a_value_there() -> None:
    history = watched([*range(100), *range(110, 320)])
    found = line(zoom(trace(), history, GPU, BEGIN + 80, BEGIN + 130))
    assert all(isnan(found[second + 0.5]) for second in range(105, 110))
    assert found[90.5] == found[115.5] == pytest.approx(0.9)
    inside = zoom(trace(), history, GPU, BEGIN + 105.5, BEGIN + 109)
    assert all(isnan(value) for value in line(inside).values())


def test_where_the_run_did_not_have_the_gpu_its_values_are_not_the_runs() -> None:
    found = line(zoom(trace(missing=[5]), watched(range(320)), GPU, BEGIN + 64, BEGIN + 112))
    assert [isnan(value) for at, value in found.items() if at > 64.5] == [80 < at < 96 for at in found if at > 64.5]


def test_nothing_is_told_of_a_time_before_or_after_the_run() -> None:
    history = watched(range(1000))
    assert zoom(trace(), history, GPU, BEGIN + 400, BEGIN + 500) is None
    assert zoom(trace(), history, GPU, BEGIN - 500, BEGIN - 400) is None
    found = zoom(trace(), history, GPU, BEGIN - 1e11, BEGIN + 1e11)
    assert found is not None
    assert (found.begun, found.points * found.step) == (BEGIN, pytest.approx(320, abs=1))


def test_a_run_without_history_keeps_its_trace() -> None:
    assert zoom(trace(), open_history(), GPU, BEGIN, BEGIN + 100) is None
    assert zoom(trace(), watched(range(320)), device(7).uuid, BEGIN, BEGIN + 100) is None
    assert zoom(trace(), watched(range(2000, 2100)), GPU, BEGIN, BEGIN + 100) is None


def test_before_the_last_frames_there_are_cells_and_before_these_the_trace(tmp_path: Path) -> None:
    end = time.time() // 300 * 300
    begin = end - 4 * 3600
    path = str(tmp_path / "history.sqlite")

    def values(subject: str, name: str, at: float) -> tuple[float, float, float]:
        stalled = begin + 7260 <= at < begin + 7290
        return ((nan,) * 3 if stalled else (0.9,) * 3) if subject and name == BUSY else (nan,) * 3

    fill(path, [GPU], end, values, shapes=[SHAPES[1]._replace(keep=3 * 3600)])
    history = open_history()
    history.set_path(path)
    for second in range(13000, 14400):
        at = round((begin + second) * SECOND)
        history.add(frame_of(tick(1, [sample(0, utilization=0.5)])._replace(time_ns=at, monotonic_ns=second * SECOND)))
    run = trace(begin, points=225, step=64.0)
    cells = zoom(run, history, GPU, begin + 7000, begin + 7800)
    assert cells is not None
    assert cells.step == 10
    mean = cells.columns[BUSY].mean
    gaps = [cells.begun + (place + 0.5) * cells.step - begin for place, value in enumerate(mean) if isnan(value)]
    assert gaps == [7265, 7275, 7285], "the trace knows the time of one of its points only from what was sampled in it"
    both = zoom(run, history, GPU, begin + 12000, begin + 14000)
    assert both is not None
    assert {round(value, 2) for value in both.columns[BUSY].mean} >= {0.9, 0.5}
    early = zoom(run, history, GPU, begin + 3000, begin + 4000)
    assert early is not None
    assert {round(value, 2) for value in early.columns[BUSY].mean} == {0.8, 0.9}
    history.close()
