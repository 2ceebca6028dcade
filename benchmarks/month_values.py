"""A month of eight GPUs in training, a value a second, with the noise and the resolution of a driver.

A GPU trains for some hours and is idle for one; an epoch ends with a validation and a checkpoint. Each hour is drawn
anew by its own seed, so that any part of the month can be made by itself and is always the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from benchmarks.stage import GPUS
from gpumon.common.clock import SECOND
from gpumon.model.metrics import GPU_INDEX, GPU_METRICS, HOST_INDEX, HOST_METRICS
from gpumon.storage.history.query import HOST
from gpumon.storage.history.tier_aggregator import SubjectValues, TickValues
from gpumon.storage.history.tiers import DAY, HOUR

DAYS = 31
UUIDS = [f"GPU-{index:08x}-5ee1-4a3c-9d20-0123456789ab" for index in range(GPUS)]
STALL = 5 * DAY // 2
"""Second of the month, on its third day, in which the first GPU stands still in the middle of an epoch."""
_PHASE = 0.37
"""Seconds after the full second at which a tick is taken."""
_MEBIBYTE, _GIBIBYTE = 2.0**20, 2.0**30

_GPU_RATES = {
    "gpu.energy": (645.0, 72.0, 3), "gpu.throttled_sw_power": (0.18, 0.0, 6),
    "gpu.throttled_sw_thermal": (5e-4, 0.0, 6), "gpu.throttled_hw_thermal": (0.0, 0.0, 6),
    "gpu.throttled_hw_power_brake": (0.0, 0.0, 6), "gpu.throttled_sync_boost": (0.0, 0.0, 6),
    "gpu.pcie_sent": (1.1e9, 2e4, 0), "gpu.pcie_received": (2.3e9, 3e4, 0),
}  # fmt: skip
"""Growth of each counter in a second of training and of idleness, and the decimals that a driver gives."""
_HOST_RATES = {
    "host.disk_read": 9e7, "host.disk_written": 4e6, "host.network_received": 3e8, "host.network_sent": 3e8,
}  # fmt: skip
_CONSTANT = {
    "gpu.memory_reserved": 554 * _MEBIBYTE, "gpu.memory_total": 80 * _GIBIBYTE, "gpu.power_limit": 700.0,
    "gpu.clock_memory": 2.619e9, "gpu.performance_state": 0.0, "gpu.pcie_generation": 5.0, "gpu.pcie_width": 16.0,
    "gpu.encoder_utilization": 0.0, "gpu.decoder_utilization": 0.0,
}  # fmt: skip
"""Of a GPU that is cooled without a fan of its own."""

Array = Any
"""Of numpy, float64."""


class Hour(NamedTuple):
    """A value a second for an hour; NaN is missing."""

    first: int
    """Second of the month."""
    gpus: Array
    """(second, GPU, metric)."""
    host: Array
    """(second, metric)."""


def hours(first: int, last: int) -> Iterator[Hour]:
    """Yield the hours from second `first` of the month to `last`; each begins at a full hour."""
    for number in range(first // HOUR, -(-last // HOUR)):
        hour = Hour(number * HOUR, *_hour(number))
        begin, end = max(0, first - hour.first), min(HOUR, last - hour.first)
        yield Hour(hour.first + begin, hour.gpus[begin:end], hour.host[begin:end])


def ticks(month: float, first: int, last: int) -> Iterator[TickValues]:
    """Yield what a sampler sees from second `first` to `last` of the month that begins at `month` (s since 1970)."""
    for hour in hours(first, last):
        chance = np.random.default_rng([3, hour.first])
        late = (chance.gamma(2.0, 1.5e-4, len(hour.host)) * SECOND).astype(int).tolist()
        read = chance.integers(10**5, 10**7, (len(hour.host), GPUS)).tolist()
        for place, (host, rows) in enumerate(zip(hour.host.tolist(), hour.gpus.tolist(), strict=True)):
            passed = round((hour.first + place + _PHASE) * SECOND) + late[place]
            monotonic = HOUR * SECOND + passed
            values = [SubjectValues(HOST, host, monotonic)]
            for uuid, row, before in zip(UUIDS, rows, read[place], strict=True):
                values.append(SubjectValues(uuid, row, monotonic - before))
            yield TickValues(round(month * SECOND) + passed, monotonic, SECOND, values)


def _busy(gpu: int, seconds: Array) -> Array:
    """Whether a GPU trains at seconds of the month."""
    period = 23400 + 1777 * gpu
    return (seconds + 4500 + 3000 * gpu) % period < period - 3600


@lru_cache
def _trained(gpu: int) -> Array:
    """Seconds of training before each hour of the month, and of the day after it."""
    each = _busy(gpu, np.arange((DAYS + 1) * DAY)).reshape(-1, HOUR).sum(axis=1)
    return np.concatenate(([0], np.cumsum(each)))


def _hour(number: int) -> tuple[Array, Array]:
    gpus = np.stack([_gpu(number, gpu, np.random.default_rng([1, number, gpu])) for gpu in range(GPUS)], axis=1)
    return gpus, _host(number, np.random.default_rng([2, number]))


def _gpu(number: int, gpu: int, chance: Any) -> Array:
    seconds = np.arange(number * HOUR, (number + 1) * HOUR)
    busy = _busy(gpu, seconds)
    epoch, second = np.divmod(seconds, 640 + 37 * gpu)
    validates, saves = busy & (second < 35), busy & (second >= 35) & (second < 41)
    load = np.where(validates, 0.6, np.where(saves, 0.12, 0.95)) + 0.02 * np.sin(seconds / 700 + gpu)
    load = np.where(busy, np.clip(load + chance.normal(0, 0.025, HOUR), 0.02, 1.0), 0.0)
    capped = busy & (chance.random(HOUR) < 0.3)
    held = 70 * _GIBIBYTE + 2 * _MEBIBYTE * ((epoch * 2654435761) % 512)
    live = 52 * _GIBIBYTE + 512 * chance.integers(0, 2**24, HOUR)

    found = np.full((HOUR, len(GPU_METRICS)), np.nan)

    def put(name: str, values: Array) -> None:
        found[:, GPU_INDEX[name]] = values

    for name, value in _CONSTANT.items():
        put(name, value)
    put("gpu.utilization", np.round(load, 2))
    put("gpu.memory_utilization", np.round(load * chance.normal(0.52, 0.02, HOUR), 2))
    put("gpu.memory_used", np.where(busy, held, 529 * _MEBIBYTE))
    warm = np.convolve(_busy(gpu, np.arange(seconds[0] - 180, seconds[-1] + 1)), np.full(181, 1 / 181), "valid")
    heat = 34 + 32 * warm + 1.5 * np.sin(seconds / 1100 + gpu) + chance.normal(0, 0.5, HOUR)
    put("gpu.temperature", np.round(heat))
    put("gpu.temperature_memory", np.round(1.2 * heat + chance.normal(0, 0.5, HOUR)))
    slow = np.where(capped, chance.integers(1, 15, HOUR), 0)
    put("gpu.clock_sm", np.where(busy, 1.98e9 - 15e6 * slow, 345e6))
    put("gpu.event_reasons", np.where(capped, 4, np.where(busy, 0, 1)))
    for name in ("gpu.run_used", "gpu.run_reserved"):
        put(name, np.where(busy, held - (0 if name == "gpu.run_used" else 610 * _MEBIBYTE), np.nan))
    put("gpu.run_allocated", np.where(busy, live, np.nan))
    put("gpu.run_inactive_split", np.where(busy, 512 * chance.integers(0, 2**21, HOUR), np.nan))

    trained = _trained(gpu)[number]
    for name, (training, idle, decimals) in _GPU_RATES.items():
        rate = np.where(busy, training * (0.25 + 0.75 * load / 0.95), idle) * chance.normal(1, 0.03, HOUR)
        if name == "gpu.throttled_sw_power":
            rate = np.where(capped, rate, 0.0)
        begin, planned = trained * training + (number * HOUR - trained) * idle, busy.sum() * (training - idle)
        rate *= (planned + HOUR * idle) / (rate.sum() or 1.0)  # an hour takes what it should, whatever the noise
        put(name, np.round(begin + np.cumsum(rate), decimals))
        if name == "gpu.energy":
            put("gpu.power", np.round(rate + chance.normal(0, 1.5, HOUR), 3))
    if gpu == 0 and seconds[0] <= STALL <= seconds[-1]:
        found[STALL - seconds[0], GPU_INDEX["gpu.utilization"]] = 0.0
    return found


def _host(number: int, chance: Any) -> Array:
    seconds = np.arange(number * HOUR, (number + 1) * HOUR)
    found = np.empty((HOUR, len(HOST_METRICS)))
    wave = np.sin(seconds / 5000)
    values = {
        "host.cpu_utilization": np.round(0.3 + 0.05 * wave + chance.normal(0, 0.03, HOUR), 4),
        "host.memory_used": 300 * _GIBIBYTE + 4096 * np.round(2e6 * wave + chance.normal(0, 4e4, HOUR)),
        "host.memory_total": 2 * 2.0**40 - 3 * 2.0**30,
        "host.swap_used": 0.0,
        "host.swap_total": 8 * _GIBIBYTE,
        "host.load": np.round(58 + 6 * wave + chance.normal(0, 0.4, HOUR), 2),
    }
    for name, rate in _HOST_RATES.items():
        bursts = rate * chance.gamma(0.7, 1.0, HOUR)
        values[name] = np.round(number * HOUR * rate + np.cumsum(bursts * (rate * HOUR / bursts.sum())))
    for name, column in values.items():
        found[:, HOST_INDEX[name]] = column
    return found
