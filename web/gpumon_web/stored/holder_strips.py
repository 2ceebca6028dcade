"""Holders of a GPU over time: shares of each hour, and unobserved time. Runs in the worker process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.errors import GpumonError
from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.vendors import PARTS
from gpumon.reports.usage import device_name
from gpumon.storage.events.query import EventFilter, read_events
from gpumon.storage.history.tiers import HOUR
from gpumon.storage.usage.period_totals import MIN_UNSEEN
from gpumon.storage.usage.query import HourUse, StoredDevice, by_user, read_accounts, read_users
from gpumon_web.components.page import Cells, StoredValues

DAY = 24
"""Hours of the strip of the last day."""
MONTH = 31.0 * 86400
"""Seconds of history whose users a viewer can choose as themselves."""
MAX_SLOTS = 8000
"""Most slots of all GPUs together; beyond that a slot covers several hours."""
_STEPS = (1, 2, 3, 6, 12)
OUTAGE_TOLERANCE = 90.0
"""Tolerated difference in seconds between an outage and the unobserved time in the accounts."""
_ENDS = {"daemon_stopped": "daemon_started", "gpu_lost": "gpu_back", "driver_lost": "driver_reloaded"}
"""Kinds of events that begin an outage, and the kind that ends each."""
MAX_SLOT = _STEPS[-1] * HOUR
"""Longest slot in seconds."""


class Outage(NamedTuple):
    """A span of time in which no daemon was running, or a GPU did not answer (s since 1970)."""

    begin: float
    end: float
    device: str = ""
    """UUID of the GPU; empty for all GPUs."""


@dataclass(frozen=True, slots=True)
class Strip:
    """Holders of a GPU in a window, in slots of whole UTC hours.

    If the window begins within an hour, slot 0 is the first whole one, and slot -1 is partly before the window.
    """

    device: StoredDevice
    slots: float
    """Length of the window in slots."""
    shift: float
    """Slots from the begin of the window to slot 0."""
    parts: Sequence[tuple[int, str, int, int | None]]
    """Slot, user, and the held and the used time in percent of the slot; None: unknown."""
    unseen: Sequence[Sequence[float]]
    """Unobserved time: slot and length in percent, and its begin in the slot if that is known."""
    step: float
    """Seconds of a slot."""

    def cells(self) -> Cells:
        """Return the data with which the scripts draw it."""
        return {"slots": self.slots, "shift": self.shift, "parts": self.parts, "unseen": self.unseen, "is_bars": False}

    def words(self) -> str:
        """Return its text: the GPU, its holders with their hours, and the unobserved time."""
        hours: dict[str, float] = {}
        for slot, holder, held, _ in self.parts:
            if slot >= 0:  # else mostly before the window
                hours[holder or "unknown"] = hours.get(holder or "unknown", 0.0) + held / 100 * self.step
        longest_first = sorted(hours.items(), key=lambda item: -item[1])
        held_by = ", ".join(f"{holder} {units.hours(held)}" for holder, held in longest_first)
        unseen = sum(percent for slot, percent, *_ in self.unseen if slot >= 0) / 100 * self.step
        if unseen:
            held_by = f"{held_by or 'nobody while watched'}; not seen {units.hours(unseen)}"
        return f"{device_name(self.device)}: {held_by or 'nobody'}"


def device_strip(
    hours: Sequence[HourUse], device: StoredDevice, begin: float, end: float, now: float, devices: int,
    outages: Sequence[Outage] = (),
) -> Strip:  # fmt: skip
    """Return the holders of a GPU from `begin` to `end`; time after `now` is not unobserved.

    Unobserved time gets a position within its slot if `outages` account for all of it.
    """
    length = HOUR * slot_hours((end - begin) / HOUR, devices)
    first = -(-begin // HOUR) * HOUR
    slots: dict[int, list[HourUse]] = {}
    for hour in hours:
        if hour.device == device.uuid:
            slots.setdefault(int((hour.begin - first) // length), []).append(hour)
    parts, unseen = list[tuple[int, str, int, int | None]](), list[Sequence[float]]()
    for slot in range(-1 if first > begin else 0, ceil((end - first) / length)):
        slot_begin = first + slot * length
        slot_uses = slots.get(slot, [])
        for sums in by_user(slot_uses):
            busy = round(100 * sums.busy / length) if sums.judged else None
            parts.append((slot, sums.user, max(1, round(100 * sums.held / length)), busy))
        expected = min(slot_begin + length, now) - slot_begin
        missing = expected - sum(max(hour.use.observed, hour.use.metered) for hour in slot_uses)
        if not device.uuid.startswith(PARTS) and missing > MIN_UNSEEN:
            own_outages = [outage for outage in outages if outage.device in ("", device.uuid)]
            unseen += _unseen_parts(slot, slot_begin, length, missing, own_outages)
    return Strip(device, (end - begin) / length, (first - begin) / length, parts, unseen, length)


def _unseen_parts(
    slot: int, slot_begin: float, length: float, missing: float, outages: Sequence[Outage]
) -> list[list[float]]:
    """Return the unobserved parts of a slot as [slot, length], or [slot, length, begin] if outages explain them.

    Lengths and begins are percentages of the slot.
    """
    spans = [(max(outage.begin, slot_begin), min(outage.end, slot_begin + length)) for outage in outages]
    spans = _merge_spans([(begin, end) for begin, end in spans if end - begin > MIN_UNSEEN / 2])
    if (
        missing < length - MIN_UNSEEN
        and spans
        and abs(sum(end - begin for begin, end in spans) - missing) <= OUTAGE_TOLERANCE * len(spans)
    ):
        return [[slot, max(1, round(100 * (end - begin) / length)), round(100 * (begin - slot_begin) / length, 1)]
                for begin, end in spans]  # fmt: skip
    return [[slot, max(1, round(100 * missing / length))]]


def read_outages(path: str, begin: float, end: float) -> list[Outage]:
    """Return the outages in the event log: no daemon running, or a GPU not answering. Raises GpumonError."""
    outages, begins = [], dict[tuple[str, str], float]()
    for event in read_events(path, begin, end, EventFilter(kinds=(*_ENDS, *_ENDS.values()))):
        time, kind, device = event.time_ns / SECOND, event.kind.name, event.subject.device
        if kind == "daemon_stopped":  # the end of other outages was not observed
            outages += [Outage(start, time, lost) for (_, lost), start in begins.items()]
            begins.clear()
        if kind in _ENDS:
            begins[kind, device] = time
            if event.until_ns:
                outages.append(Outage(time, event.until_ns / SECOND, device))
            continue
        begin_kind = next(begin_kind for begin_kind, end_kind in _ENDS.items() if end_kind == kind)
        if is_known(start := begins.pop((begin_kind, device), time - event.lasted)):
            outages.append(Outage(start, time, device))
    return outages


def _merge_spans(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Merge overlapping spans: a GPU may be lost when its daemon is killed."""
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def slot_hours(hours: float, devices: int) -> int:
    """Return the length of a slot in hours, for a window of `hours` and a number of GPUs."""
    return next((step for step in _STEPS if hours * devices / step <= MAX_SLOTS), _STEPS[-1])


def read_strips(path: str, begin: float, end: float, now: float) -> list[Strip]:
    """Return a strip for each GPU in a window. Raises GpumonError."""
    since = begin - MAX_SLOT  # the first slot may begin before the window
    accounts, outages = read_accounts(path, since, end), read_outages(path, since, end)
    return [
        device_strip(accounts.hours, device, begin, end, now, len(accounts.devices), outages)
        for device in accounts.devices
    ]


@dataclass(frozen=True, slots=True)
class LastDay:
    """Strips of the last 24 hours, and the users of the last month; empty if no history can be read."""

    begin: float
    end: float
    strips: Sequence[Strip] = ()
    people: Sequence[str] = ()
    problem: str = ""


def read_last_day(paths: Sequence[str], now: float) -> LastDay:
    """Return the last 24 hours from the most recently written history."""
    begin = now - DAY * HOUR
    if not paths:
        return LastDay(begin, now)
    try:
        return LastDay(begin, now, read_strips(paths[0], begin, now, now), read_users(paths[0], now - MONTH, now))
    except GpumonError as error:
        return LastDay(now, now, problem=str(error))


def last_day(day: LastDay) -> StoredValues:
    """Return the value `day` of pages of GPUs: a strip for each GPU by UUID; None without history."""
    strips = {
        strip.device.uuid: {**strip.cells(), "until": 1, "ends_now": True, "label": strip.words()}
        for strip in day.strips
    }
    unread = f"The last 24 hours of the GPUs cannot be read now: {day.problem}." if day.problem else ""
    return StoredValues({"day": strips or None}, again=60.0, unread=unread)
