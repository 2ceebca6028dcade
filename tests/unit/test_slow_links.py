"""A PCIe link that is slow under load: found while its GPU is in use, also in pauses, and alike in every view."""

from __future__ import annotations

from typing import cast

from gpumon.analysis.gpu_status import gpu_statuses
from gpumon.common.clock import SECOND
from gpumon.diagnosis.live_findings import JudgedFrame, earlier_frames, findings
from gpumon.live import Live
from gpumon.model.frame import Frame
from gpumon.storage.history.recent import RecentHistory
from tests.builders import frame_of, process, sample, tick

GIB = 2.0**30
LINK = {
    "memory_used": GIB, "memory_total": 80 * GIB, "pcie_generation": 4.0, "pcie_generation_max": 4.0,
    "pcie_width": 16.0, "pcie_width_max": 16.0,
}  # fmt: skip


class Ring:
    """A ring with all frames."""

    def __init__(self, frames: list[Frame]) -> None:
        self._frames = frames

    def since(self, number: int) -> list[Frame]:
        """Frames newer than `number`."""
        return self._frames[number:]


def links_found(*parts: tuple[int, float, float], interval: int = 1, pause: int = 0) -> list[bool]:
    """Whether a GPU's link is found slow after each part of its time: seconds, utilization and generation in it.

    Sampled each `interval` seconds, and between two parts not for `pause` seconds.
    """
    history, frames, found = RecentHistory(), [], []
    second = 0
    for seconds, busy, generation in parts:
        one = sample(0, **{**LINK, "utilization": busy, "pcie_generation": generation})
        for _ in range(0, seconds, interval):
            second += interval
            of = tick(second, [one], [process()], interval_ns=interval * SECOND)
            frames.append(frame_of(of, len(frames) + 1))
            history.add(frames[-1])
        second += pause
        kinds, told = (
            [one.kind for one in judged]
            for judged in (
                findings(gpu_statuses(frames[-1], []), [], None, frames[-1].time, history),
                JudgedFrame(frames[-1], earlier_frames(cast("Live", Ring(frames)), frames[-1])).findings(),
            )
        )
        assert ("slow_link" in told) == ("slow_link" in kinds), "status says what the views say"
        found.append("slow_link" in kinds)
    return found


def test_a_slow_link_is_reported_until_it_is_fast_under_load() -> None:
    checkpoint, load = (20, 0.0, 1.0), (60, 0.9, 3.0)
    assert links_found(load, checkpoint, (5, 0.9, 3.0), checkpoint, load) == [True] * 5
    assert links_found(load, (70, 0.0, 1.0), (60, 0.9, 4.0), checkpoint) == [True, True, False, False]
    assert links_found((60, 0.9, 4.0), checkpoint) == [False, False], "an idle link steps down"
    assert links_found(load, (540, 0.0, 1.0), (60, 0.0, 1.0)) == [True, True, False], "nobody knows after so long"


def test_gaps_do_not_count_as_load() -> None:
    load = (30, 0.9, 3.0)
    assert links_found(load, load) == [False, True]
    assert links_found(load, load, pause=12) == [False, False]
    assert links_found((120, 0.9, 3.0), interval=10) == [True], "a sample stands until the next"
    assert links_found((300, 0.9, 3.0), interval=30) == [False], "so seldom a look tells of no time"


def test_a_slow_link_of_a_free_gpu_is_no_finding() -> None:
    history = RecentHistory()
    for number in range(1, 70):
        values = {**LINK, "pcie_width": 8.0, "memory_used": 0.0, "utilization": 0.9 * (number < 61)}
        frame = frame_of(tick(number, [sample(0, **values)], [process()] if number < 61 else []))
        history.add(frame)
        found = findings(gpu_statuses(frame, []), [], None, frame.time, history)
        assert (number < 60) or ("slow_link" in [one.kind for one in found]) == (number == 60)
