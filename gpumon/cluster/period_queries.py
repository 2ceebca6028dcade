"""Sums that rules record once an hour: of a month an engine reads 720 samples of a series in the place of 43,200.

`deploy/prometheus/hours.yml` has the rules. An engine evaluates them at some minute of the hour, always the same:
its phase. What of a period lies before the first whole hour and behind the last one is added up by the minute, so that
sums are as exact as those by the minute are. They are asked for where they know as much of the period.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, tzinfo
from functools import partial
from math import floor, isfinite
from statistics import fmean
from typing import NamedTuple

from gpumon.cluster.client import EngineSeries
from gpumon.cluster.rules import RULE_INTERVAL
from gpumon.common.numbers import NAN
from gpumon.cost import UNKNOWN, WHOLE, Amount
from gpumon.storage.history.tiers import HOUR
from gpumon.storage.usage.summary import PERIODS

LATELY = 600.0
"""Seconds in which energy may be that steps do not have yet."""


def fitted(by_price: Mapping[float, float], lately: Mapping[float, float], total: float, *, all_priced: bool) -> Amount:
    """Price the energy of a row (kWh), of which steps have so much at each price.

    `lately`: energy of the last minutes, by each price that held in them; `all_priced`: whether every hour has a price
    and every price was answered. A step may hold energy of the tariff beside it, so that a sum of steps is no bound:
    it is told as "about". Where it is not known at which price much of it was used, all of it was at the lowest or at
    a higher one.
    """
    found = sum(by_price.values())
    value = sum(price * kwh for price, kwh in by_price.items())
    if total <= 0:
        return Amount(0.0) if all_priced else UNKNOWN
    if not all_priced:  # some of it may have been used while nothing had a price
        return Amount(value * min(1.0, total / found), complete=False, about=True) if found > 0 else UNKNOWN
    if WHOLE * total <= found <= total / WHOLE:
        return Amount(value * total / found)
    prices = {price for price, kwh in by_price.items() if kwh > 0} | set(lately)
    rest, recent = total - found, max(lately.values(), default=0.0)
    if abs(rest) <= recent / WHOLE and len(prices) == 1:
        return Amount(total * prices.pop())
    if lately and 0 < rest <= recent / WHOLE:
        return Amount(value + rest * fmean(lately), about=True)
    return Amount(total * min((*by_price, *lately)), complete=False)


LAST, THIS = "last-month", "this-month"
_RANGE = re.compile(rf"\[({LAST}|{THIS})(:\w+)?\]")
_SECONDS = re.compile(rf'"({LAST}|{THIS})"')
_LEAST = 60.0
"""Seconds of a month that has just begun: no range is empty."""


def month(which: str, at: float, zone: tzinfo | None = None) -> tuple[float, float]:
    """Return begin and end of the month (s since 1970); the current one ends now.

    `zone`: where it begins; else where this process is.
    """
    begin, _ = PERIODS["month"](at, zone)
    if which == LAST:
        return PERIODS["month"](begin - 1.0, zone)
    return min(begin, at - _LEAST), at


def days(which: str, at: float, zone: tzinfo | None = None) -> str:
    """Return the first and the last day of the month.

    >>> from datetime import UTC
    >>> days("last-month", 1796083200.0, UTC)
    '2026-11-01 to 2026-11-30'
    """
    begin, end = month(which, at, zone)
    first, last = (datetime.fromtimestamp(moment, zone) for moment in (begin, end - 1.0))
    return f"{first:%Y-%m-%d} to {last:%Y-%m-%d}"


def dated(expression: str, at: float, zone: tzinfo | None = None) -> str:
    """Return an expression whose months are those of a moment.

    >>> from datetime import UTC
    >>> dated("sum_over_time(up[last-month:300s])", 1796083200.0, UTC)
    'sum_over_time(up[2592000s:300s] @ 1796083200)'
    """
    return _SECONDS.sub(partial(_seconds, at, zone), _RANGE.sub(partial(_range, at, zone), expression))


def _range(at: float, zone: tzinfo | None, found: re.Match[str]) -> str:
    begin, end = month(found[1], at, zone)
    return f"[{end - begin:.0f}s{found[2] or ''}] @ {end:.0f}"


def _seconds(at: float, zone: tzinfo | None, found: re.Match[str]) -> str:
    begin, end = month(found[1], at, zone)
    return f'"{end - begin:.0f}"'


_LATE = 30.0
"""Seconds by which the hour of a sum ended before its sample: then no sample of a minute lies on its border."""
_SETTLES = 90.0
"""Seconds after which a sample that is due is there."""
_NO_TIME = 0.001
_KNOWN = 0.995
"""Share of the minutes of a period that its hours have to know."""
_MINUTES = "cluster:gpumon_gpu_power_watts:sum"
PROOF = "cluster:gpumon_recorded_v2:sum1h"
"""Seconds of an hour of which there are samples by the minute, recorded by this version of the rules."""
NODES = "instance:gpumon_gpus_free:count"
"""A sample a minute of each node that tells its GPUs."""
_NODES_SEEN = "instance:gpumon_seen:sum1h"
"""Seconds of an hour in which a node told its GPUs."""
COUNTED = "gpumon_user_held_seconds_total"
PER_USER = "instance_user:gpumon_user_held_seconds:last1h"
"""The counter of a user on a node, as it was told last: it grows while they hold a GPU."""
_LOOKED = "65m:1m"
"""The last sample of an hour, and where an engine looks for it."""


def hourly(series: str) -> str:
    """Return the name of a series of so much a second, added up by the hour.

    >>> hourly("user:gpumon_gpus_held:rate5m")
    'user:gpumon_gpus_held:sum1h'
    """
    return f"{series.rpartition(':')[0]}:sum1h"


class Hours(NamedTuple):
    """Sums by the hour that an engine has."""

    phase: float = NAN
    """Seconds into each hour at which it records them; NaN where it does not."""
    periods: frozenset[str] = frozenset()
    """Selectors of periods of which they know as much as the minutes."""


def summed_by_hour(series: str, by: str, selector: str) -> str:
    """Return an expression that adds up a series over a period, by the labels `by`; `placed` puts in its times."""
    return _summed("sum_over_time", series, hourly(series), by, selector)


def seen_by_hour(selector: str) -> str:
    """Return an expression for the seconds of a period in which each node told its GPUs."""
    return _summed("count_over_time", NODES, _NODES_SEEN, "instance", selector)


def _summed(function: str, series: str, hours: str, by: str, selector: str) -> str:
    minutes = (
        f'label_replace({function}({series}[{part} {selector}]) * {RULE_INTERVAL:g}, "part", "{part}", "", "")'
        for part in ("before", "behind")
    )
    parts = " or ".join((f"sum_over_time({hours}[hours {selector}])", *minutes))
    return f"sum by ({by}) (max by ({by}, part) ({parts}))"


def looked_for(selectors: Collection[str]) -> str:
    """Return the expression that tells of which periods hours know enough; `placed` puts in its times."""
    enough = (
        f"max(sum_over_time({PROOF}[hours {one}]))"
        f" >= {_KNOWN * RULE_INTERVAL:g} * max(count_over_time({_MINUTES}[hours {one}]))"
        for one in selectors
    )
    return " or ".join(
        f'label_replace({found}, "of", "{one}", "", "")' for found, one in zip(enough, selectors, strict=True)
    )


PHASE_ASKED = f"max(max_over_time(timestamp({PROOF})[{_LOOKED}]))"
"""When hours were recorded last, s since 1970."""


def phase_of(rows: Iterable[EngineSeries]) -> float:
    """Return the phase by the answer to `PHASE_ASKED`; NaN where there is none."""
    return next((row.value % HOUR for row in rows if isfinite(row.value)), NAN)


_WINDOW = re.compile(r"\[(before|hours|behind) ([\w-]+)\]")


def placed(expression: str, at: float, phase: float, zone: tzinfo | None = None) -> str:
    """Return an expression whose windows are those of a moment, where hours are recorded at a phase.

    >>> placed("sum_over_time(x[hours 168h])", 1796083200.0, 600.0)
    'sum_over_time(x[599430000ms] @ 1796080230.000)'
    """
    return _WINDOW.sub(partial(_window, at, phase, zone), expression)


def _window(at: float, phase: float, zone: tzinfo | None, found: re.Match[str]) -> str:
    which, selector = found.groups()
    begin, end = month(selector, at, zone) if selector in (LAST, THIS) else (at - HOUR * int(selector[:-1]), at)
    first = phase - floor((phase - begin - _LATE - HOUR) / HOUR) * HOUR
    last = phase + floor((min(end + _LATE, at - _SETTLES) - phase) / HOUR) * HOUR
    if last < first:
        spans = {"before": (begin, end)}
    else:
        spans = {
            "before": (begin, first - _LATE - HOUR), "hours": (first - HOUR / 2, last + _LATE),
            "behind": (last - _LATE, end),
        }  # fmt: skip
    since, until = spans.get(which, (first + HOUR / 2, first + HOUR / 2))
    return f"[{1000 * max(until - since, _NO_TIME):.0f}ms] @ {until:.3f}"


_MARK = re.compile(r"site_time\((-?\d+) ([\w-]+)\)")
_DAY = round(24 * HOUR)


def site_time(later: float, selector: str) -> str:
    """Return a mark for the seconds of the local clock in a period, so many seconds later; `told` puts them in."""
    return f"site_time({later:.0f} {selector})"


def told(expression: str, at: float, zone: tzinfo | None = None) -> str:
    """Return an expression with the clock of a zone, as it went until a moment; else with that of this process.

    >>> from zoneinfo import ZoneInfo
    >>> told("hour(vector(site_time(0 720h)))", 1763938800.0, ZoneInfo("Europe/Berlin"))
    'hour(vector(time() + 7200 - 3600 * (time() >= bool 1761440400)))'
    """
    return _MARK.sub(partial(_told, at, zone), expression)


def _told(at: float, zone: tzinfo | None, found: re.Match[str]) -> str:
    later, selector = int(found[1]), found[2]
    begin, end = month(selector, at, zone) if selector in (LAST, THIS) else (at - HOUR * int(selector[:-1]), at)
    begin -= HOUR  # an engine may begin with the step before
    changes = "".join(
        f" {'-' if by < 0 else '+'} {abs(by)} * (time() >= bool {moment - later})"
        for moment, by in _changes(int(begin), int(end), zone)
    )
    return f"time() + {_east(int(begin), zone) + later}{changes}"


def _changes(begin: int, end: int, zone: tzinfo | None) -> Iterator[tuple[int, int]]:
    """When the clock was changed, and by how many seconds."""
    for day in range(begin, end, _DAY):
        before, after = day, min(day + _DAY, end)
        by = _east(after, zone) - _east(before, zone)
        if not by:
            continue
        while after - before > 1:
            middle = (before + after) // 2
            if _east(middle, zone) == _east(day, zone):
                before = middle
            else:
                after = middle
        yield after, by


def _east(moment: int, zone: tzinfo | None) -> int:
    """Seconds by which the clock was ahead of UTC."""
    ahead = datetime.fromtimestamp(moment, zone).astimezone(zone).utcoffset()
    return round(ahead.total_seconds()) if ahead is not None else 0
