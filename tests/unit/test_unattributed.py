"""Memory of no listed process: claimed only where everything that it follows from is known."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpumon.common.numbers import NAN
from gpumon.diagnosis.live_findings import JudgedFrame
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.sources.nvml.processes import UNATTRIBUTED, set_unattributed
from gpumon.sources.nvml.values import DeviceValues
from tests.builders import frame_of, process, sample, tick
from tests.fakes import FakeClock

GIB = 2.0**30


def given(
    used: float | None, held: Sequence[float], reserved: float | None = GIB, why: Availability | None = None
) -> float | Availability:
    """The value, or why there is none."""
    answers = DeviceValues(FakeClock(), {UNATTRIBUTED: Availability.NOT_SUPPORTED})
    for name, value in (("gpu.memory_used", used), ("gpu.memory_reserved", reserved)):
        if value is not None:
            answers.values[name] = value
    if why is not None:
        answers.missing[PROCESSES] = why
    set_unattributed(answers, sum(held))
    if UNATTRIBUTED in answers.values:
        assert UNATTRIBUTED not in answers.missing
        return answers.values[UNATTRIBUTED]
    return answers.missing[UNATTRIBUTED]


@pytest.mark.parametrize(
    ("used", "held", "rest"),
    [
        (10 * GIB, [4 * GIB, GIB], 5 * GIB),
        (10 * GIB, [], 10 * GIB),
        (4 * GIB, [4 * GIB], 0.0),
        (4 * GIB, [4 * GIB + 1e6], 0.0),
    ],
)
def test_what_is_in_use_beyond_the_listed_processes_belongs_to_none_of_them(
    used: float, held: list[float], rest: float
) -> None:
    assert given(used, held) == rest


def test_nothing_is_claimed_where_a_part_is_not_known() -> None:
    assert given(10 * GIB, [4 * GIB, NAN]) is Availability.NOT_SUPPORTED, "memory of a process"
    assert given(None, [4 * GIB]) is Availability.NOT_SUPPORTED, "memory in use"
    assert given(10 * GIB, [4 * GIB], reserved=None) is Availability.NOT_SUPPORTED, "the driver's own is in it"
    assert given(10 * GIB, [], why=Availability.NO_PERMISSION) is Availability.NO_PERMISSION, "who else is there"
    assert given(4 * GIB, [3 * GIB, 3 * GIB]) is Availability.UNRELIABLE, "two processes share memory"


@pytest.mark.parametrize(("size", "is_told"), [(12 * GIB, True), (0.9 * GIB, False), (0.0, False), (NAN, False)])
def test_it_is_a_finding_from_the_threshold_on(size: float, is_told: bool) -> None:
    of = sample(0, utilization=0.5, memory_used=40 * GIB, memory_total=80 * GIB, memory_unattributed=size)
    found = JudgedFrame(frame_of(tick(1, [of], [process()])), (), True).findings()
    told = [finding for finding in found if finding.kind == "memory_unattributed"]
    assert [finding.summary for finding in told] == ["12.0 GiB held by no listed process"] * is_told
