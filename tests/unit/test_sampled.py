"""The child that asks the driver for `gpumon status`: whose silence is whose."""

from __future__ import annotations

import os
import select
import time
from threading import Timer

import pytest

from gpumon.cli import sampling


def test_a_child_that_is_slow_to_start_is_not_taken_for_a_driver_that_does_not_answer() -> None:
    reading, writing = os.pipe()

    def answer() -> None:
        os.write(writing, sampling._CALLING + sampling._DONE)
        os.close(writing)

    late = Timer(0.2, answer)
    late.start()
    assert sampling._read_message(reading, 0.05, lambda: None) == sampling._DONE
    late.join()
    os.close(reading)


def test_a_driver_that_was_asked_and_is_silent_has_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.write(writing, sampling._CALLING)
    assert sampling._read_message(reading, 0.05, lambda: None) is None
    monkeypatch.setattr(sampling, "_START_TIMEOUT", 0.05)
    assert sampling._read_message(reading, 3600.0, lambda: None) is None, "nor has one that nobody asked"
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize(("said", "longest"), [(b"", sampling._START_TIMEOUT), (sampling._CALLING, 2.0)])
def test_nobody_waits_longer_than_the_driver_has_for_its_answer(
    monkeypatch: pytest.MonkeyPatch, said: bytes, longest: float
) -> None:
    now = 1000.0
    waits = []

    class Poll:
        """Passes the time that is waited, and finds nothing but what is there."""

        def __init__(self) -> None:
            self._poll = poll()

        def register(self, fd: int, events: int) -> None:
            self._poll.register(fd, events)

        def poll(self, milliseconds: float) -> list[tuple[int, int]]:
            nonlocal now
            waits.append(milliseconds / 1000)
            found = self._poll.poll(0)
            now += 0.0 if found else milliseconds / 1000
            return found

    poll = select.poll
    monkeypatch.setattr(select, "poll", Poll)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    reading, writing = os.pipe()
    os.write(writing, said)
    assert sampling._read_message(reading, 2.0, lambda: None) is None
    assert now == pytest.approx(1000.0 + longest)
    assert len(waits) == 1 + len(said), "it sleeps until then"
    os.close(reading)
    os.close(writing)
