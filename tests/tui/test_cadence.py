"""When the next frame is looked for."""

from __future__ import annotations

import pytest

from gpumon.common.clock import SECOND
from gpumon_tui.feed import INITIAL_DELAY, PollTimer

START = 1_000 * SECOND


def at(seconds: float) -> int:
    return START + round(seconds * SECOND)


def test_a_frame_is_looked_for_once_soon_after_it_is_due() -> None:
    cadence, now, looks = PollTimer(0.5), 0.3, []
    for frame in range(5):
        now += cadence.wait(at(frame), 1.0, at(now))
        looks.append(now)
    assert looks == pytest.approx(
        [1 + INITIAL_DELAY, 2 + INITIAL_DELAY, 3 + INITIAL_DELAY, 4 + INITIAL_DELAY, 5 + INITIAL_DELAY]
    )


def test_a_frame_that_is_late_is_looked_for_again_and_the_next_one_later() -> None:
    cadence = PollTimer(0.5)
    now = 0.3 + cadence.wait(at(0), 1.0, at(0.3))
    again = cadence.wait(at(0), 1.0, at(now))
    assert 0 < again <= 0.1
    assert cadence.wait(at(1), 1.0, at(now + again)) > 1 + INITIAL_DELAY - (now + again - 1)


@pytest.mark.parametrize("seconds", [5.0, 60.0, 3600.0])
def test_a_source_that_is_silent_is_looked_at_as_usual(seconds: float) -> None:
    cadence = PollTimer(0.5)
    cadence.wait(at(0), 1.0, at(0.3))
    assert cadence.wait(at(0), 1.0, at(seconds)) == 0.5


def test_a_silence_does_not_make_frames_late() -> None:
    cadence = PollTimer(0.5)
    cadence.wait(at(0), 1.0, at(0.3))
    for second in range(2, 60):
        cadence.wait(at(0), 1.0, at(second))
    assert cadence.wait(at(60), 1.0, at(60.2)) < 1.0


@pytest.mark.parametrize("newest", [0, START + 10**18, START - 10**18])
def test_frames_of_another_clock_are_looked_for_as_usual(newest: int) -> None:
    assert PollTimer(0.25).wait(newest, 1.0, START) == 0.25


def test_a_view_with_few_frames_is_looked_at_each_second_all_the_same() -> None:
    assert PollTimer(0.5).wait(at(0), 60.0, at(1)) == 1.0


def test_no_wait_is_so_short_that_it_takes_a_core() -> None:
    cadence = PollTimer(0.25)
    waits = [cadence.wait(at(0), 1.0, at(step / 100)) for step in range(300)]
    assert min(waits) >= 0.05
    assert cadence.wait(at(0), 0.1, at(0.05)) == 0.25
