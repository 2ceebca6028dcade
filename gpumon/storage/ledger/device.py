"""Sums the usage of one device by one rank, separately for each epoch and phase.

The time for which a sample of the device is valid is divided at the starts and ends of the rank's epochs and phases.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model.energy import FOLLOWS, EnergyReadings, is_newly_missing
from gpumon.model.frame import Sample
from gpumon.model.metrics import GPU_INDEX, GPU_METRICS, Availability
from gpumon.model.run import PAUSED
from gpumon.model.vendors import PARTS
from gpumon.storage.ledger.row_keys import OTHER
from gpumon.storage.ledger.steps import NO_ROW, StepRanges
from gpumon.storage.ledger.timeline import OUTSIDE, EpochTimeline, PhaseStart
from gpumon.storage.ledger.usage import COUNTERS, HOLD_INTERVALS, MIN_HOLD, UsageSums, merge_sums

SAMPLE_RETENTION = 30 * SECOND
"""Nanoseconds for which samples of a device are kept in memory. They are needed if a run is noticed late, or if the
driver's own samples arrive late."""
MAX_DELAY = 20 * SECOND
"""Maximum nanoseconds to wait for the driver's own samples. The driver keeps only the last 16 to 20 s of them."""
_MAX_GAP = round(FOLLOWS * SECOND)
_EVEN_SECONDS = 2.0
"""If two readings are at most this many seconds apart, energy is assumed to grow evenly between them."""
_STEADY_POWER = 0.02
"""If two readings are further apart, the mean power between them is compared with the mean power between the previous
two readings. If it differs by at most this fraction, energy is assumed to grow evenly. If it differs more, power may
have changed at a boundary between the two readings. The energy on either side of the boundary can then not be
determined.
"""
_MAX_STAMP_OFFSET = 10 * SECOND
"""A counter's timestamp is ignored if it differs from the time of the reading by more than this many nanoseconds."""
_ENERGY, _LIMIT = GPU_INDEX["gpu.energy"], GPU_INDEX["gpu.power_limit"]
_NOT_COUNTED = [NAN] * (len(COUNTERS) - 1)
_MAX_SAMPLES = 256
_MAX_BUSY = 2048
_MAX_BUSY_PERIOD = SECOND * 6 // 5
"""Maximum nanoseconds for which one of the driver's own samples is valid. These samples are 1/6 to 1 s apart."""


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """A sample of a device, taken at one tick."""

    monotonic_ns: int
    """Time at which the gauges were read; ns, CLOCK_MONOTONIC."""
    values: Sequence[float]
    interval_ns: int
    """Nanoseconds between ticks; 0 if the sample has only counters."""
    counters_ns: int
    """Time at which the counters had these values; ns, CLOCK_MONOTONIC."""
    after_gap: bool = False
    """Whether ticks are missing before this one, because no daemon was running or the daemon was late."""


def device_sample(
    sample: Sample, monotonic_ns: int, interval_ns: int, *, after_gap: bool = False
) -> DeviceSample | None:
    """Convert a sample to a `DeviceSample`. Return None if the device did not return current values.

    `monotonic_ns`: time of the tick (CLOCK_MONOTONIC), used if the sample has no times of its own. `interval_ns`: time
    between ticks. `after_gap`: see `DeviceSample`.
    """
    if sample.state is not Availability.OK or sample.age:
        return None
    read = sample.monotonic_ns or monotonic_ns
    counters = sample.counters_monotonic_ns or read
    stamp = counters if abs(counters - read) <= _MAX_STAMP_OFFSET else read
    return DeviceSample(read, sample.values, interval_ns, stamp, after_gap)


class RecentSamples:
    """The most recent samples of a device, shared by all ranks that use it."""

    def __init__(self) -> None:
        self.samples: deque[DeviceSample] = deque(maxlen=_MAX_SAMPLES)
        self.busy: deque[tuple[int, float]] = deque(maxlen=_MAX_BUSY)

    def add(self, sample: DeviceSample | None, busy: Iterable[tuple[int, float]], now: int) -> None:
        """Add the sample of a tick, and drop samples older than `SAMPLE_RETENTION` except the newest two.

        `busy`: the utilization samples that the driver itself recorded, as pairs of time (ns, CLOCK_MONOTONIC) and
        utilization (0 to 1). `now`: time of the tick (ns, CLOCK_MONOTONIC).
        """
        samples, since = self.samples, now - SAMPLE_RETENTION
        if sample is not None and not (samples and sample.monotonic_ns <= samples[-1].monotonic_ns):
            samples.append(sample)
        while len(samples) > 2 and samples[1].monotonic_ns < since:
            samples.popleft()
        if busy:
            self.busy.extend(busy)
        while self.busy and self.busy[0][0] < since:
            self.busy.popleft()

    def is_expired(self, now: int) -> bool:
        """Return whether every sample is older than `SAMPLE_RETENTION` at `now` (ns, CLOCK_MONOTONIC)."""
        since = now - SAMPLE_RETENTION
        is_sampled = bool(self.samples) and self.samples[-1].monotonic_ns >= since
        return not is_sampled and not (self.busy and self.busy[-1][0] >= since)

    def known_until(self, horizon: int) -> int:
        """Return the time up to which all samples have arrived, at most `horizon` (both ns, CLOCK_MONOTONIC).

        The samples that the driver records itself arrive seconds late. Other values are valid until the next reading. A
        reading may be late, because devices are read one after the other and driver calls may be slow.
        """
        until = horizon
        last = next((sample for sample in reversed(self.samples) if _latest(sample) <= horizon), None)
        if last is not None:
            until = min(until, last.monotonic_ns, last.counters_ns)
        if self.busy:
            until = min(until, self.busy[-1][0])
        return max(until, horizon - MAX_DELAY)


class DeviceUsage:
    """Usage of one device by one rank, with sums for each phase of recent epochs and one sum for all other time."""

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        self.whole_board = not uuid.startswith(PARTS)
        self.parts: dict[tuple[int, str], UsageSums] = {}
        self.rest = UsageSums()
        """Sums of earlier epochs, and of counter growth that cannot be attributed to one epoch."""
        self.outside: dict[str, UsageSums] = {}
        """Sums of the time outside epochs, by phase."""
        self.step_rows: dict[int, UsageSums] = {}
        """Sums of each row of steps, by number of the row. Their time is also included in `outside`."""
        self._last_sample: DeviceSample | None = None
        self._energy = EnergyReadings()
        self._power = NAN
        """Mean power in W between the last two readings of energy."""
        self._throttled: tuple[int, Sequence[float]] = 0, ()
        """Time of the last reading of the throttling counters (ns, CLOCK_MONOTONIC), and the values read."""
        self._gap_middle_ns = 0
        """Middle of the newest gap between two samples of this device; ns, CLOCK_MONOTONIC."""
        self._busy_until_ns = 0
        self._gap = 0, 0
        """Start and end of the newest period without samples; ns, CLOCK_MONOTONIC. The driver's own samples from this
        period are ignored, too."""

    def update(self, recent: RecentSamples, timeline: EpochTimeline, until: int, begin: int, end: int) -> None:
        """Add the new samples in `recent` up to `until`.

        The rank lasts from `begin` to `end`. All times are ns, CLOCK_MONOTONIC.
        """
        last = self._last_sample
        new = []
        for sample in reversed(recent.samples):
            if last is not None and sample.monotonic_ns <= last.monotonic_ns:
                if sample.monotonic_ns == last.monotonic_ns:
                    last = sample  # this is the restored state of an earlier daemon, which contains only the counters
                break
            if _latest(sample) <= until:
                new.append(sample)
        for sample in reversed(new):
            held = _held_until(last, sample) if last is not None else 0
            if last is not None:
                self._add_values(last, held, timeline, begin, end)
                if held < sample.monotonic_ns:
                    self._add_gap(held, sample.monotonic_ns, timeline, begin, end)
                if (
                    sample.after_gap or held < sample.monotonic_ns
                ):  # no daemon was running, or this device did not answer
                    self._gap_middle_ns = (last.monotonic_ns + sample.monotonic_ns) // 2
            if held < sample.monotonic_ns:
                self._gap = held, sample.monotonic_ns
            last = sample
            self._add_counters(sample, timeline, begin, end)
        self._last_sample = last
        if recent.busy:
            self._add_busy(recent.busy, timeline, until, begin, end)

    def pop_epoch(self, ordinal: int) -> dict[str, UsageSums]:
        """Remove the sums of an ended epoch, add them to `rest`, and return them by phase."""
        sums = self.epoch_sums(ordinal)
        for phase, part in sums.items():
            del self.parts[ordinal, phase]
            self.rest.merge(part)
        return sums

    def epoch_sums(self, ordinal: int) -> dict[str, UsageSums]:
        """Return the sums of an epoch so far, by phase."""
        return {phase: part for (epoch, phase), part in self.parts.items() if epoch == ordinal}

    def run_sums(self) -> UsageSums:
        """Return the sums of the whole run so far, without the time in which the run was paused."""
        outside = {phase: part for phase, part in self.outside.items() if phase != PAUSED}
        return merge_sums({**outside, None: self.rest, **self.parts})

    def as_json(self) -> dict[str, Any]:
        """Return the state as JSON values, from which `from_json` restores it. The keys are part of the file format."""
        last, energy, (throttled_ns, throttled) = self._last_sample, self._energy, self._throttled
        counters = [value if is_known(value) else None for value in (energy.energy, *throttled)]
        return {
            "uuid": self.uuid, "rest": self.rest.as_json(), "busy": self._busy_until_ns,
            "parts": [[ordinal, phase, part.as_json()] for (ordinal, phase), part in self.parts.items()],
            "outside": {phase: part.as_json() for phase, part in self.outside.items()},
            "rows": [[number, part.as_json()] for number, part in self.step_rows.items()],
            "last": [last.monotonic_ns, counters, throttled_ns] if last and throttled else None,
            "energy_at": energy.at,
        }  # fmt: skip

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> DeviceUsage:
        """Restore the state that `as_json` returned.

        Of the last sample, only the counters are restored. So the next sample gives their growth over the time without
        a daemon.
        """
        usage = cls(state["uuid"])
        usage.rest = UsageSums.from_json(state["rest"])
        usage.parts = {(ordinal, phase): UsageSums.from_json(part) for ordinal, phase, part in state["parts"]}
        usage.outside = {phase: UsageSums.from_json(part) for phase, part in state["outside"].items()}
        usage.step_rows = {number: UsageSums.from_json(part) for number, part in state["rows"]}
        usage._busy_until_ns = state["busy"]
        if state["last"]:
            monotonic, counters, at = state["last"]
            energy, *throttled = [NAN if value is None else value for value in counters]
            usage._last_sample = DeviceSample(monotonic, [NAN] * len(GPU_METRICS), 0, monotonic)
            usage._energy.accept(state["energy_at"], energy)
            usage._throttled = at, throttled
        return usage

    def known_until(self, horizon: int) -> int:
        """Return the time up to which the energy is complete, at most `horizon` (both ns, CLOCK_MONOTONIC).

        This is the time of the last reading. If no further reading arrives within `MAX_DELAY`, the result is `horizon`.
        """
        at = round(self._energy.at)
        is_awaited = self.whole_board and is_known(self._energy.energy) and horizon - at <= MAX_DELAY
        return min(at, horizon) if is_awaited else horizon

    def _add_values(self, a: DeviceSample, until: int, timeline: EpochTimeline, begin: int, end: int) -> None:
        """Add the values of sample `a`, which are valid until `until`.

        If they are not valid at all, only the peaks are added.
        """
        if not a.interval_ns:
            return
        until = max(until, a.monotonic_ns)
        for begun, piece_end, span in timeline.pieces(
            max(a.monotonic_ns, begin), min(max(until, a.monotonic_ns + 1), end)
        ):
            for part in self._sums_at(span, timeline):
                seconds = (min(piece_end, until) - begun) / SECOND
                part.add_values(a.values, seconds, is_read_here=begun == a.monotonic_ns)

    def _add_gap(self, since: int, until: int, timeline: EpochTimeline, begin: int, end: int) -> None:
        """Add a period without values from `since` to `until` (ns) to `unseen` if a boundary lies within it."""
        pieces = list(timeline.pieces(max(since, begin), min(until, end)))
        if len(pieces) > 1:
            for begun, piece_end, span in pieces:
                for part in self._sums_at(span, timeline):
                    part.unseen.add(until, (piece_end - begun) / SECOND, (until - since) / SECOND)

    def _add_counters(self, b: DeviceSample, timeline: EpochTimeline, begin: int, end: int) -> None:
        """Add the growth of the counters between their last readings and sample `b`, using the counters' timestamps.

        The throttling counters are read with one driver call. If one of them is missing, the growth of all of them is
        added at the next reading. Likewise, if energy is missing, its growth is added at the next reading.
        """
        at = b.counters_ns
        amounts_by_span: dict[tuple[int, int], list[float]] = {}
        uneven: set[tuple[int, int]] = set()
        for growth in self._energy.add(at, b.values[_ENERGY], b.values[_LIMIT]):
            span = round(growth.begin), round(growth.end)
            amounts_by_span[span] = [growth.joules, *_NOT_COUNTED]
            seconds = (growth.end - growth.begin) / SECOND
            previous, self._power = self._power, growth.joules / seconds if seconds > 0 else NAN
            if seconds > _EVEN_SECONDS and not abs(self._power - previous) <= _STEADY_POWER * previous:
                uneven.add(span)
        since, throttled = self._throttled
        now = [b.values[i] for i in COUNTERS[1:]]
        if not throttled or (at > since and (at - since > _MAX_GAP or not is_newly_missing(throttled, now))):
            if throttled:
                amounts = amounts_by_span.setdefault((since, at), [NAN, *_NOT_COUNTED])
                amounts[1:] = map(_growth, throttled, now)
            self._throttled = at, now
        for (first, last), amounts in amounts_by_span.items():
            self._add_growth(first, last, amounts, timeline, begin, end, is_even=(first, last) not in uneven)

    def _add_growth(
        self, first: int, last: int, growth: list[float], timeline: EpochTimeline, begin: int, end: int, *,
        is_even: bool,
    ) -> None:  # fmt: skip
        """Add the growth of the counters from `first` to `last` (ns, CLOCK_MONOTONIC).

        `is_even`: whether energy is assumed to have grown evenly during this time.
        """
        since, until, length = max(first, begin), min(last, end), last - first
        if since >= until:
            return
        counter = self._energy.energy  # at `last`
        pieces = list(timeline.pieces(since, until))
        is_cut = len(pieces) > 1 or (since, until) != (first, last)
        # Otherwise, it cannot be determined how much of the growth belongs to either side of a boundary. Throttling is
        # added to `rest`, so that the sum of the run includes all of it, and energy is added to `estimated`.
        is_unsure = is_cut and (length > _MAX_GAP or not is_even or first < self._gap_middle_ns < last)
        for begun, piece_end, span in pieces:
            seconds = (piece_end - begun) / SECOND
            if is_unsure:
                self.rest.add_counters([NAN, *growth[1:]], (piece_end - begun) / length, seconds)
                if is_known(growth[0]):
                    for part in self._sums_at(span, timeline):
                        part.estimated.add(last, seconds, length / SECOND, growth[0])
            else:
                for part in self._sums_at(span, timeline):
                    part.add_counters(growth, (piece_end - begun) / length, seconds)
                    if is_known(growth[0]):
                        part.add_energy_reading(
                            *((at, counter - growth[0] * (last - at) / length) for at in (begun, piece_end))
                        )

    def _add_busy(
        self, busy: deque[tuple[int, float]], timeline: EpochTimeline, until: int, begin: int, end: int
    ) -> None:  # fmt: skip
        """Add the driver's own utilization samples up to `until`."""
        at = self._busy_until_ns
        if not at:
            at = busy[0][0]
        for monotonic, ratio in list(busy)[bisect_right(busy, at, key=itemgetter(0)) :]:
            since, to = max(at, monotonic - _MAX_BUSY_PERIOD), min(monotonic, until)
            for first, last in ((since, min(to, self._gap[0])), (max(since, self._gap[1]), to)):
                for begun, piece_end, span in (
                    timeline.pieces(max(first, begin), min(last, end)) if last > first else ()
                ):
                    for part in self._sums_at(span, timeline):
                        part.busy.add(ratio, (piece_end - begun) / SECOND)
            at = max(at, to)
            if monotonic > until:
                break
        self._busy_until_ns = at

    def merge_step_rows(self, step_rows: StepRanges) -> None:
        """Apply changes in the rows of steps.

        The sums of merged rows are merged, and the sums of deleted rows are deleted.
        """
        for number in [number for number in self.step_rows if number in step_rows.absorbed]:
            sums, into = self.step_rows.pop(number), step_rows.resolve(number)
            self._row_sums(into).merge(sums)
        numbers = {row.number for row in step_rows.rows}
        for number in [number for number in self.step_rows if number not in numbers]:
            del self.step_rows[number]

    def _row_sums(self, number: int) -> UsageSums:
        sums = self.step_rows.get(number)
        if sums is None:
            sums = self.step_rows[number] = UsageSums()
        return sums

    def _sums_at(self, span: PhaseStart, timeline: EpochTimeline) -> tuple[UsageSums, ...]:
        part = self._phase_sums(span.ordinal, span.phase, timeline)
        if span.row == NO_ROW or not timeline.step_rows.rows or span.phase == PAUSED:
            return (part,)
        return part, self._row_sums(timeline.step_rows.resolve(span.row))

    def _phase_sums(self, ordinal: int, phase: str, timeline: EpochTimeline) -> UsageSums:
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


def _held_until(sample: DeviceSample, after: DeviceSample) -> int:
    """Return the time (ns, CLOCK_MONOTONIC) until which the values of a sample are valid.

    They are valid until the next sample `after`. Before a gap they are not valid at all, because the daemon or the
    device may have stopped right after the sample.
    """
    interval = sample.interval_ns
    is_near = after.monotonic_ns <= sample.monotonic_ns + max(HOLD_INTERVALS * interval, MIN_HOLD)
    return after.monotonic_ns if interval and is_near and not after.after_gap else sample.monotonic_ns


def _growth(before: float, after: float) -> float:
    """Return the growth of a counter, or NaN if it decreased, for example because of a reset."""
    return after - before if after >= before else NAN


def _latest(sample: DeviceSample) -> int:
    return max(sample.monotonic_ns, sample.counters_ns)
