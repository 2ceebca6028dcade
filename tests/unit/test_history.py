"""What charts draw of counters: rates over the time between two reads of the device itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf, isnan, nan

import pytest

from gpumon.common.clock import SECOND
from gpumon.model.energy import energy_between
from gpumon.model.frame import Frame
from gpumon.model.metrics import HOST_METRICS
from gpumon.recording.content import DecodedParts
from gpumon.storage.history.counters import rates_between
from gpumon.storage.history.query import Query
from gpumon.storage.history.recent import RecentHistory
from tests import builders

UUID = builders.device().uuid


def frames(reads: Sequence[float], *, stamped: bool = True) -> list[Frame]:
    """A frame each second; its device is read at `reads` (s), and sends 1 GB/s."""
    made = []
    for number, read in enumerate(reads, 1):
        when = round(read * SECOND)
        sample = builders.sample(0, pcie_sent=1e9 * read)
        sample = sample._replace(monotonic_ns=when - 1, counters_monotonic_ns=when) if stamped else sample
        made.append(
            Frame(
                number,
                number * SECOND,
                number * SECOND,
                1.0,
                0.0,
                0,
                0,
                DecodedParts((sample,), (0.0,) * len(HOST_METRICS), (), (), ()),
            )
        )
    return made


def rates(of: Sequence[Frame]) -> list[float]:
    history = RecentHistory()
    for frame in of:
        history.add(frame)
    return list(history.query(Query(UUID, ("gpu.pcie_sent",), 0.0, inf))["gpu.pcie_sent"].mean)


def test_a_device_that_was_read_late_has_the_rate_of_its_own_time() -> None:
    reads = [1.0, 2.0, 3.9, 4.0, 5.0]
    first, *others = rates(frames(reads))
    assert first != first
    assert others == pytest.approx([1e9] * 4)


def test_where_only_the_ticks_time_is_known_a_rate_is_over_that() -> None:
    assert rates(frames([1.0, 2.0, 3.0], stamped=False))[1:] == pytest.approx([1e9] * 2)


def test_two_frames_with_one_read_have_no_rate_between_them() -> None:
    found = rates(frames([1.0, 2.0, 2.0, 3.0]))
    assert [rate == rate for rate in found] == [False, True, False, True]


def test_a_device_that_was_not_read_for_long_has_a_gap_and_no_mean_over_it() -> None:
    reads = [1.0, 2.0, 2.0 + 3.5, 6.5]
    assert max(b - a for a, b in pairwise(reads)) == 3.5
    assert [rate == rate for rate in rates(frames(reads))] == [False, True, False, True]


def test_nothing_was_measured_while_the_machine_slept() -> None:
    made = frames([1.0, 2.0, 3.0, 4.0])
    for frame in made[2:]:  # the steady clock stood still meanwhile
        frame.time += 3600
    assert [rate == rate for rate in rates(made)] == [False, True, False, False, True]


@pytest.mark.parametrize("glitch", [2.0**62 / 1000, 1e6 + 4.29e6, 0.0], ids=str)
def test_a_glitch_of_the_energy_counter_is_no_rate(glitch: float) -> None:
    def frame(second: int, energy: float) -> Frame:
        one = builders.sample(0, energy=energy, power_limit=690.0)
        return builders.frame_of(builders.tick(second, [one]), second)

    made = [frame(second, glitch if second == 3 else 1e6 + 300.0 * second) for second in range(1, 7)]
    found = [rates_between(before, after, ["gpu.energy"])[UUID]["gpu.energy"] for before, after in pairwise(made)]
    assert [rate for rate in found if rate == rate] == [300.0] * 3
    history = RecentHistory(metrics=["gpu.energy"])
    for one in made:
        history.add(one)
    assert history.peak(UUID, "gpu.energy", 0.0, inf) == 300.0


def test_a_card_without_a_known_limit_may_draw_twelve_kilowatts_and_no_more() -> None:
    assert energy_between(0.0, 11_000.0, 1.0, nan) == 11_000.0
    assert isnan(energy_between(0.0, 19_000.0, 1.0, nan))
    assert isnan(energy_between(0.0, 19_000.0, 1.0, 4_294_967.0)), "nor one whose limit is garbage"
    assert isnan(energy_between(0.0, 4000.0, 1.0, 690.0))
    assert energy_between(0.0, 700.0, 0.01, 690.0) == 700.0, "drivers renew the counter in steps"
