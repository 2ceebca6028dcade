"""GPM, the performance counters of Hopper and newer GPUs. They measure the activity of each part of a GPU between two
samples.

The driver takes samples of the counters, and computes means from two samples. No root privileges are required.
`docs/operate/daemon.md` names other programs that read these counters.
"""

from __future__ import annotations

import struct
import weakref
from ctypes import byref, c_void_p
from typing import Any

import pynvml

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model.metrics import BY_NAME, Availability, Unit
from gpumon.sources.nvml.library import Function, GpmPair, Library
from gpumon.sources.nvml.return_codes import NOT_SUPPORTED, SUCCESS, availability
from gpumon.sources.nvml.values import DeviceValues

GPM_EVERY = 1.0
"""Seconds between two samples, at any sampling interval. This costs two calls per second, and values are means over 1
s."""
_MIN_DISTANCE = SECOND // 10
"""Minimum ns between two samples. The driver updates its counters about this often (nvml.h)."""

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
"""NVML_GPM_METRIC_ ids. They have the same meaning in every nvml.h since release 525, which is the first release with
GPM."""
TENSOR_THROUGHPUT = "gpu.tensor_throughput"
_CLOCK, _HIGHEST_CLOCK = "gpu.clock_sm", "gpu.clock_sm_max"
GPM_METRICS = (*GPM, TENSOR_THROUGHPUT)
GPM_OFF = dict.fromkeys(GPM_METRICS, Availability.SWITCHED_OFF)
"""Metrics that are withheld while GPM is switched off, each with the reason."""
_IS_RATIO = tuple(BY_NAME[name].unit is Unit.RATIO for name in GPM)
"""True for metrics in percent, False for metrics in MiB per second."""
_FULL, _MAX_PERCENT, _MAX_MIB = 100.0, 100.5, 1e7
"""100 percent, the maximum valid percentage, and the maximum valid rate in MiB per second. Rounding may result in more
than 100 %. No GPU has links as fast as the maximum rate.
"""

_RESULTS = struct.Struct("=" + "4xid24x" * len(GPM))
"""struct format for the return code and value of an nvmlGpmMetric_t. It skips the id before them and the texts after
them."""


class GpmReader:
    """Reads GPM of one device into buffers that are reused.

    A read returns means over the time since the previous read.
    """

    def __init__(self, library: Library, functions: tuple[Function, Function, Function]) -> None:
        self._library = library
        self._query_support, self._take_sample, self._compute = functions
        self._pair: GpmPair | None = None
        self._newest = 0
        """Index of the newest sample in the pair."""
        self._sampled_at = 0
        """Time at which the newest sample was taken (ns, CLOCK_MONOTONIC); 0 if there is none."""
        self._generation = 0
        self._clock = NAN
        """SM clock at the newest sample in hertz."""
        record = pynvml.c_nvmlGpmMetricsGet_t()
        record.version, record.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(GPM)
        for i, metric_id in enumerate(GPM.values()):
            record.metrics[i].metricId = metric_id
        self._record = record
        self._pointer = byref(record)
        self._samples = (c_void_p * 2).from_buffer(record, type(record).sample1.offset)
        self._results_at = type(record).metrics.offset

    @classmethod
    def from_library(cls, library: Library) -> GpmReader | None:
        """Return a reader for one device; None if the driver has no GPM."""
        names = ("nvmlGpmQueryDeviceSupport", "nvmlGpmSampleGet", "nvmlGpmMetricsGet")
        support, sample, compute = (library.find(name) for name in names)
        if support is None or sample is None or compute is None:
            return None
        return cls(library, (support, sample, compute))

    def __call__(self, handle: Any, device: DeviceValues) -> int:
        """Take a sample, and store the means since the previous sample. Each metric may fail separately."""
        pair = self._pair
        if pair is None:
            code, pair = self._open(handle)
            if pair is None:
                return code
        if device.generation != self._generation:  # the device was gone, and a reset may have restarted its counters
            self._generation, self._sampled_at = device.generation, 0
        older = 1 - self._newest
        pair.in_use = True
        try:
            code = self._take_sample(handle, pair.samples[older])
            at = device.clock.monotonic()
            if code != SUCCESS:
                self._sampled_at = 0
                return code
            if not self._sampled_at:
                self._newest, self._sampled_at = older, at
                for name in GPM_METRICS:
                    device.set_missing(name, Availability.TOO_EARLY)
                self._clock = device.values.get(_CLOCK, NAN)
                return code
            if at - self._sampled_at < _MIN_DISTANCE:
                return code  # the last values stay, and the next sample overwrites this one
            self._samples[0], self._samples[1] = pair.samples[self._newest].value, pair.samples[older].value
            code = self._compute(self._pointer)
        finally:
            pair.in_use = False
        self._newest, self._sampled_at = older, at
        if code == SUCCESS:
            self._store(device)
            self._store_throughput(device)
        return code

    def _store_throughput(self, device: DeviceValues) -> None:
        """Store the share of the tensor cores' peak, from the mean of the clocks at both samples."""
        clock, highest = device.values.get(_CLOCK, NAN), device.values.get(_HIGHEST_CLOCK, NAN)
        mean = (self._clock + clock) / 2 if is_known(self._clock) else clock
        self._clock = clock
        share = device.values.get("gpu.tensor_activity", NAN) * mean / highest if highest > 0 else NAN
        if share >= 0:
            device.values[TENSOR_THROUGHPUT] = min(1.0, share)
            return
        needed = [name for name in ("gpu.tensor_activity", _CLOCK, _HIGHEST_CLOCK) if name not in device.values]
        reason = device.missing.get(needed[0]) if needed else None
        device.set_missing(TENSOR_THROUGHPUT, reason or Availability.NOT_SUPPORTED)

    def _open(self, handle: Any) -> tuple[int, GpmPair | None]:
        """Check whether this device has GPM, and borrow a pair of samples."""
        support = pynvml.c_nvmlGpmSupport_t()
        support.version = pynvml.NVML_GPM_SUPPORT_VERSION
        code = self._query_support(handle, byref(support))
        if code == SUCCESS and not support.isSupportedDevice:
            code = NOT_SUPPORTED
        if code != SUCCESS:
            return code, None
        code, pair = self._library.gpm_samples.borrow()
        if pair is not None:
            self._pair = pair
            # A call that hangs holds a reference to this object, so the samples are not freed before the call returns.
            weakref.finalize(self, self._library.gpm_samples.give_back, pair).atexit = False
        return code, pair

    def _store(self, device: DeviceValues) -> None:
        results = _RESULTS.unpack_from(self._record, self._results_at)
        codes, values = results[::2], results[1::2]
        for name, is_ratio, code, value in zip(GPM, _IS_RATIO, codes, values, strict=True):
            if code != SUCCESS:
                device.set_missing(name, availability(code))
            elif not 0.0 <= value <= (_MAX_PERCENT if is_ratio else _MAX_MIB):  # also NaN
                device.set_missing(name, Availability.NOT_SUPPORTED)
            else:
                device.values[name] = min(_FULL, value) / 100.0 if is_ratio else value / 2.0**-20
