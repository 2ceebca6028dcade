"""Costs of the usage of a cluster's users, and the queries that are needed only for costs.

Held time is priced by GPU model. If the price of electricity depends on the hour, there is one query for each price. It
returns the energy used in the hours with this price. The hours are in this machine's time zone, with its changes
between standard and daylight saving time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

from gpumon.cluster.client import Answers
from gpumon.cluster.coverage import covered_seconds, uncertainty
from gpumon.cluster.model import users_without_use
from gpumon.cluster.period_queries import RECENT, clock_placeholder, price_energy
from gpumon.cluster.queries import ROLLING, STEP, Period, Query, energy_batch, hours_batch, refresh_interval, sum_query
from gpumon.cluster.rules import RULE_INTERVAL
from gpumon.cluster.snapshot import hours
from gpumon.common.config import HOURS, Prices
from gpumon.common.text import cut
from gpumon.cost import JOULES_PER_KWH, NO_CHARGE, UNKNOWN, WHOLE, Amount, Charge, amount, sum_charges
from gpumon.storage.history.tiers import HOUR

_BY_MODEL = {"held": "user_model:gpumon_gpus_held:rate5m", "idle_held": "user_model:gpumon_gpus_idle_held:rate5m"}
_POWER = "user:gpumon_power_watts:rate5m"
_STEP_ERROR = 0.02
"""If a larger share of a user's GPU time may be priced wrongly when the price changes, the cost is marked as
approximate."""


def cost_queries(
    prices: Prices | None, utc_offset: float | None = None, periods: Sequence[Period] = ROLLING
) -> tuple[Query, ...]:
    """Return the queries that are needed to compute costs.

    `utc_offset`: number of seconds by which the time zone of the prices is ahead of UTC. By default, the queries
    contain a placeholder that is replaced by the local clock just before the queries are sent.
    """
    if prices is None:
        return ()
    queries: list[Query] = []
    for period in periods:
        if prices.gpu_hour:
            queries += [
                sum_query(f"{kind}_by_model", record, period, hours_batch(period), by="user, model")
                for kind, record in _BY_MODEL.items()
            ]
        if _has_tariffs(prices):
            for index, hours in enumerate(_tariffs(prices).values()):
                queries.append(_energy_at_price_query(index, hours, utc_offset, period))
                if period is not Period.LAST_MONTH:  # the sums by price already include all of the month's energy
                    queries.append(_recent_energy_query(index, hours, utc_offset, period))
    return tuple(queries)


def charges(answers: Answers, prices: Prices, period: Period) -> dict[str, Charge]:
    """Return the cost of each user who has any usage in the period.

    Amounts that depend on a missing answer are NaN.
    """
    held, idle = (_price_time(answers, prices, kind, period) for kind in _BY_MODEL)
    kwh, money = _price_energy(answers, prices, period)
    by_user: dict[str, Charge] = {}
    for user in {*held, *idle, *kwh}:
        used = kwh.get(user)
        by_user[user] = Charge(
            held=held.get(user, UNKNOWN) if prices.gpu_hour else Amount(),
            idle_held=idle.get(user, UNKNOWN) if prices.gpu_hour else Amount(),
            energy=money.get(user, UNKNOWN) if prices.has_energy else Amount(),
            co2=amount(used, prices.co2) if used is not None and isfinite(prices.co2) else UNKNOWN,
        )
    by_user = dict.fromkeys(users_without_use(answers, period), _zero_charge(prices)) | by_user
    known = uncertainty(answers, period)
    return {user: charge if known.is_complete(user) else as_minimum(charge) for user, charge in by_user.items()}


def as_minimum(charge: Charge) -> Charge:
    """Return the charge with all its amounts marked as lower bounds."""
    return Charge(*(part._replace(complete=False) for part in charge))


def _zero_charge(prices: Prices) -> Charge:
    """Return the charge of a user without usage."""
    none = Amount(0.0)
    held = none if prices.gpu_hour else Amount()
    return Charge(held, held, none if prices.has_energy else Amount(), none if isfinite(prices.co2) else UNKNOWN)


def total_charge(by_user: Mapping[str, Charge], users: Sequence[str]) -> Charge:
    """Return the sum of the charges of these users."""
    return sum_charges(by_user.get(user, NO_CHARGE) for user in users)


def _energy_at_price_query(index: int, hours: Sequence[int], utc_offset: float | None, period: Period) -> Query:
    # A sample covers the minutes before it. Steps end at multiples of their length, and so do the hours of all time
    # zones.
    steps = f"{_POWER} and on () ({_is_during(hours, utc_offset, -STEP / 2, period)})"
    promql = f"sum_over_time(({steps})[{period.selector}:{STEP}s]) * {STEP}"
    return Query(f"energy_at_{index}_{period}", promql, refresh_interval(period), batch=energy_batch(period))


def _recent_energy_query(index: int, hours: Sequence[int], utc_offset: float | None, period: Period) -> Query:
    """Return a query for the energy of the last few minutes.

    It has a result only if the price applied in any of these minutes.
    """
    held = f"({_is_during(hours, utc_offset, 0.0, Period.DAY)} or {_is_during(hours, utc_offset, -RECENT, Period.DAY)})"
    promql = f"sum_over_time({_POWER}[{RECENT:g}s]) * {RULE_INTERVAL:g} and on () {held}"
    return Query(f"energy_lately_{index}_{period}", promql, refresh_interval(period), batch=energy_batch(period))


def _is_during(hours: Sequence[int], utc_offset: float | None, shift: float, period: Period) -> str:
    """Return a PromQL condition that is true in these hours of the local day.

    `shift`: seconds to add to the local clock.
    """
    now = clock_placeholder(shift, period.selector) if utc_offset is None else f"time() + {utc_offset + shift:g}"
    clock = f"hour(vector({now}))"
    ranges: list[tuple[int, int]] = []
    for hour in sorted(hours):
        if ranges and ranges[-1][1] == hour:
            ranges[-1] = ranges[-1][0], hour + 1
        else:
            ranges.append((hour, hour + 1))
    return " or ".join(f"({clock} >= {begin} < {end})" for begin, end in ranges)


def _tariffs(prices: Prices) -> Mapping[float, Sequence[int]]:
    """Return the hours of the day (0 to 23) of each price, by price. Hours without a price are left out."""
    hours_at: dict[float, list[int]] = {}
    for hour in range(HOURS):
        if isfinite(prices.kwh[hour]):
            hours_at.setdefault(prices.kwh[hour], []).append(hour)
    return hours_at


def _has_tariffs(prices: Prices) -> bool:
    tariffs = _tariffs(prices)
    return len(tariffs) > 1 or any(len(hours) < HOURS for hours in tariffs.values())


def _price_time(answers: Answers, prices: Prices, kind: str, period: Period) -> dict[str, Amount]:
    """Return the cost of each user's held or idle time (`kind`).

    The cost is a lower bound if Prometheus has no GPU model for some of the time.
    """
    costs: dict[str, Amount] = {}
    seconds: dict[str, float] = {}
    for row in answers.get(f"{kind}_by_model_{period}", ()):
        user = row.labels.get("user", "")
        cost = amount(row.value / HOUR, prices.of_model(row.labels.get("model", "")))
        costs[user] = costs[user] + cost if user in costs else cost
        seconds[user] = seconds.get(user, 0.0) + row.value
    for row in answers.get(f"{kind}_{period}", ()):
        user = row.labels.get("user", "")
        if user in costs and seconds[user] < WHOLE * row.value:
            costs[user] = costs[user]._replace(complete=False)
    return costs


def _price_energy(answers: Answers, prices: Prices, period: Period) -> tuple[dict[str, float], dict[str, Amount]]:
    """Return the kWh of each user, including the overhead of the site, and their cost."""
    scale = prices.pue / JOULES_PER_KWH
    kwh = {row.labels.get("user", ""): row.value * scale for row in answers.get(f"energy_{period}", ())}
    if not _has_tariffs(prices):
        return kwh, {user: amount(used, prices.kwh[0]) for user, used in kwh.items()}
    tariffs = _tariffs(prices)
    names = [f"energy_at_{index}_{period}" for index in range(len(tariffs))]
    all_priced = all(name in answers for name in names) and sum(map(len, tariffs.values())) == HOURS
    used = _energy_by_price(answers, names, prices)
    recent: dict[str, dict[float, float]] = {}
    if period is not Period.LAST_MONTH:
        recent = _energy_by_price(answers, [f"energy_lately_{index}_{period}" for index in range(len(tariffs))], prices)
    none = dict.fromkeys(tariffs, 0.0)
    held = {row.labels.get("user", ""): row.value for row in answers.get(f"held_{period}", ())}
    costs: dict[str, Amount] = {}
    for user, total in kwh.items():
        cost = price_energy(none | used.get(user, {}), recent.get(user, {}), total, all_priced=all_priced)
        # When the price changes, a step may be counted at the wrong price. This matters only if the usage is short.
        is_short = total > 0 and _STEP_ERROR * held.get(user, 0.0) < STEP
        costs[user] = cost._replace(about=True) if is_short else cost
    return kwh, costs


def _energy_by_price(answers: Answers, names: Sequence[str], prices: Prices) -> dict[str, dict[float, float]]:
    """Return the kWh by user and price, including the overhead of the site.

    `names`: the names of the queries, in the order of the tariffs.
    """
    by_user: dict[str, dict[float, float]] = {}
    for name, price in zip(names, _tariffs(prices), strict=True):
        for row in answers.get(name, ()):
            by_user.setdefault(row.labels.get("user", ""), {})[price] = row.value * prices.pue / JOULES_PER_KWH
    return by_user


_UNKNOWN = ""
_MAX_MODELS = 3
"""Largest number of GPU models that a sentence lists."""
_MAX_MODEL_WIDTH = 40
"""Maximum width of a model's name, in terminal columns."""


def unpriced_seconds(
    answers: Answers, prices: Prices | None, period: Period, user: str | None = None
) -> Mapping[str, float]:
    """Return how many seconds GPUs of each model without a price were held.

    The key "" stands for an unknown model. `user`: count only this user, or all users if None. A small share of a
    user's time is ignored, as in the user's charge. Time of up to two minutes is ignored as well: the sums by user and
    by model are recorded at different moments, so either of them may have an additional sample.
    """
    by_model = answers.get(f"held_by_model_{period}")
    if prices is None or not prices.gpu_hour or by_model is None:
        return {}
    samples = 2 * RULE_INTERVAL / max(covered_seconds(answers, period), RULE_INTERVAL)
    seconds: dict[str, float] = {}
    known: dict[str, float] = {}
    for row in by_model:
        name, model = row.labels.get("user", ""), row.labels.get("model", "")
        known[name] = known.get(name, 0.0) + row.value
        if user in (None, name) and not isfinite(prices.of_model(model)) and row.value > 0:
            seconds[model] = seconds.get(model, 0.0) + row.value
    for row in answers.get(f"held_{period}", ()):
        name = row.labels.get("user", "")
        missing = row.value - known.get(name, 0.0)
        if user in (None, name) and missing > (1 - WHOLE) * row.value and not missing <= samples * row.value:
            seconds[_UNKNOWN] = seconds.get(_UNKNOWN, 0.0) + missing
    return seconds


def unpriced_sentence(seconds: Mapping[str, float]) -> str:
    """Return a sentence about the held time of models without a price. Empty if there is no such time.

    >>> unpriced_sentence({"": 2682000.0})
    'No price is set for 745 h on GPUs of an unknown model.'
    """
    models = [cut(model, _MAX_MODEL_WIDTH) for model in sorted(seconds) if model]
    models += ["GPUs of an unknown model"] if _UNKNOWN in seconds else []
    if not models:
        return ""
    named = " and ".join(models) if len(models) <= _MAX_MODELS else f"{len(models)} models"
    return f"No price is set for {hours(sum(seconds.values()))} on {named}."
