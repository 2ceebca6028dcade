"""Whatever is missing, stale or no number: the page is told no state, number or line that is not known."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.analysis.gpu_state import GpuState
from gpumon.model.frame import Sample, Tick
from gpumon.model.metrics import IDLE, PROCESSES, Availability
from gpumon.ring.layout import believable
from gpumon_web.charts.gpu_chart import GpuChartWindow, gpu_chart
from gpumon_web.components.holders import memory_parts
from tests.builders import TIME, device, process, sample, tick
from tests.fuzzing import examples
from tests.web.charted import lines
from tests.web.served import Served

CHARTED = ("utilization", "memory_used", "power", "temperature", "clock_sm")
_NUMBER = st.one_of(
    st.sampled_from([math.nan, math.inf, -math.inf, 0.0]), st.floats(0, 1e11), st.floats(allow_nan=True, width=32)
).map(lambda value: believable((value,))[0])  # a ring takes what no driver can mean for missing


@st.composite
def gpus(draw: st.DrawFn) -> Sample:
    """A GPU in any state, each of whose values may be anything."""
    names = (*CHARTED, "memory_total", "memory_reserved", "power_limit")
    known = draw(st.dictionaries(st.sampled_from(names), _NUMBER))
    missing = {PROCESSES: Availability.NO_PERMISSION} if draw(st.booleans()) else {}
    found = sample(0, draw(st.sampled_from([*Availability][1:])), **known)
    return found._replace(device=device(0, missing=missing), age=draw(st.sampled_from([0.0, 12.0])))


@st.composite
def frames(draw: st.DrawFn) -> list[Tick]:
    """A few ticks, with or without a process."""
    people = [process(user="", name="", memory_used=draw(_NUMBER))] if draw(st.booleans()) else []
    return [tick(number, [draw(gpus())], people) for number in range(1, draw(st.integers(2, 5)))]


def strict(text: bytes | str) -> Any:
    """JSON as a browser takes it."""
    return json.loads(text, parse_constant=lambda word: (_ for _ in ()).throw(AssertionError(word)))


@settings(max_examples=examples(150), deadline=None)
@given(frames())
def test_a_page_is_told_what_is_known_and_nothing_else(ticks: list[Tick]) -> None:
    served = Served(ticks, devices=1)
    strict(served.pages.answer("fleet", {}, "", 0).plain)
    sent = strict(served.pages.answer("gpu", {}, "", 0).plain)
    known = served.known()
    (gpu,) = known.gpus
    last = ticks[-1].samples[0]
    now = sent["series"]["lines"]
    utilization, used = last.value("gpu.utilization"), last.value("gpu.memory_used")
    if gpu.state.value in ("free", "busy", "idle", "allocated", "held"):
        assert last.state is Availability.OK
        assert math.isfinite(utilization)
    if gpu.status.is_empty:
        assert not ticks[-1].processes
        assert math.isfinite(used)
        assert not utilization >= IDLE
        assert PROCESSES not in last.device.missing
    if gpu.state is GpuState.FREE:
        assert utilization < IDLE
        assert math.isfinite(used)
        assert not ticks[-1].processes
        assert PROCESSES not in last.device.missing
    else:
        assert not any(note["text"].startswith("free") for note in known.findings)
    for key in CHARTED:
        value, shown = last.value(f"gpu.{key}"), now.get(f"gpu.{key}", [None])[-1]
        assert (shown is None) == (last.state is not Availability.OK or not math.isfinite(value)), key
    assert bool(gpu.last_known()) == (last.state is Availability.STALE)
    assert bool(gpu.processes_unknown) == (PROCESSES in last.device.missing)


@settings(max_examples=examples(100), deadline=None)
@given(frames())
def test_a_line_has_a_point_where_a_value_is_known_and_nowhere_else(ticks: list[Tick]) -> None:
    served = Served(ticks, devices=1)
    feed = served.feed
    feed.refresh()
    assert feed.frame is not None
    begin = TIME / 1e9
    window = GpuChartWindow(begin, begin + 100, panels=[f"gpu.{key}" for key in CHARTED])
    found = gpu_chart(feed.history, feed.epochs, feed.frame.samples[0], feed.frame.processes, 1.0, "", window)
    strict(json.dumps(found, allow_nan=False))
    for name, line in lines(found).items():
        key = name.removeprefix("gpu.")
        if key in CHARTED:
            known = [one.samples[0].state is Availability.OK and math.isfinite(one.samples[0].value(f"gpu.{key}"))
                     for one in ticks]  # fmt: skip
            assert [value is not None for value in line["mean"]] == known, key


@pytest.mark.parametrize("state", [Availability.LOST, Availability.STALE])
def test_where_a_gpu_does_not_answer_no_number_of_idle_ones_is_claimed(state: Availability) -> None:
    worked = [sample(index, utilization=0.9, memory_used=60 * 2.0**30, memory_total=80 * 2.0**30) for index in range(2)]
    silent = [worked[0], worked[1]._replace(state=state)]
    served = Served([tick(n, worked if n < 50 else silent, [process(7, 0)]) for n in range(1, 90)])
    values = served.told("fleet")["values"]
    assert (values["idle"], values["idle_below"]) == ("–", "unknown: GPU 1")
    # The memory of one that does not answer is of when it last did, and what was free of it is not free now.
    told = served.told("gpu", id="1")["values"]
    assert "free" not in [part["title"] for part in told["divided"]]
    if state is Availability.STALE:
        assert told["memory"]["text"] == "60.0 / 80.0 GiB as last reported"
        assert told["divided"][-1]["title"] == "free when last seen"


def test_gpus_whose_holders_are_unknown_are_not_counted_as_none_that_is_allocated_and_idle() -> None:
    silent = {PROCESSES: Availability.NO_PERMISSION}
    ticks = [tick(n, [sample(0, utilization=0.0)._replace(device=device(0, missing=silent))]) for n in range(1, 90)]
    values = Served(ticks, devices=1).told("fleet")["values"]
    assert (values["idle"], values["idle_below"]) == ("–", "unknown: GPU 0")


def test_that_no_process_is_on_a_gpu_is_said_of_now_alone() -> None:
    empty = [sample(0, utilization=0.0, memory_used=0.0, memory_total=80 * 2.0**30)]
    values = Served([tick(n, empty) for n in range(1, 9)], devices=1).told("gpu", id="0")["values"]
    assert values["who"] == [{"line": [{"text": "No process is on it.", "css": "mut", "now": True}], "css": ""}]


def test_a_total_that_is_next_to_nothing_fills_its_bar() -> None:
    (part,) = memory_parts([], 5e-324, 8e9)
    assert part["share"] == 1.0
