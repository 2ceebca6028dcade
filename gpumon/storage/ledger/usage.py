"""Sums of a device's usage and of the energy of CPU packages. Sums can be extended and merged.

The values of a tick are valid until the next tick. There is a gap if two ticks are more than `HOLD_INTERVALS` intervals
apart, or more than 1.5 intervals if the daemon was restarted between them. The last values before a gap are valid for
no time. In a mean, each value is weighted by the time for which it was valid. Peaks come from samples taken within the
period. If there is no such sample, the value that was valid during the period is used. Counters are interpolated
linearly between two ticks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import add
from typing import Any

from gpumon.analysis.thresholds import SAMPLED
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.common.rapl import PackageReading
from gpumon.model.columns import USAGE, MeasuredBy
from gpumon.model.metrics import GPU_INDEX, IDLE

MIN_PACKAGE_COVERED = 0.9
"""Energy of the CPU packages is reported if at least this share of the run's time lies between two readings.

For the rest of the time, the mean power is assumed. The first reading is made at the first tick that shows the run,
because a daemon does not read the packages while nothing is running.
"""
_MAX_PACKAGE_GAP = 60 * SECOND
"""Maximum ns between two readings. In a longer time, the counters may wrap around more than once."""


class PackageUsage:
    """Energy that the CPU packages used while a rank was running."""

    def __init__(self, joules: float = 0.0, covered: float = 0.0) -> None:
        self._joules = joules
        self._covered = covered
        self.unknown = ""
        """Reason why the counters cannot be read; empty if they can be read."""

    def add(self, previous: PackageReading, now: PackageReading, begin: int, end: int) -> None:
        """Add the energy between two consecutive readings.

        The rank lasts from `begin` to `end` (ns, CLOCK_MONOTONIC). Energy outside this time does not count.
        """
        length = now.monotonic_ns - previous.monotonic_ns
        inside = min(now.monotonic_ns, end) - max(previous.monotonic_ns, begin)
        growth = now.joules - previous.joules
        if 0 < inside <= length <= _MAX_PACKAGE_GAP and is_known(growth):
            self._joules += growth * inside / length
            self._covered += inside / SECOND

    def energy(self, seconds: float) -> float:
        """Return the joules used during a rank that ran for `seconds`; NaN if too little of that time was measured."""
        if not self._covered or self._covered < MIN_PACKAGE_COVERED * seconds:
            return NAN
        return self._joules * max(1.0, seconds / self._covered)

    def reason(self, seconds: float) -> str:
        """Return why the energy of a rank that ran for `seconds` cannot be determined; empty if it can."""
        if is_known(self.energy(seconds)):
            return ""
        return self.unknown or "no daemon read the CPU packages during most of the run"

    def as_json(self) -> list[float]:
        """Return the state as JSON values, from which `from_json` restores it."""
        return [self._joules, self._covered]

    @classmethod
    def from_json(cls, state: Sequence[float]) -> PackageUsage:
        joules, covered = state
        return cls(joules, covered)


HOLD_INTERVALS = 3
"""Maximum number of intervals until the next tick. A longer time is a gap, and no part of a gap counts as sampled."""
MIN_HOLD = 2 * SECOND
MIN_COVERED = 0.98
"""Energy is reported if at least this share of the time lies between two readings of the counter."""
MAX_UNSURE = 0.01
"""Energy is reported if at most this share of the energy may belong to the time before or after the period."""
_WHOLE = 1.0 - 1e-6
_TOLERANCE = 0.01
"""Maximum rounding error of a sum with many terms, in joules."""
MIN_ENERGY_SECONDS = 1.0
"""Shortest period whose energy is reported, in seconds. The limit is needed because the counter increases in steps."""
MIN_UTILIZATION_SECONDS = 0.2
"""Shortest period whose utilization is reported, in seconds. The driver takes 5 or 6 samples a second."""
MIN_BUSY_COVERED = 0.9
"""The driver's own samples are used if they cover at least this share of the sampled time."""

_UTILIZATION = GPU_INDEX["gpu.utilization"]
_MEANS = {column.key: GPU_INDEX[column.metric] for column in USAGE if column.measured_by is MeasuredBy.MEAN}
_PEAKS = {column.key: GPU_INDEX[column.metric] for column in USAGE if column.measured_by is MeasuredBy.PEAK}
_FIRSTS = {column.key: GPU_INDEX[column.metric] for column in USAGE if column.measured_by is MeasuredBy.FIRST}
COUNTERS = tuple(
    GPU_INDEX[f"gpu.{metric}"]
    for metric in (
        "energy", "throttled_sw_power", "throttled_sw_thermal", "throttled_hw_thermal", "throttled_hw_power_brake",
    )
)  # fmt: skip
"""Indexes of the counters in a device's values. All lists with one value per counter have this order: energy, time
limited by the power cap, then the other throttling times."""
_MEAN_INDEXES = tuple(_MEANS.values())
_PEAK_INDEXES = tuple(_PEAKS.values())
_FIRST_INDEXES = tuple(_FIRSTS.values())


class UtilizationHistogram:
    """Seconds that a device spent at each utilization, in steps of one percent, as the driver reports utilization."""

    __slots__ = ("bins", "seconds", "total")

    def __init__(self) -> None:
        self.bins: dict[int, float] = {}
        """Seconds by utilization in percent; at most 101 entries."""
        self.seconds = 0.0
        self.total = 0.0

    def add(self, ratio: float, seconds: float) -> None:
        """Add `seconds` at a utilization of `ratio` (0 to 1). A `ratio` of NaN is ignored."""
        # NaN != NaN; no call of is_known, because a call would cost more than the rest of the loop.
        if ratio == ratio:
            percent = max(0, min(100, round(ratio * 100)))
            self.bins[percent] = self.bins.get(percent, 0.0) + seconds
            self.seconds += seconds
            self.total += ratio * seconds

    def merge(self, other: UtilizationHistogram) -> None:
        """Add the times of another histogram."""
        for percent, seconds in other.bins.items():
            self.bins[percent] = self.bins.get(percent, 0.0) + seconds
        self.seconds += other.seconds
        self.total += other.total

    def percentile(self, share: float) -> float:
        """Return the utilization (0 to 1) that was not exceeded for this `share` of the time; NaN without data."""
        so_far = 0.0
        for percent in sorted(self.bins):
            so_far += self.bins[percent]
            if so_far >= share * self.seconds * (1 - 1e-9):
                return percent / 100
        return NAN

    def columns(self) -> dict[str, float]:
        """Return the values for the utilization columns of the table `usage`."""
        if not self.seconds:
            return {}
        idle = sum(seconds for percent, seconds in self.bins.items() if percent < IDLE * 100)
        return {
            "utilization_mean": self.total / self.seconds,
            "utilization_p5": self.percentile(0.05),
            "utilization_p95": self.percentile(0.95),
            "idle_share": idle / self.seconds,
        }


class SplitIntervals:
    """Intervals between two readings that lie only partly within the time of a row of the ledger.

    It cannot be determined how much of such an interval's energy belongs to the row. If rows are merged, the merged row
    may contain the whole interval, and then it contains all of the interval's energy.
    """

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows: dict[int, list[float]] = {}
        """For the end of each interval (ns, CLOCK_MONOTONIC): the seconds of the interval within the row, its whole
        length in seconds, and its joules."""

    def add(self, until: int, seconds: float, length: float, joules: float = 0.0) -> None:
        """Add an interval that overlaps this row for `seconds`.

        `until`: end of the interval in ns, CLOCK_MONOTONIC. `length`: whole length in seconds. `joules`: energy used in
        the interval.
        """
        known = self.rows.setdefault(until, [0.0, length, joules])
        known[0] += seconds

    def merge(self, other: SplitIntervals) -> None:
        """Add the intervals of another row."""
        for until, row in other.rows.items():
            self.add(until, *row)

    @property
    def open(self) -> list[list[float]]:
        """Values of those intervals that lie partly outside this row."""
        return [row for row in self.rows.values() if row[0] < _WHOLE * row[1]]

    def joules(self) -> float:
        """Return the energy used within the row, assuming that power was constant during each interval."""
        return sum(joules * seconds / length for seconds, length, joules in self.rows.values())

    def seconds(self) -> float:
        """Return the total seconds of the intervals within the row."""
        return sum(row[0] for row in self.rows.values())


_LISTS = ("weighed", "weights", "inside", "held", "first", "counted", "covered")
"""Lists of numbers in `UsageSums`, in the order of `as_json`."""


class UsageSums:
    """Sums of one device over all periods that form one row of the table `usage`."""

    __slots__ = (
        "begun", "busy", "counted", "covered", "ended", "estimated", "first", "held", "inside", "sampled", "ticks",
        "unseen", "weighed", "weights",
    )  # fmt: skip

    def __init__(self) -> None:
        self.sampled = 0.0
        """Seconds for which each value was valid."""
        self.ticks = UtilizationHistogram()
        self.busy = UtilizationHistogram()
        """Utilization from the driver's own samples."""
        self.weighed = [0.0] * len(_MEAN_INDEXES)
        self.weights = [0.0] * len(_MEAN_INDEXES)
        self.inside = [NAN] * len(_PEAK_INDEXES)
        """Peaks of the samples taken within the periods."""
        self.held = [NAN] * len(_PEAK_INDEXES)
        """Peaks of values that were sampled before a period and were still valid in it."""
        self.first = [NAN] * len(_FIRST_INDEXES)
        """First readings, in the order of `_FIRST_INDEXES`."""
        self.counted = [0.0] * len(COUNTERS)
        self.covered = [0.0] * len(COUNTERS)
        """Seconds that lie between two readings of each counter."""
        self.begun: tuple[int, float] | None = None
        """Time (ns, CLOCK_MONOTONIC) and energy counter (joules) at the start of the first period."""
        self.ended: tuple[int, float] | None = None
        """Time (ns, CLOCK_MONOTONIC) and energy counter (joules) at the end of the last period."""
        self.estimated = SplitIntervals()
        """Intervals between two energy readings that are too far apart to tell when the energy was used."""
        self.unseen = SplitIntervals()
        """Intervals in which the device was not sampled."""

    def add_values(self, values: Sequence[float], seconds: float, *, is_read_here: bool) -> None:
        """Add the values of a sample, which were valid for `seconds`.

        `is_read_here`: whether the sample was also taken within the row's time.
        """
        self.sampled += seconds
        self.ticks.add(values[_UTILIZATION], seconds)
        weighed, weights = self.weighed, self.weights
        for i, index in enumerate(_MEAN_INDEXES):
            value = values[index]
            if value == value:
                weighed[i] += value * seconds
                weights[i] += seconds
        peaks = self.inside if is_read_here else self.held
        for i, index in enumerate(_PEAK_INDEXES):
            value = values[index]
            if value == value and not value <= peaks[i]:
                peaks[i] = value
        for i, index in enumerate(_FIRST_INDEXES):
            if self.first[i] != self.first[i]:
                self.first[i] = values[index]

    def add_counters(self, growth: Sequence[float], share: float, seconds: float) -> None:
        """Add a `share` (0 to 1) of the growth of the counters between two ticks.

        `growth`: growth of each counter; NaN if not available. `seconds`: the same share of the time between the two
        ticks.
        """
        for i, amount in enumerate(growth):
            if amount == amount:
                self.counted[i] += amount * share
                self.covered[i] += seconds

    def add_energy_reading(self, begun: tuple[int, float], ended: tuple[int, float]) -> None:
        """Add the energy counter at the start and at the end of a period, each as a pair of time and joules."""
        self.begun = min(self.begun or begun, begun)
        self.ended = max(self.ended or ended, ended)

    def merge(self, other: UsageSums) -> None:
        """Add the sums of `other`, which must cover a later time."""
        self.sampled += other.sampled
        self.ticks.merge(other.ticks)
        self.busy.merge(other.busy)
        for name in ("weighed", "weights", "counted", "covered"):
            setattr(self, name, list(map(add, getattr(self, name), getattr(other, name))))
        for mine, its in ((self.inside, other.inside), (self.held, other.held)):
            for i, value in enumerate(its):
                if value == value and not value <= mine[i]:
                    mine[i] = value
        for i, value in enumerate(other.first):
            if self.first[i] != self.first[i]:
                self.first[i] = value
        if other.begun and other.ended:
            self.add_energy_reading(other.begun, other.ended)
        self.estimated.merge(other.estimated)
        self.unseen.merge(other.unseen)

    def columns(
        self, seconds: float, *, whole_board: bool = True, min_energy_seconds: float = MIN_ENERGY_SECONDS
    ) -> dict[str, Any]:  # fmt: skip
        """Return the values for the columns of the table `usage`. Columns without a value are left out.

        `seconds`: length of the row's time. `whole_board`: false for a MIG instance, because its counters belong to the
        whole GPU. `min_energy_seconds`: shortest time for which energy is reported.
        """
        from_driver = (
            self.sampled > 0 and self.busy.seconds > 0 and self.busy.seconds >= MIN_BUSY_COVERED * self.sampled
        )
        spread = self.busy if from_driver else self.ticks
        # `inside` shows whether a tick lies within the time. If no tick does, all values are from earlier ticks.
        is_before = _any_known(self.held) and not _any_known(self.inside)
        unseen = sum(row[0] for row in self.unseen.open)
        is_whole = unseen <= (1.0 - SAMPLED) * seconds
        is_seen = seconds >= MIN_UTILIZATION_SECONDS and (from_driver or not is_before) and is_whole
        columns: dict[str, float] = spread.columns() if is_seen else {}
        for i, name in enumerate(_MEANS):
            columns[name] = self.weighed[i] / self.weights[i] if self.weights[i] and is_whole else NAN
        for i, name in enumerate(_PEAKS):
            columns[name] = self.inside[i] if self.inside[i] == self.inside[i] else self.held[i]
        columns |= dict(zip(_FIRSTS, self.first, strict=True))
        if (
            whole_board
            and seconds >= min_energy_seconds
            and (covered := self.covered[0] + self.estimated.seconds()) > 0
        ):
            joules = self.counted[0] + self.estimated.joules()
            open = self.estimated.open
            unsure = sum(joules for _, _, joules in open)
            if covered >= MIN_COVERED * seconds and unsure <= MAX_UNSURE * joules:
                columns["energy"] = columns["energy_least"] = joules
                # The driver's power is a mean that lags behind. For short epochs, energy divided by time is more
                # accurate.
                columns["power_mean"] = joules / covered
                if self.begun and self.ended and abs(self.ended[1] - self.begun[1] - joules) <= _TOLERANCE:
                    columns["energy_from"], columns["energy_to"] = self.begun[1], self.ended[1]
            elif (sure := joules - sum(all * part / length for part, length, all in open)) > _TOLERANCE:
                columns["energy_least"] = sure
        capped_seconds, throttled_seconds = self.covered[1], max(self.covered[2:])
        columns["capped_share"] = min(1.0, self.counted[1] / capped_seconds) if capped_seconds else NAN
        columns["throttled_share"] = min(1.0, sum(self.counted[2:]) / throttled_seconds) if throttled_seconds else NAN
        known = {name: value for name, value in columns.items() if value == value}
        utilization_from = ("driver" if from_driver else "ticks") if is_seen and spread.seconds else ""
        return {
            **known,
            "seconds": seconds,
            "sampled": min(self.sampled, seconds),
            "utilization_from": utilization_from,
        }

    def as_json(self) -> list[Any]:
        """Return the state as JSON values, from which `from_json` restores it. Null stands for NaN."""
        spreads = [[list(s.bins), list(s.bins.values()), s.seconds, s.total] for s in (self.ticks, self.busy)]
        lists = [[None if v != v else v for v in getattr(self, name)] for name in _LISTS]
        cut = [[[until, *row] for until, row in intervals.rows.items()] for intervals in (self.estimated, self.unseen)]
        return [self.sampled, *spreads, *lists, *cut, self.begun, self.ended]

    @classmethod
    def from_json(cls, state: Sequence[Any]) -> UsageSums:
        """Restore sums from the result of `as_json`. Raises ValueError, TypeError or KeyError for anything else."""
        sums = cls()
        sums.sampled, ticks, busy, *lists, estimated, unseen, begun, ended = state
        for intervals, rows in ((sums.estimated, estimated), (sums.unseen, unseen)):
            intervals.rows = {until: row for until, *row in rows}
        if begun and ended:
            sums.add_energy_reading(tuple(begun), tuple(ended))
        for spread, (percents, seconds, whole, total) in ((sums.ticks, ticks), (sums.busy, busy)):
            spread.bins = dict(zip(percents, seconds, strict=True))
            spread.seconds, spread.total = whole, total
        for name, stored in zip(_LISTS, lists, strict=True):
            if len(stored) != len(getattr(sums, name)):
                raise ValueError("other columns")
            setattr(sums, name, [NAN if value is None else value for value in stored])
        return sums


def _any_known(values: Sequence[float]) -> bool:
    # NaN != NaN; no call of is_known, because a call for each value would cost more.
    return any(value == value for value in values)


def merge_sums(parts: Mapping[Any, UsageSums]) -> UsageSums:
    """Return the sum of several `UsageSums`. They must be in chronological order."""
    whole = UsageSums()
    for part in parts.values():
        whole.merge(part)
    return whole
