"""The NVIDIA source where something in it fails that nobody thought of: it says so, and goes on."""

from __future__ import annotations

import pytest

from gpumon.sources.base import timeout_for
from gpumon.sources.nvml import library
from gpumon.sources.nvml.library import Library
from gpumon.sources.nvml.source import NvmlSource
from tests.fakes import FakeClock, Inline


def nobody(pid: int) -> tuple[str, str, float, float, float]:
    return "", "", 0.0, 0.0, 0.0


def broken() -> Library:
    raise ValueError("a library of cheese")


def test_a_look_for_gpus_that_fails_is_a_problem_and_no_end() -> None:
    clock = FakeClock()
    source = NvmlSource(clock, nobody, broken, executor=Inline())
    for _ in range(3):
        (reading,) = source.read()
        assert list(reading.samples) == []
        assert source.origin().problem == "the search for GPUs failed: a library of cheese"
        clock.advance(5)
    source.close()


def test_a_tick_never_waits_for_a_gpu_as_long_as_to_the_next() -> None:
    for interval in (0.01, 0.1, 0.5, 1.0, 60.0):
        assert timeout_for(interval) < interval
        assert timeout_for(interval) <= 0.5


@pytest.mark.parametrize(
    ("reason", "has_card", "lacks_card"),
    [
        ("libnvidia-ml.so.1: cannot open shared object file: No such file or directory", False, True),
        ("libnvidia-ml.so.1: cannot open shared object file: No such file or directory", True, False),
        ("libnvidia-ml.so.1: file too short", False, False),  # a sandbox may hide the bus but not the driver
    ],
)
def test_a_machine_with_neither_a_driver_nor_a_card_is_known_as_such(
    monkeypatch: pytest.MonkeyPatch, reason: str, *, has_card: bool, lacks_card: bool
) -> None:
    class Absent:
        @property
        def current(self) -> None:
            raise OSError(reason)

    monkeypatch.setattr(library, "SHARED", Absent())
    monkeypatch.setattr(library, "may_have_gpu", lambda: has_card)
    source = NvmlSource(FakeClock(), nobody, executor=Inline())
    source.read()
    assert (bool(source.origin().problem), source.origin().lacks_card) == (True, lacks_card)
    assert source.origin() is source.origin()
