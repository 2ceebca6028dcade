"""The cost of a command, from frames of which the ring has kept less and less."""

from __future__ import annotations

import pytest

from gpumon.common.clock import SECOND
from gpumon.launcher.summary import CommandCost
from tests.builders import device, frame_of, process, sample, tick


def test_a_gpu_counts_as_held_through_frames_that_do_not_know_its_processes() -> None:
    cost = CommandCost(SECOND, lambda pid: pid == 1, lambda run: False)
    for second in range(1, 11):
        held = [process(1, memory_used=2e9)]
        frame = frame_of(tick(second, [sample(0, utilization=0.5, energy=100.0 * second)], held), second)
        if 3 <= second < 8:  # as it is read after a pause of minutes
            frame = frame_of(tick(second, [sample(0, utilization=0.5, energy=100.0 * second)]), second)
            frame.is_full = False
        cost.add(frame)
    (use,) = cost.uses.values()
    assert cost.devices_in_use == (device(0).uuid,)
    assert (use.seconds, use.energy, use.memory_peak) == (9.0, pytest.approx(900.0), 2e9)


def test_nothing_is_held_before_a_frame_has_shown_who_holds_it() -> None:
    cost = CommandCost(SECOND, lambda pid: True, lambda run: False)
    for second in range(1, 5):
        frame = frame_of(tick(second, [sample(0, utilization=0.9)]), second)
        frame.is_full = False
        cost.add(frame)
    assert not cost.uses


def held_from_the_first_frame(first: int) -> CommandCost:
    """A command that began at 1 s and holds a GPU in all frames, the first of which was taken at `first` s."""
    cost = CommandCost(SECOND, lambda pid: True, lambda run: False)
    for second in range(first, first + 11):
        cost.add(frame_of(tick(second, [sample(0, energy=100.0 * second)], [process(1, memory_used=2e9)]), second))
    return cost


def test_what_a_command_used_before_the_first_frame_is_not_known() -> None:
    (use,) = held_from_the_first_frame(3).uses.values()
    assert (use.seconds, use.energy) == (10.0, pytest.approx(1000.0))
    assert (use.lacks_time, use.lacks_energy) == (True, True)


def test_a_command_that_frames_show_from_its_begin_on_lacks_nothing() -> None:
    (use,) = held_from_the_first_frame(1).uses.values()
    assert (use.lacks_time, use.lacks_energy) == (False, False)


def test_energy_of_a_part_of_the_time_is_at_least_that() -> None:
    cost = CommandCost(SECOND, lambda pid: True, lambda run: False)
    for second in range(1, 12):
        energy = 100.0 * second if second < 7 else float("nan")  # the counter is not read any more
        cost.add(frame_of(tick(second, [sample(0, energy=energy)], [process(1, memory_used=2e9)]), second))
    (use,) = cost.uses.values()
    assert (use.lacks_time, use.lacks_energy) == (False, True)


@pytest.mark.parametrize(("gap", "seen"), [(3, 9.0), (4, 6.0), (20, 6.0)])
def test_a_gap_between_frames_has_no_utilization(gap: int, seen: float) -> None:
    cost = CommandCost(SECOND, lambda pid: True, lambda run: False)
    for second in (1, 2, 3, 4, 4 + gap, 5 + gap, 6 + gap, 7 + gap):
        cost.add(frame_of(tick(second, [sample(0, utilization=0.5)], [process(1, memory_used=2e9)]), second))
    (use,) = cost.uses.values()
    assert (use.seen, use.seconds) == (seen, 6.0 + gap)
