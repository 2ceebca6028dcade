"""Opens the history for a view, or reads the history file for a single query."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from gpumon.storage.history.devices import devices_of, read_devices, sort_devices
from gpumon.storage.history.file import HistoryFile
from gpumon.storage.history.query import Tier
from gpumon.storage.history.recent import KEEP
from gpumon.storage.history.tiered_history import StoredTier, TieredHistory
from gpumon.storage.history.tiers import SHAPES

if TYPE_CHECKING:
    from gpumon.model.device import Device
    from gpumon.model.frame import Frame
    from gpumon.storage.history.buckets import WindowSpan
    from gpumon.storage.history.window_totals import WindowTotals


_NEVER = 2.0**40
"""A time (s since 1970) later than any real time."""


def open_tiers(file: HistoryFile) -> Sequence[Tier]:
    """Return the tiers of a history file, from the finest to the coarsest."""
    tiers: list[Tier] = [StoredTier(file, shape) for shape in SHAPES]
    return sorted(tiers, key=lambda tier: tier.step)


def open_history(
    now: Callable[[], float] | None = None, *, keep: int = KEEP, metrics: Collection[str] | None = None,
    timeout: float | None = None,
) -> TieredHistory:  # fmt: skip
    """Return a new empty history. Add frames with `add`, and set a history file for older times with `set_path`.

    `now`: function that returns the current time in seconds since 1970, by default the machine's time. `keep`: number
    of frames to keep. `metrics`: metrics of frames to keep, by default `DEFAULT_METRICS`. `timeout`: maximum seconds to
    wait while the file is locked.
    """
    file = HistoryFile(now=now, timeout=timeout)
    return TieredHistory(open_tiers(file), keep, file, metrics)


def stored_subjects(path: str, span: WindowSpan) -> list[str]:
    """Return the UUIDs of the GPUs that have data in this window in the history file at `path`."""
    with closing(HistoryFile(path)) as file:
        return file.subjects(span.begin, span.end)


def stored_devices(path: str, frames: Sequence[Frame]) -> dict[str, Device] | None:
    """Return the GPUs in `frames` and in the file at `path`, by UUID; None if the file cannot be read."""
    with closing(HistoryFile(path)) as file:
        subjects = file.subjects(0.0, _NEVER)
        if file.problem:
            return None
    current, stored = devices_of(frames), read_devices(path)
    devices = sort_devices([*current, *stored, *subjects], current, lambda: stored)
    return {device.uuid: device for device in devices}


def open_totals(path: str, frames: Sequence[Frame], span: WindowSpan, subjects: Iterable[str] = ()) -> WindowTotals:
    """Return the totals of each GPU over a window of time, from the newest frames and the history file.

    `path`: path of the history file; empty if there is none. `subjects`: UUIDs of GPUs, by default all GPUs that have
    data in the window.
    """
    from gpumon.storage.history.window_totals import window_totals

    with closing(HistoryFile(path)) as file:
        totals = window_totals(file, frames, span.begin, span.end, subjects)
    newest = devices_of(frames[-1:])
    gpus = sort_devices(totals.devices, newest, lambda: {**read_devices(path), **devices_of(frames)})
    return replace(totals, gpus=gpus)
