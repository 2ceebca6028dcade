"""Holders of a GPU by time: shares of each hour, and what was not seen. In the process of `worker`."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

from gpumon.accounting.query import HourUse, KnownDevice, by_user, read_accounts
from gpumon.accounting.summary import NOTICED
from gpumon.errors import GpumonError
from gpumon.history.tiers import HOUR
from gpumon.vendors import PARTS

DAY = 24
"""Hours of a strip of the last day."""
MOST_SLOTS = 8000
"""Slots of all GPUs together, beyond which one stands for several hours."""
_STEPS = (1, 2, 3, 6, 12)
LONGEST_SLOT = _STEPS[-1] * HOUR
"""Seconds."""


def device_strip(
    hours: Sequence[HourUse], device: KnownDevice, begin: float, end: float, now: float, devices: int
) -> dict[str, Any]:  # fmt: skip
    """Holders of a GPU from `begin` to `end`, in hundredths of each slot; what is after `now` is still to come.

    Hours are those of UTC: where the window begins within one, slot 0 is the first whole one, `shift` slots behind
    the begin, and slot -1 is partly before it.
    """
    length = HOUR * slot_hours((end - begin) / HOUR, devices)
    first = -(-begin // HOUR) * HOUR
    slots: dict[int, list[HourUse]] = {}
    for hour in hours:
        if hour.device == device.uuid:
            slots.setdefault(int((hour.begin - first) // length), []).append(hour)
    parts, unseen = [], []
    for at in range(-1 if first > begin else 0, ceil((end - first) / length)):
        since = first + at * length
        found = slots.get(at, [])
        for sums in by_user(found):
            busy = round(100 * sums.busy / length) if sums.judged else None
            parts.append([at, sums.user, max(1, round(100 * sums.held / length)), busy])
        expected = min(since + length, now) - since
        missing = expected - sum(max(hour.use.observed, hour.use.metered) for hour in found)
        if not device.uuid.startswith(PARTS) and missing > NOTICED:
            unseen.append([at, max(1, round(100 * missing / length))])
    return {
        "device": device, "slots": (end - begin) / length, "shift": (first - begin) / length, "parts": parts,
        "unseen": unseen, "step": length,
    }  # fmt: skip


def slot_hours(hours: float, devices: int) -> int:
    """The hours of a slot in a window of so many hours, of so many GPUs."""
    return next((step for step in _STEPS if hours * devices / step <= MOST_SLOTS), _STEPS[-1])


def last_hours(paths: Sequence[str], now: float, count: int = DAY) -> tuple[float, float, list[dict[str, Any]]]:
    """Return begin and end of the last `count` hours of the clock, and a strip for each GPU. Raises GpumonError."""
    end = (now // HOUR + 1) * HOUR
    begin = end - count * HOUR
    if not paths:
        return begin, end, []
    kept = read_accounts(paths[0], begin, end)
    return begin, end, [device_strip(kept.hours, one, begin, end, now, len(kept.devices)) for one in kept.devices]


def day_document(paths: Sequence[str], now: float) -> dict[str, Any]:
    """Return the strips of the last 24 hours; none where no history can be read."""
    try:
        begin, end, strips = last_hours(paths, now)
    except GpumonError as error:
        return {"begin": now, "end": now, "now": now, "strips": [], "problem": str(error)}
    return {"begin": begin, "end": end, "now": now, "strips": strips, "problem": ""}
