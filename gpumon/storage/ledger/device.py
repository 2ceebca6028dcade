"""One device of a rank: its samples, cut at the rank's boundaries into epochs and phases."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model.energy import FOLLOWS, EnergyReadings, is_newly_missing
from gpumon.model.frame import Sample
from gpumon.model.metrics import GPU_INDEX, GPU_METRICS, Availability
from gpumon.model.run import PAUSED
from gpumon.model.vendors import PARTS
from gpumon.storage.ledger.schema import OTHER
from gpumon.storage.ledger.steps import NO_ROW, StepStretches
from gpumon.storage.ledger.timeline import OUTSIDE, EpochTimeline, PhaseStart
from gpumon.storage.ledger.usage import COUNTERS, HOLD, HOLD_LEAST, UsageSums, merged, usage_sums_of

REMEMBERED = 30 * SECOND
"""Nanoseconds for which samples of a device are kept, for a run that comes later and the driver's own samples."""
PATIENCE = 20 * SECOND
"""For so long the driver's own samples are waited for: it keeps no more than the last 16 to 20 s of them."""
_FOLLOWS = round(FOLLOWS * SECOND)
_EVEN = 2.0
"""Seconds between two readings over which energy is taken to grow evenly, whatever came before."""
_STEADY = 0.02
"""Share by which the mean power of a longer time may differ from that before it. Beyond that it has changed within,
perhaps at a border: how much was used on which side of one is unknown."""
_APART = 10 * SECOND
"""A counter's stamp that is further than this from its read is none."""
_ENERGY, _LIMIT = GPU_INDEX["gpu.energy"], GPU_INDEX["gpu.power_limit"]
_NOT_COUNTED = [NAN] * (len(COUNTERS) - 1)
_MOST_SAMPLES = 256
_MOST_BUSY = 2048
_LONGEST_BUSY = SECOND * 6 // 5
"""The driver's own sample periods are 1/6 to 1 s."""


class DeviceSample(NamedTuple):
    """One sample of a device."""

    monotonic_ns: int
    """ns, CLOCK_MONOTONIC: when its gauges were read."""
    values: Sequence[float]
    interval_ns: int
    """ns between ticks; 0: only the counters are known, and no value holds."""
    counters_ns: int
    """ns, CLOCK_MONOTONIC: when its counters held their values."""
    after_gap: bool = False
    """Whether nobody sampled between the tick before and this one: no daemon ran, or it was late."""


def device_sample(
    sample: Sample, monotonic_ns: int, interval_ns: int, *, after_gap: bool = False
) -> DeviceSample | None:
    """A sample by the stamps of its own read, else by the tick's `monotonic_ns`; None where nothing was read."""
    if sample.state is not Availability.OK or sample.age:
        return None
    read = sample.monotonic_ns or monotonic_ns
    counters = sample.counters_monotonic_ns or read
    stamp = counters if abs(counters - read) <= _APART else read
    return DeviceSample(read, sample.values, interval_ns, stamp, after_gap)


class RecentSamples:
    """The last samples of a device, for all ranks that use it."""

    def __init__(self) -> None:
        self.samples: deque[DeviceSample] = deque(maxlen=_MOST_SAMPLES)
        self.busy: deque[tuple[int, float]] = deque(maxlen=_MOST_BUSY)

    def add(self, taken: DeviceSample | None, busy: Iterable[tuple[int, float]], now: int) -> None:
        """Take what a tick brought; what is older than `REMEMBERED` goes, but for the last two samples."""
        samples, since = self.samples, now - REMEMBERED
        if taken is not None and not (samples and taken.monotonic_ns <= samples[-1].monotonic_ns):
            samples.append(taken)
        while len(samples) > 2 and samples[1].monotonic_ns < since:
            samples.popleft()
        if busy:
            self.busy.extend(busy)
        while self.busy and self.busy[0][0] < since:
            self.busy.popleft()

    def is_over(self, now: int) -> bool:
        """Whether nothing of it is remembered that is not too old."""
        since = now - REMEMBERED
        is_sampled = bool(self.samples) and self.samples[-1].monotonic_ns >= since
        return not is_sampled and not (self.busy and self.busy[-1][0] >= since)

    def known_until(self, horizon: int) -> int:
        """Up to when all is known that will be, `horizon` at most.

        The driver's own samples come seconds late, and what was between two reads of a device is known with the
        second: devices are read one behind the other, a slow call delays those that follow, and an answer may come
        ticks after its question.
        """
        known = horizon
        last = next((taken for taken in reversed(self.samples) if _latest(taken) <= horizon), None)
        if last is not None:
            known = min(known, last.monotonic_ns, last.counters_ns)
        if self.busy:
            known = min(known, self.busy[-1][0])
        return max(known, horizon - PATIENCE)


class DeviceUsage:
    """Usage of one device by a rank: sums for each phase of each epoch that is not settled, and for all else."""

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        self.whole_board = not uuid.startswith(PARTS)
        self.parts: dict[tuple[int, str], UsageSums] = {}
        self.rest = UsageSums()
        """Of settled epochs, and of what cannot be told to be of one or of none."""
        self.outside: dict[str, UsageSums] = {}
        """Of what lies in no epoch, by phase."""
        self.rows: dict[int, UsageSums] = {}
        """Of rows of steps, by number: what lies in them is also among `outside`."""
        self._last: DeviceSample | None = None
        self._energy = EnergyReadings()
        self._power = NAN
        """Mean power between the last two readings of energy, W."""
        self._throttled: tuple[int, Sequence[float]] = 0, ()
        """The counters of throttling as they were read last, and when: ns, CLOCK_MONOTONIC."""
        self._unseen_at = 0
        """ns, CLOCK_MONOTONIC: a moment within the newest gap in this device's samples."""
        self._busy_at = 0
        self._gap = 0, 0
        """The newest time without samples, ns, CLOCK_MONOTONIC; what a driver remembers of it does not count either."""

    def follow(self, recent: RecentSamples, timeline: EpochTimeline, until: int, begin: int, end: int) -> None:
        """Add the samples up to `until`, of a run that went from `begin` to `end`. All ns, CLOCK_MONOTONIC."""
        last = self._last
        new = []
        for taken in reversed(recent.samples):
            if last is not None and taken.monotonic_ns <= last.monotonic_ns:
                if taken.monotonic_ns == last.monotonic_ns:
                    last = taken  # after a restart of the daemon its values are known again
                break
            if _latest(taken) <= until:
                new.append(taken)
        for taken in reversed(new):
            held = _held_until(last, taken) if last is not None else 0
            if last is not None:
                self._hold(last, held, timeline, begin, end)
                if held < taken.monotonic_ns:
                    self._leave_out(held, taken.monotonic_ns, timeline, begin, end)
                if taken.after_gap or held < taken.monotonic_ns:  # no daemon ran, or this device did not answer
                    self._unseen_at = (last.monotonic_ns + taken.monotonic_ns) // 2
            if held < taken.monotonic_ns:
                self._gap = held, taken.monotonic_ns
            last = taken
            self._count(taken, timeline, begin, end)
        self._last = last
        if recent.busy:
            self._follow_busy(recent.busy, timeline, until, begin, end)

    def settle(self, ordinal: int) -> dict[str, UsageSums]:
        """The sums of an epoch that is over, by phase; from now on they are part of the rest."""
        found = {phase: part for (of, phase), part in self.parts.items() if of == ordinal}
        for phase, part in found.items():
            del self.parts[ordinal, phase]
            self.rest.merge(part)
        return found

    def of(self, ordinal: int) -> dict[str, UsageSums]:
        """The sums of an epoch so far, by phase."""
        return {phase: part for (of, phase), part in self.parts.items() if of == ordinal}

    def whole(self) -> UsageSums:
        """The sums of the whole run so far, without what it was paused."""
        outside = {phase: part for phase, part in self.outside.items() if phase != PAUSED}
        return merged({**outside, None: self.rest, **self.parts})

    def as_json(self) -> dict[str, Any]:
        """For `device_usage_of`."""
        last, energy, (throttled_ns, throttled) = self._last, self._energy, self._throttled
        counters = [value if is_known(value) else None for value in (energy.energy, *throttled)]
        return {
            "uuid": self.uuid, "rest": self.rest.as_json(), "busy": self._busy_at,
            "parts": [[ordinal, phase, part.as_json()] for (ordinal, phase), part in self.parts.items()],
            "outside": {phase: part.as_json() for phase, part in self.outside.items()},
            "rows": [[number, part.as_json()] for number, part in self.rows.items()],
            "last": [last.monotonic_ns, counters, throttled_ns] if last and throttled else None,
            "energy_at": energy.at,
        }  # fmt: skip

    def known_until(self, horizon: int) -> int:
        """Up to when its energy is known, `horizon` at most: what lacks a reading waits while the next may tell."""
        at = round(self._energy.at)
        is_awaited = self.whole_board and is_known(self._energy.energy) and horizon - at <= PATIENCE
        return min(at, horizon) if is_awaited else horizon

    def _hold(self, a: DeviceSample, until: int, timeline: EpochTimeline, begin: int, end: int) -> None:
        """The values of `a` hold up to `until`."""
        if not a.interval_ns:
            return
        for begun, over, span in timeline.pieces(max(a.monotonic_ns, begin), min(until, end)):
            for part in self._parts(span, timeline):
                part.hold(a.values, (over - begun) / SECOND, taken_here=begun == a.monotonic_ns)

    def _leave_out(self, since: int, until: int, timeline: EpochTimeline, begin: int, end: int) -> None:
        """No value held from `since` to `until`: of a stretch that begins or ends in there, part of it is unknown."""
        pieces = list(timeline.pieces(max(since, begin), min(until, end)))
        if len(pieces) > 1:
            for begun, over, span in pieces:
                for part in self._parts(span, timeline):
                    part.unseen.add(until, (over - begun) / SECOND, (until - since) / SECOND)

    def _count(self, b: DeviceSample, timeline: EpochTimeline, begin: int, end: int) -> None:
        """Counters grew evenly from their last readings to those of `b`, by their own stamps.

        Counters of throttling come with one call: where one is missing, all wait for the next reading, as energy does.
        """
        at, grown, uneven = b.counters_ns, dict[tuple[int, int], list[float]](), set[tuple[int, int]]()
        for growth in self._energy.add(at, b.values[_ENERGY], b.values[_LIMIT]):
            stretch = round(growth.begin), round(growth.end)
            grown[stretch] = [growth.joules, *_NOT_COUNTED]
            seconds = (growth.end - growth.begin) / SECOND
            before, self._power = self._power, growth.joules / seconds if seconds > 0 else NAN
            if seconds > _EVEN and not abs(self._power - before) <= _STEADY * before:
                uneven.add(stretch)
        since, throttled = self._throttled
        now = [b.values[place] for place in COUNTERS[1:]]
        if not throttled or (at > since and (at - since > _FOLLOWS or not is_newly_missing(throttled, now))):
            if throttled:
                amounts = grown.setdefault((since, at), [NAN, *_NOT_COUNTED])
                amounts[1:] = map(_grown, throttled, now)
            self._throttled = at, now
        for (first, last), amounts in grown.items():
            self._grow(first, last, amounts, timeline, begin, end, is_even=(first, last) not in uneven)

    def _grow(
        self, first: int, last: int, grown: list[float], timeline: EpochTimeline, begin: int, end: int, *, is_even: bool
    ) -> None:  # fmt: skip
        """Counters grew so much from `first` to `last` (ns, CLOCK_MONOTONIC); `is_even`: energy at one rate."""
        since, until, length = max(first, begin), min(last, end), last - first
        if since >= until:
            return
        counter = self._energy.energy  # at `last`
        pieces = list(timeline.pieces(since, until))
        is_cut = len(pieces) > 1 or (since, until) != (first, last)
        # It is unknown what came before a boundary and what after; the run has all that lies within it.
        is_unsure = is_cut and (length > _FOLLOWS or not is_even or first < self._unseen_at < last)
        for begun, over, span in pieces:
            seconds = (over - begun) / SECOND
            if is_unsure:
                self.rest.count([NAN, *grown[1:]], (over - begun) / length, seconds)
                if is_known(grown[0]):
                    for part in self._parts(span, timeline):
                        part.estimated.add(last, seconds, length / SECOND, grown[0])
            else:
                for part in self._parts(span, timeline):
                    part.count(grown, (over - begun) / length, seconds)
                    if is_known(grown[0]):
                        part.read_counter(*((at, counter - grown[0] * (last - at) / length) for at in (begun, over)))

    def _follow_busy(
        self, busy: deque[tuple[int, float]], timeline: EpochTimeline, until: int, begin: int, end: int
    ) -> None:  # fmt: skip
        at = self._busy_at
        if not at:
            at = busy[0][0]
        for monotonic, ratio in list(busy)[bisect_right(busy, at, key=_first) :]:
            since, to = max(at, monotonic - _LONGEST_BUSY), min(monotonic, until)
            for first, last in ((since, min(to, self._gap[0])), (max(since, self._gap[1]), to)):
                for begun, over, span in timeline.pieces(max(first, begin), min(last, end)) if last > first else ():
                    for part in self._parts(span, timeline):
                        part.busy.add(ratio, (over - begun) / SECOND)
            at = max(at, to)
            if monotonic > until:
                break
        self._busy_at = at

    def join_rows(self, rows: StepStretches) -> None:
        """Follow rows of steps that were absorbed by others, or are none any more."""
        for number in [number for number in self.rows if number in rows.absorbed]:
            sums, into = self.rows.pop(number), rows.resolve(number)
            self._row(into).merge(sums)
        known = {row.number for row in rows.rows}
        for number in [number for number in self.rows if number not in known]:
            del self.rows[number]

    def _row(self, number: int) -> UsageSums:
        sums = self.rows.get(number)
        if sums is None:
            sums = self.rows[number] = UsageSums()
        return sums

    def _parts(self, span: PhaseStart, timeline: EpochTimeline) -> tuple[UsageSums, ...]:
        part = self._part(span.ordinal, span.phase, timeline)
        if span.row == NO_ROW or not timeline.rows.rows or span.phase == PAUSED:
            return (part,)
        return part, self._row(timeline.rows.resolve(span.row))

    def _part(self, ordinal: int, phase: str, timeline: EpochTimeline) -> UsageSums:
        if ordinal == OUTSIDE:
            phase = phase or OTHER
            outside = self.outside.get(phase)
            if outside is None:
                outside = self.outside[phase] = UsageSums()
            return outside
        if ordinal not in timeline.epochs:
            return self.rest
        part = self.parts.get((ordinal, phase))
        if part is None:
            part = self.parts[ordinal, phase] = UsageSums()
        return part


def _held_until(taken: DeviceSample, after: DeviceSample) -> int:
    """Return up to when (ns, CLOCK_MONOTONIC) the values of a sample hold; `after`: the next sample.

    They hold until then, but over a gap for one interval only.
    """
    interval = taken.interval_ns
    if not after.after_gap and after.monotonic_ns <= taken.monotonic_ns + max(HOLD * interval, HOLD_LEAST):
        return after.monotonic_ns if interval else taken.monotonic_ns
    return min(after.monotonic_ns, taken.monotonic_ns + interval)


def device_usage_of(found: Mapping[str, Any]) -> DeviceUsage:
    """Restore the result of `DeviceUsage.as_json`; its last sample has counters only, which span the gap."""
    share = DeviceUsage(found["uuid"])
    share.rest = usage_sums_of(found["rest"])
    share.parts = {(ordinal, phase): usage_sums_of(part) for ordinal, phase, part in found["parts"]}
    share.outside = {phase: usage_sums_of(part) for phase, part in found["outside"].items()}
    share.rows = {number: usage_sums_of(part) for number, part in found["rows"]}
    share._busy_at = found["busy"]
    if found["last"]:
        monotonic, counters, at = found["last"]
        energy, *throttled = [NAN if value is None else value for value in counters]
        share._last = DeviceSample(monotonic, [NAN] * len(GPU_METRICS), 0, monotonic)
        share._energy.accept(found["energy_at"], energy)
        share._throttled = at, throttled
    return share


def _grown(before: float, after: float) -> float:
    """By how much a counter grew; NaN when it went back, as after a reset."""
    return after - before if after >= before else NAN


def _latest(taken: DeviceSample) -> int:
    return max(taken.monotonic_ns, taken.counters_ns)


def _first(pair: tuple[int, float]) -> int:
    return pair[0]
