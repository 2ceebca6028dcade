"""The sign that work is to end."""

from __future__ import annotations

from threading import Thread

from gpumon.common.clock import SECOND, StopSign, SystemClock


def test_who_waits_for_the_end_learns_of_it_at_once_and_each_time_after() -> None:
    stop, clock, seen = StopSign(), SystemClock(), list[bool]()
    waiting = Thread(target=lambda: seen.append(clock.wait(stop, clock.monotonic() + 60 * SECOND)))
    waiting.start()
    stop.set()
    waiting.join(30)
    assert seen == [True]
    stop.set()
    for _ in range(3):
        assert stop.is_set()
        assert stop.wait(60.0)
        assert clock.wait(stop, clock.monotonic() + 60 * SECOND)


def test_a_wait_ends_without_a_sign_when_its_time_is_over() -> None:
    stop, clock = StopSign(), SystemClock()
    until = clock.monotonic() + SECOND // 50
    assert not clock.wait(stop, until)
    assert clock.monotonic() >= until
    assert not clock.wait(stop, until - SECOND), "in the past"
    assert not stop.is_set()
