"""Frames by column, for scripts and notebooks. The one reader that needs numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpumon.clock import SECOND
from gpumon.durations import seconds
from gpumon.errors import UsageError
from gpumon.frame import Device, Frame
from gpumon.metrics import BY_NAME, GPU_INDEX, HOST_INDEX, Scope

Column = npt.NDArray[np.float64]


class Window:
    """Consecutive frames: `window["gpu.power"]` is an array of time × device, `window["host.load"]` of time.

    `time` is seconds since 1970, `devices` the columns. What is missing is NaN.
    """

    def __init__(self, frames: Sequence[Frame]) -> None:
        self.frames = frames
        self.time: Column = np.array([frame.time for frame in frames], dtype=np.float64)
        known = {sample.device.uuid: sample.device for frame in frames for sample in frame.samples}
        self.devices: tuple[Device, ...] = tuple(sorted(known.values(), key=lambda device: device.index))

    @classmethod
    def of(cls, frames: Sequence[Frame], length: str | float) -> Window:
        """The frames of the last `length` seconds, or such as "10m", by a clock that nobody sets. Raises UsageError."""
        if not frames:
            return cls(())
        # Not by the time of day, which may have been set meanwhile.
        begin = frames[-1].monotonic_ns - round(seconds(length) * SECOND)
        return cls([frame for frame in frames if frame.monotonic_ns > begin])

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, metric: str) -> Column:
        """The values of one metric by its name. Raises UsageError for an unknown one."""
        if metric not in BY_NAME:
            raise UsageError(f"no such metric: '{metric}'. See gpumon.metrics.METRICS")
        if BY_NAME[metric].scope is Scope.HOST:
            place = HOST_INDEX[metric]
            return np.array([frame.host[place] for frame in self.frames], dtype=np.float64)
        column = {device.uuid: i for i, device in enumerate(self.devices)}
        place = GPU_INDEX[metric]
        values = np.full((len(self.frames), len(column)), np.nan)
        for row, frame in zip(values, self.frames, strict=True):
            for sample in frame.samples:
                row[column[sample.device.uuid]] = sample.values[place]
        return values

    def epochs(self) -> list[dict[str, Any]]:
        """Exact epoch boundaries that became known in this window: run, epoch, mark, time (s since 1970)."""
        seen = {(boundary.run, boundary.number): boundary for frame in self.frames for boundary in frame.boundaries}
        return [
            {"run": b.run, "epoch": b.epoch, "mark": b.mark.name.lower(), "phase": b.phase, "time": b.time_ns / 1e9}
            for b in sorted(seen.values(), key=lambda boundary: boundary.time_ns)
        ]
