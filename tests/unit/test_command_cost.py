"""The cost of a command, from frames of which the ring has kept less and less."""

from __future__ import annotations

import pytest

from gpumon.clock import SECOND
from gpumon.launcher.cost import CommandCost
from tests.builders import device, frame_of, process, sample, tick


def test_a_gpu_counts_as_held_through_frames_that_do_not_know_its_processes() -> None:
    cost = CommandCost(SECOND, lambda pid: pid == 1, lambda run: False)
    for second in range(1, 11):
        held = [process(1, memory_used=2e9)]
        frame = frame_of(tick(second, [sample(0, utilization=0.5, energy=100.0 * second)], held), second)
        if 3 <= second < 8:  # as it is read after a pause of minutes
            frame = frame_of(tick(second, [sample(0, utilization=0.5, energy=100.0 * second)]), second)
            frame.is_full = False
        cost.take(frame)
    (use,) = cost.uses.values()
    assert cost.holding == (device(0).uuid,)
    assert (use.seconds, use.energy, use.memory_peak) == (9.0, pytest.approx(900.0), 2e9)


def test_nothing_is_held_before_a_frame_has_shown_who_holds_it() -> None:
    cost = CommandCost(SECOND, lambda pid: True, lambda run: False)
    for second in range(1, 5):
        frame = frame_of(tick(second, [sample(0, utilization=0.9)]), second)
        frame.is_full = False
        cost.take(frame)
    assert not cost.uses
