"""Time windows of queries: calendar months, hourly recorded sums, and the site's local clock.

Queries are fixed strings with placeholders. Just before a query runs, `insert_months`, `insert_windows` and
`insert_clock` replace the placeholders by times that depend on the current time.

Rules in `deploy/prometheus/hours.yml` record sums once an hour. For a month, Prometheus then reads 720 samples of a
series instead of 43,200. Prometheus always evaluates these rules at the same minute of the hour, called the phase. The
parts of a period before its first whole hour and after its last whole hour are added up from the samples of each
minute. The sums are therefore as exact as if all samples were added up. Hourly sums are used if they cover as much of
the period as the samples of each minute.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import partial
from math import floor, isfinite
from statistics import fmean

from gpumon.cluster.client import PrometheusSeries
from gpumon.cluster.rules import RULE_INTERVAL
from gpumon.common.numbers import NAN
from gpumon.cost import UNKNOWN, WHOLE, Amount
from gpumon.storage.history.tiers import HOUR
from gpumon.storage.usage.period_totals import PERIODS

RECENT = 600.0
"""The sums by price may lack the energy of this many most recent seconds."""


def price_energy(
    by_price: Mapping[float, float], recent: Mapping[float, float], total: float, *, all_priced: bool
) -> Amount:
    """Return the cost of `total` kWh.

    `by_price`: kWh at each price, summed in steps of a Prometheus subquery. `recent`: kWh at each price in the last few
    minutes.
    `all_priced`: True if every hour has a price and the query for each price was answered.

    Near a change of the price, energy may be counted at the neighboring price, and the result is approximate. If a
    larger share of the energy has no price, this share is counted at the lowest price and the result is a lower bound.
    If `all_priced` is False, the result is both approximate and incomplete.
    """
    known = sum(by_price.values())
    value = sum(price * kwh for price, kwh in by_price.items())
    if total <= 0:
        return Amount(0.0) if all_priced else UNKNOWN
    if not all_priced:  # some energy may be from hours without a price
        return Amount(value * min(1.0, total / known), complete=False, about=True) if known > 0 else UNKNOWN
    if WHOLE * total <= known <= total / WHOLE:
        return Amount(value * total / known)
    prices = {price for price, kwh in by_price.items() if kwh > 0} | set(recent)
    rest, latest = total - known, max(recent.values(), default=0.0)
    if abs(rest) <= latest / WHOLE and len(prices) == 1:
        return Amount(total * prices.pop())
    if recent and 0 < rest <= latest / WHOLE:
        return Amount(value + rest * fmean(recent), about=True)
    return Amount(total * min((*by_price, *recent)), complete=False)


LAST_MONTH, THIS_MONTH = "last-month", "this-month"
_RANGE = re.compile(rf"\[({LAST_MONTH}|{THIS_MONTH})(:\w+)?\]")
_SECONDS = re.compile(rf'"({LAST_MONTH}|{THIS_MONTH})"')
_MIN_MONTH = 60.0
"""The current month counts as at least this many seconds long, so that ranges are not empty just after it has begun."""


def month_bounds(month: str, at: float, zone: tzinfo | None = None) -> tuple[float, float]:
    """Return the start and end of `last-month` or `this-month` (s since 1970). The current month ends at `at`.

    `zone`: time zone of the month, by default the time zone of this process.
    """
    begin, _ = PERIODS["month"](at, zone)
    if month == LAST_MONTH:
        return PERIODS["month"](begin - 1.0, zone)
    return min(begin, at - _MIN_MONTH), at


def month_dates(month: str, at: float, zone: tzinfo | None = None) -> str:
    """Return the first and the last day of a month.

    >>> from datetime import UTC
    >>> month_dates("last-month", 1796083200.0, UTC)
    '2026-11-01 to 2026-11-30'
    """
    begin, end = month_bounds(month, at, zone)
    first, last = (datetime.fromtimestamp(moment, zone) for moment in (begin, end - 1.0))
    return f"{first:%Y-%m-%d} to {last:%Y-%m-%d}"


def insert_months(expression: str, at: float, zone: tzinfo | None = None) -> str:
    """Replace the calendar months in an expression by time ranges. `at`: current time (s since 1970).

    >>> from datetime import UTC
    >>> insert_months("sum_over_time(up[last-month:300s])", 1796083200.0, UTC)
    'sum_over_time(up[2592000s:300s] @ 1796083200)'
    """
    ranges = _RANGE.sub(partial(_month_range, at, zone), expression)
    return _SECONDS.sub(partial(_month_seconds, at, zone), ranges)


def _month_range(at: float, zone: tzinfo | None, match: re.Match[str]) -> str:
    begin, end = month_bounds(match[1], at, zone)
    return f"[{end - begin:.0f}s{match[2] or ''}] @ {end:.0f}"


def _month_seconds(at: float, zone: tzinfo | None, match: re.Match[str]) -> str:
    begin, end = month_bounds(match[1], at, zone)
    return f'"{end - begin:.0f}"'


_BORDER_MARGIN = 30.0
"""Windows end this many seconds after the hourly samples at their borders, so that no sample is exactly on a border."""
_INGEST_DELAY = 90.0
"""A recorded sample can be read reliably after this many seconds."""
_EMPTY = 0.001
"""Length of an empty window in seconds. It is not 0, because PromQL does not allow empty ranges."""
_MIN_COVERAGE = 0.995
"""Hourly sums are used for a period if they cover at least this fraction of its minute samples."""
_MINUTES = "cluster:gpumon_gpu_power_watts:sum"
PROOF = "cluster:gpumon_recorded_v2:sum1h"
"""Series with the number of seconds of each hour that minute samples cover. It exists only if this version of the rules
is loaded."""
NODE_SAMPLES = "instance:gpumon_gpus_free:count"
"""Series with one sample a minute for each node that reports its GPUs."""
_NODE_SECONDS = "instance:gpumon_seen:sum1h"
"""Series with the number of seconds of each hour in which a node reported its GPUs."""
HELD_COUNTER = "gpumon_user_held_seconds_total"
HOURLY_HELD_COUNTER = "instance_user:gpumon_user_held_seconds:last1h"
"""Series with the last value in each hour of a user's counter on a node, which grows while the user holds a GPU."""
_LOOKBACK = "65m:1m"
"""Range and step of the search for the last hourly sample."""


def hourly_series(series: str) -> str:
    """Return the name of the hourly sums of a recorded rate.

    >>> hourly_series("user:gpumon_gpus_held:rate5m")
    'user:gpumon_gpus_held:sum1h'
    """
    return f"{series.rpartition(':')[0]}:sum1h"


@dataclass(frozen=True, slots=True)
class HourlySums:
    """The hourly sums that a Prometheus server has."""

    phase: float = NAN
    """Phase: seconds after each full hour at which the sums are recorded. NaN if there are no sums."""
    periods: frozenset[str] = frozenset()
    """Selectors of the periods that the hourly sums cover as far as the minute samples do."""


def summed_by_hour(series: str, by: str, selector: str) -> str:
    """Return an expression that sums a series over a period, by the labels `by`.

    The expression uses hourly sums and contains placeholders that `insert_windows` replaces. `selector`: length of the
    period, such as `168h`, or the name of a calendar month.
    """
    return _sum_hours("sum_over_time", series, hourly_series(series), by, selector)


def seen_by_hour(selector: str) -> str:
    """Return an expression for the number of seconds of a period in which each node reported its GPUs.

    The expression uses hourly sums and contains placeholders that `insert_windows` replaces.
    """
    return _sum_hours("count_over_time", NODE_SAMPLES, _NODE_SECONDS, "instance", selector)


def _sum_hours(function: str, series: str, hours: str, by: str, selector: str) -> str:
    minutes = (
        f'label_replace({function}({series}[{part} {selector}]) * {RULE_INTERVAL:g}, "part", "{part}", "", "")'
        for part in ("before", "behind")
    )
    parts = " or ".join((f"sum_over_time({hours}[hours {selector}])", *minutes))
    return f"sum by ({by}) (max by ({by}, part) ({parts}))"


def hourly_coverage_query(selectors: Collection[str]) -> str:
    """Return an expression whose result has a row for each period that hourly sums cover.

    The expression contains placeholders that `insert_windows` replaces. `selectors`: selectors of the periods.
    """
    return " or ".join(
        f"label_replace(max(sum_over_time({PROOF}[hours {selector}]))"
        f" >= {_MIN_COVERAGE * RULE_INTERVAL:g} * max(count_over_time({_MINUTES}[hours {selector}])),"
        f' "of", "{selector}", "", "")'
        for selector in selectors
    )


PHASE_QUERY = f"max(max_over_time(timestamp({PROOF})[{_LOOKBACK}]))"
"""Query for the time at which hourly sums were last recorded (s since 1970)."""


def parse_phase(rows: Iterable[PrometheusSeries]) -> float:
    """Return the seconds after each full hour at which hourly sums are recorded, or NaN if there are no sums.

    `rows`: answer to `PHASE_QUERY`.
    """
    return next((row.value % HOUR for row in rows if isfinite(row.value)), NAN)


_WINDOW = re.compile(r"\[(before|hours|behind) ([\w-]+)\]")


def insert_windows(expression: str, at: float, phase: float, zone: tzinfo | None = None) -> str:
    """Replace the placeholders of an expression that uses hourly sums by time windows.

    `at`: current time (s since 1970). `phase`: seconds after each full hour at which hourly sums are recorded.

    >>> insert_windows("sum_over_time(x[hours 168h])", 1796083200.0, 600.0)
    'sum_over_time(x[599430000ms] @ 1796080230.000)'
    """
    return _WINDOW.sub(partial(_window, at, phase, zone), expression)


def _window(at: float, phase: float, zone: tzinfo | None, match: re.Match[str]) -> str:
    part, selector = match.groups()
    begin, end = _bounds(selector, at, zone)
    first = phase - floor((phase - begin - _BORDER_MARGIN - HOUR) / HOUR) * HOUR
    last = phase + floor((min(end + _BORDER_MARGIN, at - _INGEST_DELAY) - phase) / HOUR) * HOUR
    if last < first:
        spans = {"before": (begin, end)}
    else:
        spans = {
            "before": (begin, first - _BORDER_MARGIN - HOUR), "hours": (first - HOUR / 2, last + _BORDER_MARGIN),
            "behind": (last - _BORDER_MARGIN, end),
        }  # fmt: skip
    since, until = spans.get(part, (first + HOUR / 2, first + HOUR / 2))
    return f"[{1000 * max(until - since, _EMPTY):.0f}ms] @ {until:.3f}"


def _bounds(selector: str, at: float, zone: tzinfo | None) -> tuple[float, float]:
    """Return the start and end (s since 1970) of the period of a selector such as `168h` or `last-month`."""
    if selector in (LAST_MONTH, THIS_MONTH):
        return month_bounds(selector, at, zone)
    return at - HOUR * int(selector[:-1]), at


_CLOCK = re.compile(r"site_time\((-?\d+) ([\w-]+)\)")
_DAY = round(24 * HOUR)


def clock_placeholder(offset: float, selector: str) -> str:
    """Return a placeholder that `insert_clock` replaces by the local clock plus an offset (s).

    `selector`: the period in which changes between standard and daylight saving time are taken into account.
    """
    return f"site_time({offset:.0f} {selector})"


def insert_clock(expression: str, at: float, zone: tzinfo | None = None) -> str:
    """Replace the clock placeholders of an expression by the clock of a time zone, including its changes up to `at`.

    `zone`: by default the time zone of this process.

    >>> from zoneinfo import ZoneInfo
    >>> insert_clock("hour(vector(site_time(0 720h)))", 1763938800.0, ZoneInfo("Europe/Berlin"))
    'hour(vector(time() + 7200 - 3600 * (time() >= bool 1761440400)))'
    """
    return _CLOCK.sub(partial(_clock, at, zone), expression)


def _clock(at: float, zone: tzinfo | None, match: re.Match[str]) -> str:
    offset, selector = int(match[1]), match[2]
    begin, end = _bounds(selector, at, zone)
    begin -= HOUR  # some servers start a range one step earlier
    changes = "".join(
        f" {'-' if by < 0 else '+'} {abs(by)} * (time() >= bool {moment - offset})"
        for moment, by in _clock_changes(int(begin), int(end), zone)
    )
    return f"time() + {_utc_offset(int(begin), zone) + offset}{changes}"


def _clock_changes(begin: int, end: int, zone: tzinfo | None) -> Iterator[tuple[int, int]]:
    """Yield the times at which the UTC offset of the clock changed, each with the change in seconds."""
    for day in range(begin, end, _DAY):
        before, after = day, min(day + _DAY, end)
        by = _utc_offset(after, zone) - _utc_offset(before, zone)
        if not by:
            continue
        while after - before > 1:
            middle = (before + after) // 2
            if _utc_offset(middle, zone) == _utc_offset(day, zone):
                before = middle
            else:
                after = middle
        yield after, by


def _utc_offset(moment: int, zone: tzinfo | None) -> int:
    """Return the number of seconds by which the clock is ahead of UTC at a time."""
    offset = datetime.fromtimestamp(moment, zone).astimezone(zone).utcoffset()
    return round(offset.total_seconds()) if offset is not None else 0
