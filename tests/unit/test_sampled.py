"""The child that asks the driver for `gpumon status`: whose silence is whose."""

from __future__ import annotations

import os
from threading import Timer

import pytest

from gpumon.cli import sampled


def test_a_child_that_is_slow_to_start_is_not_taken_for_a_driver_that_does_not_answer() -> None:
    reading, writing = os.pipe()

    def answer() -> None:
        os.write(writing, sampled._ASKING + sampled._DONE)
        os.close(writing)

    late = Timer(0.2, answer)
    late.start()
    assert sampled._read(reading, 0.05) == sampled._DONE
    late.join()
    os.close(reading)


def test_a_driver_that_was_asked_and_is_silent_has_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.write(writing, sampled._ASKING)
    assert sampled._read(reading, 0.05) is None
    monkeypatch.setattr(sampled, "_STARTING", 0.05)
    assert sampled._read(reading, 3600.0) is None, "nor has one that nobody asked"
    os.close(reading)
    os.close(writing)
