"""Opens the history that a view asks; a tier of longer history has its file in this package and its line here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from gpumon.storage.history.devices import devices_in, devices_of, named
from gpumon.storage.history.file import KeptFile
from gpumon.storage.history.query import Tier
from gpumon.storage.history.recent import KEEP
from gpumon.storage.history.tiered import KeptTier, LongHistory
from gpumon.storage.history.tiers import SHAPES

if TYPE_CHECKING:
    from gpumon.model.device import Device
    from gpumon.model.frame import Frame
    from gpumon.storage.history.grid import WindowSpan
    from gpumon.storage.history.totals import WindowTotals


def _kept(file: KeptFile) -> Sequence[Tier]:
    return [KeptTier(file, shape) for shape in SHAPES]


TIERS: Sequence[Callable[[KeptFile], Sequence[Tier]]] = (_kept,)
"""All that keeps longer than the last frames."""
_NEVER = 2.0**40
"""Seconds since 1970 that no clock shows."""


def open_history(
    now: Callable[[], float] | None = None, *, keep: int = KEEP, metrics: Collection[str] | None = None,
    timeout: float | None = None,
) -> LongHistory:  # fmt: skip
    """Return a history without frames, which are added as they come; `look_in` says which file kept more.

    It keeps as many frames as `keep` says, of each what charts need or else the `metrics` that are named.
    `now`: the time (s since 1970), where it is not that of the machine. `patience`: seconds to wait for a program that
    has locked the file.
    """
    file = KeptFile(now=now, timeout=timeout)
    tiers = [tier for made in TIERS for tier in made(file)]
    return LongHistory(sorted(tiers, key=lambda tier: tier.step), keep, file, metrics)


def subjects_of(path: str, span: WindowSpan) -> list[str]:
    """Return the UUIDs of the GPUs of which the file at `path` has cells in a window."""
    with closing(KeptFile(path)) as file:
        return file.subjects(span.begin, span.end)


def kept_devices(path: str, frames: Sequence[Frame]) -> dict[str, Device] | None:
    """Return the GPUs in `frames` or in the file at `path` by UUID; None where that cannot be read."""
    with closing(KeptFile(path)) as file:
        subjects = file.subjects(0.0, _NEVER)
        if file.problem:
            return None
    there = devices_of(frames)
    others = devices_in(path)
    return {device.uuid: device for device in named([*there, *others, *subjects], there, lambda: others)}


def open_totals(path: str, frames: Sequence[Frame], span: WindowSpan, subjects: Iterable[str] = ()) -> WindowTotals:
    """Return the totals of a window from the file at `path`, or none while that is empty, and the newest frames.

    `subjects` are UUIDs of GPUs; without them those that the window knows.
    """
    from gpumon.storage.history.totals import window_totals

    with closing(KeptFile(path)) as file:
        found = window_totals(file, frames, span.begin, span.end, subjects)
    newest = devices_of(frames[-1:])
    gpus = named(found.devices, newest, lambda: {**devices_in(path), **devices_of(frames)})
    return found._replace(gpus=gpus)
