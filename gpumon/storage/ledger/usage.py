"""Usage of one device over some stretches of time: sums that can be added to, and added together.

A tick's values hold until the next tick, and at most `HOLD` intervals: so a mean weighs each value
with the time it held. Peaks are of the samples taken inside the stretches; only where none was, of the
value that held. Counters are straight lines between two ticks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpumon.analysis.thresholds import SAMPLED
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.common.rapl import PackageReading
from gpumon.model.columns import USAGE, MeasuredBy
from gpumon.model.metrics import GPU_INDEX, IDLE

PACKAGE_COVERED = 0.9
"""Energy is reported where so much of the time lies between two readings; their mean power stands for the rest.

The first reading comes with the first tick that shows the run: no daemon reads the packages while nothing runs."""
_LONGEST = 60 * SECOND
"""Between two readings further apart the counters may have started over unseen."""


class PackageUsage:
    """Joules of the packages within the time of a rank."""

    def __init__(self, joules: float = 0.0, covered: float = 0.0) -> None:
        self._joules = joules
        self._covered = covered
        self.unknown = ""
        """Why they cannot be read."""

    def follow(self, before: PackageReading, now: PackageReading, begin: int, end: int) -> None:
        """Two readings in succession, of a rank that went from `begin` to `end` (ns, CLOCK_MONOTONIC)."""
        length = now.monotonic_ns - before.monotonic_ns
        inside = min(now.monotonic_ns, end) - max(before.monotonic_ns, begin)
        grown = now.joules - before.joules
        if 0 < inside <= length <= _LONGEST and is_known(grown):
            self._joules += grown * inside / length
            self._covered += inside / SECOND

    def energy(self, seconds: float) -> float:
        """Joules of a rank that ran for so many seconds; NaN where too little of that was read."""
        if not self._covered or self._covered < PACKAGE_COVERED * seconds:
            return NAN
        return self._joules * max(1.0, seconds / self._covered)

    def reason(self, seconds: float) -> str:
        """Why the energy is unknown; empty where it is known."""
        if is_known(self.energy(seconds)):
            return ""
        return self.unknown or "no daemon read the CPU packages during most of the run"

    def as_json(self) -> list[float]:
        """For `package_usage_of`."""
        return [self._joules, self._covered]


def package_usage_of(found: Sequence[float]) -> PackageUsage:
    """Restore the result of `PackageUsage.as_json`."""
    joules, covered = found
    return PackageUsage(joules, covered)


HOLD = 3
"""Intervals for which a value holds; a longer gap is time that was not sampled."""
HOLD_LEAST = 2 * SECOND
COVERED = 0.98
"""Energy is reported where so much of the time is between two readings of the counter."""
UNSURE = 0.01
"""Share of a stretch's energy, at most, of which it may be unknown whether it was used before a border or behind."""
_ALL = 1.0 - 1e-6
_NOTHING = 0.01
"""Joules by which sums of many parts may be off."""
SHORTEST_ENERGY = 1.0
"""Seconds of a stretch from which its energy is reported: the counter moves in steps."""
SHORTEST_SAMPLE = 0.2
"""Seconds of a stretch from which its utilization is reported: the driver has 5 or 6 samples of it a second."""
BUSY_COVERED = 0.9
"""The driver's own samples are used where they cover so much of the time sampled."""

_UTILIZATION = GPU_INDEX["gpu.utilization"]
_MEANS = {column.key: GPU_INDEX[column.of] for column in USAGE if column.measured_by is MeasuredBy.MEAN}
_PEAKS = {column.key: GPU_INDEX[column.of] for column in USAGE if column.measured_by is MeasuredBy.PEAK}
_FIRSTS = {column.key: GPU_INDEX[column.of] for column in USAGE if column.measured_by is MeasuredBy.FIRST}
COUNTERS = tuple(
    GPU_INDEX[f"gpu.{metric}"]
    for metric in (
        "energy", "throttled_sw_power", "throttled_sw_thermal", "throttled_hw_thermal", "throttled_hw_power_brake",
    )
)  # fmt: skip
"""Places of the counters in a device's values; of their sums in the same order, energy and power limit first."""
_MEAN_PLACES = tuple(_MEANS.values())
_PEAK_PLACES = tuple(_PEAKS.values())
_FIRST_PLACES = tuple(_FIRSTS.values())


class UtilizationHistogram:
    """Distribution of utilization over time, in whole percents, as the driver gives it."""

    __slots__ = ("bins", "seconds", "total")

    def __init__(self) -> None:
        self.bins: dict[int, float] = {}
        """Seconds by percent: at most 101 of them."""
        self.seconds = 0.0
        self.total = 0.0

    def add(self, ratio: float, seconds: float) -> None:
        """So long was utilization `ratio`. NaN is left out."""
        # NaN is not itself; in place, because a call would cost more than the rest of the loop.
        if ratio == ratio:
            percent = max(0, min(100, round(ratio * 100)))
            self.bins[percent] = self.bins.get(percent, 0.0) + seconds
            self.seconds += seconds
            self.total += ratio * seconds

    def merge(self, other: UtilizationHistogram) -> None:
        """Add another's time to this."""
        for percent, seconds in other.bins.items():
            self.bins[percent] = self.bins.get(percent, 0.0) + seconds
        self.seconds += other.seconds
        self.total += other.total

    def below(self, share: float) -> float:
        """The utilization below which it was for `share` of the time; NaN without any."""
        so_far = 0.0
        for percent in sorted(self.bins):
            so_far += self.bins[percent]
            if so_far >= share * self.seconds * (1 - 1e-9):
                return percent / 100
        return NAN

    def columns(self) -> dict[str, float]:
        """The columns of the ledger that are about utilization."""
        if not self.seconds:
            return {}
        idle = sum(seconds for percent, seconds in self.bins.items() if percent < IDLE * 100)
        return {
            "utilization_mean": self.total / self.seconds,
            "utilization_p5": self.below(0.05),
            "utilization_p95": self.below(0.95),
            "idle_share": idle / self.seconds,
        }


class CutStretches:
    """Time in which nobody knows what came when, as far as it lies in a row of the ledger.

    A row with a border in such time has only a part of it, and does not know of how much. Rows that are added together
    may have all of it.
    """

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows: dict[int, list[float]] = {}
        """By its end (ns, CLOCK_MONOTONIC): seconds of it that lie in the row, its length, and joules in all of it."""

    def add(self, until: int, seconds: float, length: float, joules: float = 0.0) -> None:
        """Add a part of a time up to `until` that is `length` seconds long, and in which `joules` were used."""
        known = self.rows.setdefault(until, [0.0, length, joules])
        known[0] += seconds

    def merge(self, other: CutStretches) -> None:
        """Add another's parts."""
        for until, row in other.rows.items():
            self.add(until, *row)

    @property
    def open(self) -> list[list[float]]:
        """Rows of those of which another row has a part."""
        return [row for row in self.rows.values() if row[0] < _ALL * row[1]]

    def joules(self) -> float:
        """Energy in the parts, if all was used evenly."""
        return sum(joules * seconds / length for seconds, length, joules in self.rows.values())

    def seconds(self) -> float:
        """Length of the parts."""
        return sum(row[0] for row in self.rows.values())


class UsageSums:
    """The sums of one device over the stretches that belong to one row of the ledger."""

    __slots__ = (
        "begun", "busy", "counted", "covered", "ended", "estimated", "first", "held", "inside", "sampled", "ticks",
        "unseen", "weighed", "weights",
    )  # fmt: skip

    def __init__(self) -> None:
        self.sampled = 0.0
        """Seconds for which a value held."""
        self.ticks = UtilizationHistogram()
        self.busy = UtilizationHistogram()
        """From the driver's own samples."""
        self.weighed = [0.0] * len(_MEAN_PLACES)
        self.weights = [0.0] * len(_MEAN_PLACES)
        self.inside = [NAN] * len(_PEAK_PLACES)
        """Peaks of the samples taken inside."""
        self.held = [NAN] * len(_PEAK_PLACES)
        """Peaks of the values that held on from before."""
        self.first = [NAN] * len(_FIRST_PLACES)
        """The first that was read."""
        self.counted = [0.0] * len(COUNTERS)
        self.covered = [0.0] * len(COUNTERS)
        """Seconds that lay between two readings of the counter."""
        self.begun: tuple[int, float] | None = None
        """The energy counter when the stretches began, and when that was: ns, CLOCK_MONOTONIC."""
        self.ended: tuple[int, float] | None = None
        """The same of their end."""
        self.estimated = CutStretches()
        """Between two readings of the energy that lie too far apart to tell when it was used."""
        self.unseen = CutStretches()
        """Time without samples."""

    def hold(self, values: Sequence[float], seconds: float, *, taken_here: bool) -> None:
        """These values held for so long; `taken_here`: they were also read inside this stretch."""
        self.sampled += seconds
        self.ticks.add(values[_UTILIZATION], seconds)
        weighed, weights = self.weighed, self.weights
        for i, place in enumerate(_MEAN_PLACES):
            value = values[place]
            if value == value:
                weighed[i] += value * seconds
                weights[i] += seconds
        peaks = self.inside if taken_here else self.held
        for i, place in enumerate(_PEAK_PLACES):
            value = values[place]
            if value == value and not value <= peaks[i]:
                peaks[i] = value
        for i, place in enumerate(_FIRST_PLACES):
            if self.first[i] != self.first[i]:
                self.first[i] = values[place]

    def count(self, grown: Sequence[float], share: float, seconds: float) -> None:
        """Counters grew so much between two ticks, of which this is a `share` of `seconds`. NaN: not known."""
        for i, amount in enumerate(grown):
            if amount == amount:
                self.counted[i] += amount * share
                self.covered[i] += seconds

    def read_counter(self, begun: tuple[int, float], ended: tuple[int, float]) -> None:
        """Take the energy counter at the begin and the end of a stretch, each behind its time."""
        self.begun = min(self.begun or begun, begun)
        self.ended = max(self.ended or ended, ended)

    def merge(self, other: UsageSums) -> None:
        """Add what came later to this."""
        self.sampled += other.sampled
        self.ticks.merge(other.ticks)
        self.busy.merge(other.busy)
        for mine, its in (
            (self.weighed, other.weighed), (self.weights, other.weights), (self.counted, other.counted),
            (self.covered, other.covered),
        ):  # fmt: skip
            for i, amount in enumerate(its):
                mine[i] += amount
        for mine, its in ((self.inside, other.inside), (self.held, other.held)):
            for i, value in enumerate(its):
                if value == value and not value <= mine[i]:
                    mine[i] = value
        for i, value in enumerate(other.first):
            if self.first[i] != self.first[i]:
                self.first[i] = value
        if other.begun and other.ended:
            self.read_counter(other.begun, other.ended)
        self.estimated.merge(other.estimated)
        self.unseen.merge(other.unseen)

    def columns(
        self, seconds: float, *, whole_board: bool = True, least: float = SHORTEST_ENERGY
    ) -> dict[str, Any]:  # fmt: skip
        """The row of `usage` for a stretch of `seconds`; None where a column is not known.

        `whole_board`: false on a MIG instance, whose counters are those of the whole GPU. `least`: seconds from which
        energy is reported.
        """
        from_driver = self.sampled > 0 and self.busy.seconds > 0 and self.busy.seconds >= BUSY_COVERED * self.sampled
        spread = self.busy if from_driver else self.ticks
        # Peaks tell whether any tick was inside: without one, that whose value held is of before.
        is_before = _any_known(self.held) and not _any_known(self.inside)
        unseen = sum(row[0] for row in self.unseen.open)
        is_whole = unseen <= (1.0 - SAMPLED) * seconds
        is_seen = seconds >= SHORTEST_SAMPLE and (from_driver or not is_before) and is_whole
        columns: dict[str, float] = spread.columns() if is_seen else {}
        for i, name in enumerate(_MEANS):
            columns[name] = self.weighed[i] / self.weights[i] if self.weights[i] and is_whole else NAN
        for i, name in enumerate(_PEAKS):
            columns[name] = self.inside[i] if self.inside[i] == self.inside[i] else self.held[i]
        columns |= dict(zip(_FIRSTS, self.first, strict=True))
        if whole_board and seconds >= least and (covered := self.covered[0] + self.estimated.seconds()) > 0:
            joules = self.counted[0] + self.estimated.joules()
            open = self.estimated.open
            unsure = sum(joules for _, _, joules in open)
            if covered >= COVERED * seconds and unsure <= UNSURE * joules:
                columns["energy"] = columns["energy_least"] = joules
                # The driver's power is a mean that lags behind: over an epoch of seconds, energy by time is the truth.
                columns["power_mean"] = joules / covered
                if self.begun and self.ended and abs(self.ended[1] - self.begun[1] - joules) <= _NOTHING:
                    columns["energy_from"], columns["energy_to"] = self.begun[1], self.ended[1]
            elif (sure := joules - sum(all * part / length for part, length, all in open)) > _NOTHING:
                columns["energy_least"] = sure
        capped, heat = self.covered[1], max(self.covered[2:])
        columns["capped_share"] = min(1.0, self.counted[1] / capped) if capped else NAN
        columns["throttled_share"] = min(1.0, sum(self.counted[2:]) / heat) if heat else NAN
        known = {name: value for name, value in columns.items() if value == value}
        told = ("driver" if from_driver else "ticks") if is_seen and spread.seconds else ""
        return {**known, "seconds": seconds, "sampled": min(self.sampled, seconds), "utilization_from": told}

    def as_json(self) -> list[Any]:
        """For `usage_sums_of`, with null for NaN."""
        spreads = [[list(s.bins), list(s.bins.values()), s.seconds, s.total] for s in (self.ticks, self.busy)]
        peaks = [[None if v != v else v for v in row] for row in (self.inside, self.held, self.first)]
        cut = [[[until, *row] for until, row in one.rows.items()] for one in (self.estimated, self.unseen)]
        return [self.sampled, *spreads, self.weighed, self.weights, *peaks, self.counted, self.covered, *cut,
                self.begun, self.ended]  # fmt: skip


def usage_sums_of(found: Sequence[Any]) -> UsageSums:
    """Restore the result of `UsageSums.as_json`. Raises ValueError, TypeError or KeyError when it is something else."""
    sums = UsageSums()
    sums.sampled, ticks, busy, weighed, weights, inside, held, first, counted, covered, *cut, begun, ended = found
    for one, rows in zip((sums.estimated, sums.unseen), cut, strict=True):
        one.rows = {until: row for until, *row in rows}
    if begun and ended:
        sums.read_counter(tuple(begun), tuple(ended))
    for spread, (percents, seconds, whole, total) in ((sums.ticks, ticks), (sums.busy, busy)):
        spread.bins = dict(zip(percents, seconds, strict=True))
        spread.seconds, spread.total = whole, total
    for mine, its in (
        (sums.weighed, weighed), (sums.weights, weights), (sums.inside, inside), (sums.held, held),
        (sums.first, first), (sums.counted, counted), (sums.covered, covered),
    ):  # fmt: skip
        if len(its) != len(mine):
            raise ValueError("other columns")
        mine[:] = [NAN if value is None else value for value in its]
    return sums


def _any_known(values: Sequence[float]) -> bool:
    # NaN is not itself; in place, because a call for each value would cost more.
    return any(value == value for value in values)


def merged(parts: Mapping[Any, UsageSums]) -> UsageSums:
    """The sums of several stretches as one, in the order of their begins."""
    whole = UsageSums()
    for part in parts.values():
        whole.merge(part)
    return whole
