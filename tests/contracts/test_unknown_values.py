"""What a frame does not prove is claimed nowhere: `status` and its JSON, the browser's feed, lines of charts."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from math import isfinite, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.analysis.gpu_state import GpuState
from gpumon.common.clock import SECOND
from gpumon.model.frame import Sample
from gpumon.model.metrics import BY_NAME, GPU_METRICS, IDLE, PROCESSES, Availability
from gpumon.model.origin import Driver, Origin
from gpumon.reports.status_json import document
from gpumon.reports.status_text import lines
from gpumon.storage.history.query import Query
from gpumon.storage.history.recent import RecentHistory
from gpumon_tui.render.axis import value_axis
from gpumon_tui.render.cells import EMPTY
from gpumon_tui.render.line_plot import Columns, plot
from gpumon_tui.render.time_axis import HOLD, live_columns
from tests.builders import frame_of, sample, tick
from tests.unknowns import any_tick, proves_free, same_tick, through_a_ring, wrong
from tests.web.served import Served

SEEDS = st.integers(0, 2**32)
GPUS = 4


@given(SEEDS, st.booleans())
def test_status_claims_nothing_that_the_frame_does_not_prove(seed: int, live: bool) -> None:
    now = any_tick(random.Random(seed), 5, GPUS)
    said = list(lines(through_a_ring(now), Origin("nvml"), Driver(), "node", "", live=live))
    for one in now.samples:
        row = next(line for line in said if line.startswith(f"{one.device.index:>3}  "))
        assert wrong(row, one, now.processes, live) == [], row


@given(SEEDS)
def test_json_has_null_for_what_is_unknown_and_no_list_of_processes_that_was_not_read(seed: int) -> None:
    now = any_tick(random.Random(seed), 5, GPUS)
    found = json.loads(
        json.dumps(document(through_a_ring(now), Origin("nvml"), Driver(), "node", None), allow_nan=False)
    )
    for one, row in zip(now.samples, found["gpus"], strict=True):
        assert row["state"] == one.state.name.lower()
        for metric, value in zip(GPU_METRICS, one.values, strict=True):
            assert (row[metric.key] is None) == (not isfinite(value)), metric.name
        listed = [process for process in now.processes if process.uuid == one.device.uuid]
        if PROCESSES in one.device.missing and not listed:
            assert row["processes"] is None
        else:
            assert [process["pid"] for process in row["processes"]] == [process.pid for process in listed]


@given(SEEDS, st.integers(1, 3))
def test_the_feed_of_the_browser_claims_nothing_that_the_frame_does_not_prove(seed: int, repeats: int) -> None:
    now = any_tick(random.Random(seed), 1, GPUS)
    served = Served([same_tick(now, number) for number in range(1, repeats + 1)], devices=GPUS)
    told = served.known()
    for one, gpu in zip(now.samples, told.gpus, strict=True):
        state, utilization = gpu.state, one.value("gpu.utilization")
        works = isfinite(utilization) and utilization >= IDLE
        assert state is not GpuState.FREE or proves_free(one, now.processes)
        assert state is not GpuState.BUSY or works
        assert state is not GpuState.HELD, "nobody has watched for a minute"
        if state in (GpuState.BUSY, GpuState.ALLOCATED, GpuState.IDLE, GpuState.FREE):
            assert one.state is Availability.OK
            assert isfinite(utilization)
        assert gpu.status.since is None or not works
        lines = served.told("gpu", id=one.device.uuid)["series"]["lines"]
        assert lines
        for name, column in lines.items():
            is_known = one.state is Availability.OK and isfinite(one.value(name))
            assert [value is not None for value in column] == [is_known] * len(column), name


PATTERN = st.lists(st.sampled_from((0.0, 0.5, 1.0, nan, None)), min_size=2, max_size=60)
"""Utilization by the second; None where no frame came."""
STEADY = [0.5] * 8
"""What came before: a view takes the distance of frames from them."""


def history_of(pattern: list[float | None]) -> tuple[RecentHistory, dict[int, float]]:
    """The history of such frames, and each second's value where one is known."""
    history, known = RecentHistory(), {}
    for second, value in enumerate([*STEADY, *pattern], start=1):
        if value is not None:
            history.add(frame_of(tick(second, [sample(0, utilization=value)])))
            if value == value:
                known[second] = value
    return history, known


BEGIN = tick(0).time_ns / SECOND


@given(PATTERN)
def test_a_line_in_the_browser_has_no_point_and_no_bridge_where_nothing_was_measured(
    pattern: list[float | None],
) -> None:
    history, known = history_of(pattern)
    query = Query(sample().device.uuid, ["gpu.utilization"], BEGIN, BEGIN + 100)
    found = history.query(query)["gpu.utilization"]
    drawn = [(round(time - BEGIN, 3), value) for time, value in zip(found.times, found.mean, strict=True)]
    assert {at: value for at, value in drawn if value == value} == known
    for (at, value), (after, next_value) in pairwise(drawn):
        if value == value and next_value == next_value:
            assert after - at <= 3, "a line across a gap"


@given(PATTERN)
def test_a_chart_in_the_terminal_is_blank_where_nothing_was_measured(pattern: list[float | None]) -> None:
    history, known = history_of(pattern)
    grid = live_columns(60.0, 60, BEGIN + len(STEADY) + len(pattern))
    drawn = Columns().get(history, sample().device.uuid, ["gpu.utilization"], grid, until=grid.end, interval=1.0)
    dots = drawn["gpu.utilization"].mean
    for half, value in enumerate(dots):
        begin = grid.begin + half * grid.step / 2 - BEGIN
        near = [second for second in known if begin - HOLD <= second <= begin + grid.step / 2]
        assert value != value or near, f"half a column {half} shows {value} where nothing was measured"
    picture = plot(drawn["gpu.utilization"], value_axis(BY_NAME["gpu.utilization"], 1.0), 4, "util")
    for cell in range(grid.buckets):
        if all(value != value for value in dots[2 * cell : 2 * cell + 2]):
            assert {row[cell] for row in picture} == {EMPTY}


@pytest.mark.parametrize("state", [state for state in Availability if state is not Availability.OK])
def test_values_of_a_gpu_that_does_not_answer_are_in_no_column(state: Availability) -> None:
    history = RecentHistory()
    silent = Sample(sample().device, state, [nan] * len(GPU_METRICS))
    history.add(frame_of(tick(1, [silent])))
    assert not history.has(sample().device.uuid, "gpu.utilization")
