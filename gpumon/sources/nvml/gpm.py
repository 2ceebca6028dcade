"""GPM, the performance counters of Hopper and newer: what each part of a GPU did between two samples.

The driver hands out samples of counters, and calculates the means of the time between two of them. No root is needed.
See `docs/operating.md` for what else reads these counters.
"""

from __future__ import annotations

import struct
import weakref
from ctypes import byref, c_void_p
from operator import truediv
from typing import Any

import pynvml

from gpumon.common.clock import SECOND
from gpumon.model.metrics import BY_NAME, Availability, Unit
from gpumon.sources.nvml.library import NOT_SUPPORTED, SUCCESS, Function, GpmPair, Library, availability
from gpumon.sources.nvml.values import DeviceAnswers

GPM_EVERY = 1.0
"""Seconds between two samples, whatever the interval between ticks: two calls a second, and a mean of a second."""
_CLOSEST = SECOND // 10
"""ns: the driver renews its counters about as often, so samples that are closer tell nothing (nvml.h)."""

GPM: dict[str, int] = {
    "gpu.graphics_activity": 1,
    "gpu.sm_activity": 2,
    "gpu.sm_occupancy": 3,
    "gpu.tensor_activity": 5,
    "gpu.fp64_activity": 11,
    "gpu.fp32_activity": 12,
    "gpu.fp16_activity": 13,
    "gpu.dram_activity": 10,
    "gpu.pcie_sent_rate": 20,
    "gpu.pcie_received_rate": 21,
    "gpu.nvlink_sent_rate": 61,
    "gpu.nvlink_received_rate": 60,
}
"""NVML_GPM_METRIC_...: numbers that mean the same in every nvml.h since 525, the first with GPM."""
GPM_METRICS = tuple(GPM)
GPM_OFF = dict.fromkeys(GPM_METRICS, Availability.SWITCHED_OFF)
"""Metrics that a library withholds where GPM is switched off, and why."""
_IS_SHARE = tuple(BY_NAME[name].unit is Unit.RATIO for name in GPM)
"""Percent from the driver; the others are MiB a second."""
_SHARES = sum(_IS_SHARE)
"""They come first."""
_DIVISORS = tuple(100.0 if is_share else 2.0**-20 for is_share in _IS_SHARE)
_WHOLE, _MOST_PERCENT, _MOST_MIB = 100.0, 100.5, 1e7
"""Beyond rounding, a share ends at 100; no GPU has links as fast as the other."""

_RESULTS = struct.Struct("=" + "4xid24x" * len(GPM))
"""Of each nvmlGpmMetric_t the return code and the value; its number stands before, the names of its unit behind."""


class GpmReading:
    """GPM of one device, in buffers that are kept. Gives means since the read before; the first one has none."""

    def __init__(self, library: Library, functions: tuple[Function, Function, Function]) -> None:
        self._library = library
        self._support, self._sample, self._calculate = functions
        self._pair: GpmPair | None = None
        self._newest = 0
        self._taken_at = 0
        self._forgotten = 0
        record = pynvml.c_nvmlGpmMetricsGet_t()
        record.version, record.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(GPM)
        for place, number in enumerate(GPM.values()):
            record.metrics[place].metricId = number
        self._record = record
        self._pointer = byref(record)
        self._samples = (c_void_p * 2).from_buffer(record, type(record).sample1.offset)
        self._results_at = type(record).metrics.offset

    @classmethod
    def make(cls, library: Library) -> GpmReading | None:
        """GPM of one device of this driver; None where the driver has no GPM."""
        names = ("nvmlGpmQueryDeviceSupport", "nvmlGpmSampleGet", "nvmlGpmMetricsGet")
        support, sample, calculate = (library.find(name) for name in names)
        if support is None or sample is None or calculate is None:
            return None
        return cls(library, (support, sample, calculate))

    def __call__(self, handle: Any, answers: DeviceAnswers) -> int:
        """Take a sample, and fill in the means since the one before. A metric fails alone."""
        pair = self._pair
        if pair is None:
            code, pair = self._begin(handle)
            if pair is None:
                return code
        if answers.forgotten != self._forgotten:  # counters of a device that was reset start anew
            self._forgotten, self._taken_at = answers.forgotten, 0
        older = 1 - self._newest
        pair.in_use = True
        try:
            code = self._sample(handle, pair.samples[older])
            at = answers.clock.monotonic()
            if code != SUCCESS:
                self._taken_at = 0
                return code
            if not self._taken_at:
                self._newest, self._taken_at = older, at
                for name in GPM_METRICS:
                    answers.lack(name, Availability.TOO_EARLY)
                return code
            if at - self._taken_at < _CLOSEST:
                return code  # the values of the newest sample hold; the next one is written over this one
            self._samples[0], self._samples[1] = pair.samples[self._newest].value, pair.samples[older].value
            code = self._calculate(self._pointer)
        finally:
            pair.in_use = False
        self._newest, self._taken_at = older, at
        if code == SUCCESS:
            self._fill_in(answers)
        return code

    def _begin(self, handle: Any) -> tuple[int, GpmPair | None]:
        """Ask whether this device has GPM, and borrow the buffers."""
        support = pynvml.c_nvmlGpmSupport_t()
        support.version = pynvml.NVML_GPM_SUPPORT_VERSION
        code = self._support(handle, byref(support))
        if code == SUCCESS and not support.isSupportedDevice:
            code = NOT_SUPPORTED
        if code != SUCCESS:
            return code, None
        code, pair = self._library.gpm_samples.borrow()
        if pair is not None:
            self._pair = pair
            # A call that hangs keeps this object alive, and so its buffers, until it returns.
            weakref.finalize(self, self._library.gpm_samples.give_back, pair).atexit = False
        return code, pair

    def _fill_in(self, answers: DeviceAnswers) -> None:
        found = _RESULTS.unpack_from(self._record, self._results_at)
        codes, values = found[::2], found[1::2]
        # Mostly all are well, and then taken at once, which costs less. A NaN among them would make their sum one.
        if not any(codes) and min(values) >= 0.0 and max(values[:_SHARES]) <= _WHOLE and sum(values) <= _MOST_MIB:
            answers.values.update(zip(GPM, map(truediv, values, _DIVISORS), strict=True))
            return
        for name, is_share, code, value in zip(GPM, _IS_SHARE, codes, values, strict=True):
            if code != SUCCESS:
                answers.lack(name, availability(code))
            elif not 0.0 <= value <= (_MOST_PERCENT if is_share else _MOST_MIB):  # NaN is neither
                answers.lack(name, Availability.NOT_SUPPORTED)
            else:
                answers.values[name] = min(_WHOLE, value) / 100.0 if is_share else value / 2.0**-20
