"""One device of a rank: its samples, cut at the rank's boundaries into epochs and phases."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gpumon.clock import SECOND
from gpumon.energy_growth import DOUBTED, energy_between
from gpumon.frame import NAN, Sample
from gpumon.ledger.schema import OTHER
from gpumon.ledger.step_rows import NO_ROW, StepStretches
from gpumon.ledger.timeline import OUTSIDE, EpochTimeline, PhaseStart
from gpumon.ledger.usage import COUNTERS, HOLD, HOLD_LEAST, UsageSums, merged, usage_sums_of
from gpumon.metrics import GPU_INDEX, GPU_METRICS, Availability
from gpumon.missing import is_known
from gpumon.run_facts import PAUSED
from gpumon.vendors import PARTS

REMEMBERED = 30 * SECOND
"""Nanoseconds for which samples of a device are kept, for a run that comes later and the driver's own samples."""
PATIENCE = 20 * SECOND
"""For so long the driver's own samples are waited for: it keeps no more than the last 16 to 20 s of them."""
STRAIGHT = 5 * SECOND
"""For so long a counter is taken for a straight line, though no value holds that long."""
_APART = 10 * SECOND
"""A counter's stamp that is further than this from its read is none."""
_ENERGY, _LIMIT = GPU_INDEX["gpu.energy"], GPU_INDEX["gpu.power_limit"]
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


def device_sample(sample: Sample, monotonic_ns: int, interval_ns: int) -> DeviceSample | None:
    """A sample by the stamps of its own read, else by the tick's `monotonic_ns`; None where nothing was read."""
    if sample.state is not Availability.OK or sample.age:
        return None
    read = sample.monotonic_ns or monotonic_ns
    counters = sample.counters_monotonic_ns or read
    return DeviceSample(read, sample.values, interval_ns, counters if abs(counters - read) <= _APART else read)


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
        self._counted: DeviceSample | None = None
        """The last whose counters were taken: a driver may give the same ones twice."""
        self._doubted: DeviceSample | None = None
        """The first one since then whose energy no card can have used."""
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
            held = _held_until(last) if last is not None else 0
            if last is not None:
                self._hold(last, taken, timeline, begin, end)
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
        last, counted = self._last, self._counted
        counters = [counted.values[i] if is_known(counted.values[i]) else None for i in COUNTERS] if counted else []
        return {
            "uuid": self.uuid, "rest": self.rest.as_json(), "busy": self._busy_at,
            "parts": [[ordinal, phase, part.as_json()] for (ordinal, phase), part in self.parts.items()],
            "outside": {phase: part.as_json() for phase, part in self.outside.items()},
            "rows": [[number, part.as_json()] for number, part in self.rows.items()],
            "last": [last.monotonic_ns, counters, counted.counters_ns] if last and counted else None,
        }  # fmt: skip

    def _hold(self, a: DeviceSample, b: DeviceSample, timeline: EpochTimeline, begin: int, end: int) -> None:
        """The values of `a` hold until `b`, and not for long."""
        if not a.interval_ns:
            return
        over_at = min(b.monotonic_ns, _held_until(a), end)
        for begun, over, span in timeline.pieces(max(a.monotonic_ns, begin), over_at):
            for part in self._parts(span, timeline):
                part.hold(a.values, (over - begun) / SECOND, taken_here=begun == a.monotonic_ns)

    def _count(self, b: DeviceSample, timeline: EpochTimeline, begin: int, end: int) -> None:
        """Counters grew evenly from those that were taken last to those of `b`, by their own stamps.

        Where no card can have used as much energy, those of `b` are garbage, unless all that come agree with them.
        """
        a, doubted = self._counted, self._doubted
        if a is not None and b.counters_ns <= a.counters_ns:
            return
        if a is None or not is_known(a.values[_ENERGY]) or not is_known(b.values[_ENERGY]) or is_known(_energy(a, b)):
            self._counted, self._doubted = b, None
            if a is not None:
                self._grow(a, b, timeline, begin, end)
        elif doubted is None or not is_known(_energy(doubted, b)):
            self._doubted = b
        elif b.counters_ns - doubted.counters_ns >= DOUBTED * SECOND:
            self._counted, self._doubted = b, None
            self._grow(a, doubted, timeline, begin, end)
            self._grow(doubted, b, timeline, begin, end)

    def _grow(self, a: DeviceSample, b: DeviceSample, timeline: EpochTimeline, begin: int, end: int) -> None:
        since, until = max(a.counters_ns, begin), min(b.counters_ns, end)
        if since >= until:
            return
        length = b.counters_ns - a.counters_ns
        grown = [_energy(a, b), *(_grown(a.values[i], b.values[i]) for i in COUNTERS[1:])]
        pieces = list(timeline.pieces(since, until))
        # Within a long gap it is unknown what came before a boundary and what after: only the run counts it.
        split = length > max(HOLD * a.interval_ns, HOLD_LEAST, STRAIGHT) and len(pieces) > 1
        for begun, over, span in pieces:
            for part in (self.rest,) if split else self._parts(span, timeline):
                part.count(grown, (over - begun) / length, (over - begun) / SECOND)

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


def _held_until(taken: DeviceSample) -> int:
    """Return up to when (ns, CLOCK_MONOTONIC) the values of a sample hold at most."""
    return taken.monotonic_ns + (max(HOLD * taken.interval_ns, HOLD_LEAST) if taken.interval_ns else 0)


def device_usage_of(found: Mapping[str, Any]) -> DeviceUsage:
    """Restore the result of `DeviceUsage.as_json`; its last sample has counters only, which span the gap."""
    share = DeviceUsage(found["uuid"])
    share.rest = usage_sums_of(found["rest"])
    share.parts = {(ordinal, phase): usage_sums_of(part) for ordinal, phase, part in found["parts"]}
    share.outside = {phase: usage_sums_of(part) for phase, part in found.get("outside", {}).items()}
    share.rows = {number: usage_sums_of(part) for number, part in found.get("rows", ())}
    share._busy_at = found["busy"]
    if found["last"]:
        monotonic, counters, *stamp = found["last"]
        values = [NAN] * len(GPU_METRICS)
        for i, value in zip(COUNTERS, counters, strict=True):
            values[i] = NAN if value is None else value
        share._last = share._counted = DeviceSample(monotonic, values, 0, stamp[0] if stamp else monotonic)
    return share


def _energy(before: DeviceSample, after: DeviceSample) -> float:
    """The joules between two samples; NaN where the counter tells none."""
    seconds = (after.counters_ns - before.counters_ns) / SECOND
    return energy_between(before.values[_ENERGY], after.values[_ENERGY], seconds, after.values[_LIMIT])


def _grown(before: float, after: float) -> float:
    """By how much a counter grew; NaN when it went back, as after a reset."""
    return after - before if after >= before else NAN


def _latest(taken: DeviceSample) -> int:
    return max(taken.monotonic_ns, taken.counters_ns)


def _first(pair: tuple[int, float]) -> int:
    return pair[0]
