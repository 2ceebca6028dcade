"""Utilization samples of a driver that writes some which cannot be."""

from __future__ import annotations

import ctypes
import struct
from math import inf, nan
from typing import Any

import pynvml
import pytest

from gpumon.sources.nvml.utilization import SampleBuffer
from tests.fakes import FakeClock

_LENGTH = 128


class _Driver:
    """A library whose buffer has these percents, one each 200 ms up to now."""

    def __init__(self, clock: FakeClock, percents: list[float]) -> None:
        newest = clock.time() // 1000
        self._data = b"".join(
            struct.pack("=Qd", newest - 200_000 * (len(percents) - place), percent)
            for place, percent in enumerate(percents)
        )

    def find(self, _: str) -> Any:
        return self._samples

    def _samples(self, _handle: object, _kind: object, _since: object, kind: Any, count: Any, buffer: Any) -> int:
        if buffer is None:
            count._obj.value = _LENGTH
            return 0
        kind._obj.value, count._obj.value = pynvml.NVML_VALUE_TYPE_DOUBLE, len(self._data) // 16
        ctypes.memmove(buffer, self._data, len(self._data))
        return 0


@pytest.mark.parametrize("wrong", [nan, inf, -1.0, 101.0, 2.0**63])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_sample_that_is_no_share_is_left_out_and_the_others_are_kept(wrong: float, place: int) -> None:
    clock, percents = FakeClock(), [0.0, 50.0, 100.0]
    percents.insert(place, wrong)
    buffer = SampleBuffer(_Driver(clock, percents))  # type: ignore[arg-type]
    assert [ratio for _, ratio in buffer.read(None, 1.0, clock)] == [0.0, 0.5, 1.0]
