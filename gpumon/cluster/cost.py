"""Charges of a cluster's users: what is asked for them beside their hours, and what follows from the answers.

Held time is priced by model. Where electricity has tariffs, energy is asked for by the hours of each price; hours are
those of this machine's time zone, as its clock was then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

from gpumon.cluster.client import Answers
from gpumon.cluster.coverage import covered, doubt
from gpumon.cluster.model import without_use
from gpumon.cluster.period_queries import LATELY, fitted, site_time
from gpumon.cluster.picture import hours
from gpumon.cluster.queries import ROLLING, STEP, Period, Question, energy_of, hours_of, seldom, sums
from gpumon.cluster.rules import RULE_INTERVAL
from gpumon.common.config import HOURS, Prices
from gpumon.common.text import cut
from gpumon.cost import JOULES_PER_KWH, NO_CHARGE, UNKNOWN, WHOLE, Amount, Charge, amount, sum_charges
from gpumon.storage.history.tiers import HOUR

_BY_MODEL = {"held": "user_model:gpumon_gpus_held:rate5m", "idle_held": "user_model:gpumon_gpus_idle_held:rate5m"}
_POWER = "user:gpumon_power_watts:rate5m"


def cost_questions(
    prices: Prices | None, east: float | None = None, periods: Sequence[Period] = ROLLING
) -> tuple[Question, ...]:
    """Return what has to be asked for the prices; `east`: seconds by which their hours are ahead of UTC.

    Without it they are those of the site's clock, which is put in when a question is asked.
    """
    if prices is None:
        return ()
    found: list[Question] = []
    for period in periods:
        if prices.gpu_hour:
            found += [
                sums(f"{what}_by_model", record, period, hours_of(period), by="user, model")
                for what, record in _BY_MODEL.items()
            ]
        if _has_tariffs(prices):
            for place, hours in enumerate(_tariffs(prices).values()):
                found.append(_at_price(place, hours, east, period))
                if period is not Period.LAST_MONTH:  # its end is long ago
                    found.append(_lately(place, hours, east, period))
    return tuple(found)


def charges(answers: Answers, prices: Prices, period: Period) -> dict[str, Charge]:
    """Return the charge of each user of whom anything was told; what was not answered is unknown."""
    held, idle = (_priced_time(answers, prices, what, period) for what in _BY_MODEL)
    kwh, money = _energy(answers, prices, period)
    found: dict[str, Charge] = {}
    for user in {*held, *idle, *kwh}:
        used = kwh.get(user)
        found[user] = Charge(
            held=held.get(user, UNKNOWN) if prices.gpu_hour else Amount(),
            idle_held=idle.get(user, UNKNOWN) if prices.gpu_hour else Amount(),
            energy=money.get(user, UNKNOWN) if prices.has_energy else Amount(),
            co2=amount(used, prices.co2) if used is not None and isfinite(prices.co2) else UNKNOWN,
        )
    found = dict.fromkeys(without_use(answers, period), _nothing(prices)) | found
    known = doubt(answers, period)
    return {user: one if known.is_whole(user) else least(one) for user, one in found.items()}


def least(charge: Charge) -> Charge:
    """Return a charge as one of at least so much."""
    return Charge(*(part._replace(complete=False) for part in charge))


def _nothing(prices: Prices) -> Charge:
    """The charge of no use at all."""
    none = Amount(0.0)
    held = none if prices.gpu_hour else Amount()
    return Charge(held, held, none if prices.has_energy else Amount(), none if isfinite(prices.co2) else UNKNOWN)


def of_all(found: Mapping[str, Charge], users: Sequence[str]) -> Charge:
    """Return the charge of some users together."""
    return sum_charges(found.get(user, NO_CHARGE) for user in users)


def _at_price(place: int, hours: Sequence[int], east: float | None, period: Period) -> Question:
    # A sample is of the minutes before it. Steps end at multiples of their length, as hours of every zone do.
    steps = f"{_POWER} and on () ({_in(hours, east, -STEP / 2, period)})"
    query = f"sum_over_time(({steps})[{period.selector}:{STEP}s]) * {STEP}"
    return Question(f"energy_at_{place}_{period}", query, seldom(period), together=energy_of(period))


def _lately(place: int, hours: Sequence[int], east: float | None, period: Period) -> Question:
    """Energy of the last minutes, where the price held in any of them."""
    held = f"({_in(hours, east, 0.0, Period.DAY)} or {_in(hours, east, -LATELY, Period.DAY)})"
    query = f"sum_over_time({_POWER}[{LATELY:g}s]) * {RULE_INTERVAL:g} and on () {held}"
    return Question(f"energy_lately_{place}_{period}", query, seldom(period), together=energy_of(period))


def _in(hours: Sequence[int], east: float | None, later: float, period: Period) -> str:
    """Whether it is one of these hours of the local day, so many seconds later."""
    now = site_time(later, period.selector) if east is None else f"time() + {east + later:g}"
    clock = f"hour(vector({now}))"
    ranges: list[tuple[int, int]] = []
    for hour in sorted(hours):
        if ranges and ranges[-1][1] == hour:
            ranges[-1] = ranges[-1][0], hour + 1
        else:
            ranges.append((hour, hour + 1))
    return " or ".join(f"({clock} >= {begin} < {end})" for begin, end in ranges)


def _tariffs(prices: Prices) -> Mapping[float, Sequence[int]]:
    """Hours of the day by price; those without one are left out."""
    found: dict[float, list[int]] = {}
    for hour in range(HOURS):
        if isfinite(prices.kwh[hour]):
            found.setdefault(prices.kwh[hour], []).append(hour)
    return found


def _has_tariffs(prices: Prices) -> bool:
    tariffs = _tariffs(prices)
    return len(tariffs) > 1 or any(len(hours) < HOURS for hours in tariffs.values())


def _priced_time(answers: Answers, prices: Prices, what: str, period: Period) -> dict[str, Amount]:
    """Price the time of each user, as at least so much where the model of a GPU is not known for all of it."""
    found: dict[str, Amount] = {}
    seconds: dict[str, float] = {}
    for row in answers.get(f"{what}_by_model_{period}", ()):
        user = row.labels.get("user", "")
        cost = amount(row.value / HOUR, prices.of_model(row.labels.get("model", "")))
        found[user] = found[user] + cost if user in found else cost
        seconds[user] = seconds.get(user, 0.0) + row.value
    for row in answers.get(f"{what}_{period}", ()):
        user = row.labels.get("user", "")
        if user in found and seconds[user] < WHOLE * row.value:
            found[user] = found[user]._replace(complete=False)
    return found


def _energy(answers: Answers, prices: Prices, period: Period) -> tuple[dict[str, float], dict[str, Amount]]:
    """kWh of the whole site by user, and what they cost."""
    scale = prices.pue / JOULES_PER_KWH
    kwh = {row.labels.get("user", ""): row.value * scale for row in answers.get(f"energy_{period}", ())}
    if not _has_tariffs(prices):
        return kwh, {user: amount(used, prices.kwh[0]) for user, used in kwh.items()}
    tariffs = _tariffs(prices)
    asked = [f"energy_at_{place}_{period}" for place in range(len(tariffs))]
    all_priced = all(name in answers for name in asked) and sum(map(len, tariffs.values())) == HOURS
    used = _by_price(answers, asked, prices)
    lately: dict[str, dict[float, float]] = {}
    if period is not Period.LAST_MONTH:
        lately = _by_price(answers, [f"energy_lately_{place}_{period}" for place in range(len(tariffs))], prices)
    none = dict.fromkeys(tariffs, 0.0)
    return kwh, {
        user: fitted(none | used.get(user, {}), lately.get(user, {}), total, all_priced=all_priced)
        for user, total in kwh.items()
    }


def _by_price(answers: Answers, names: Sequence[str], prices: Prices) -> dict[str, dict[float, float]]:
    """kWh of the whole site by user and by price, in the order of the tariffs."""
    found: dict[str, dict[float, float]] = {}
    for name, price in zip(names, _tariffs(prices), strict=True):
        for row in answers.get(name, ()):
            found.setdefault(row.labels.get("user", ""), {})[price] = row.value * prices.pue / JOULES_PER_KWH
    return found


_UNKNOWN = ""
_NAMED = 3
"""Models that a sentence names."""
_LONGEST = 40
"""Cells of the name of one."""


def unpriced(answers: Answers, prices: Prices | None, period: Period, user: str | None = None) -> Mapping[str, float]:
    """Return seconds without a price in a period by model, of all users or of one; empty is an unknown model.

    Little of a user's time counts as nothing, as it does in their charge, and so does what is held in two minutes:
    rules record the sums of users and those by model at two moments, so that one may have a sample more.
    """
    by_model = answers.get(f"held_by_model_{period}")
    if prices is None or not prices.gpu_hour or by_model is None:
        return {}
    samples = 2 * RULE_INTERVAL / max(covered(answers, period), RULE_INTERVAL)
    found: dict[str, float] = {}
    known: dict[str, float] = {}
    for row in by_model:
        name, model = row.labels.get("user", ""), row.labels.get("model", "")
        known[name] = known.get(name, 0.0) + row.value
        if user in (None, name) and not isfinite(prices.of_model(model)) and row.value > 0:
            found[model] = found.get(model, 0.0) + row.value
    for row in answers.get(f"held_{period}", ()):
        name = row.labels.get("user", "")
        lacking = row.value - known.get(name, 0.0)
        if user in (None, name) and lacking > (1 - WHOLE) * row.value and not lacking <= samples * row.value:
            found[_UNKNOWN] = found.get(_UNKNOWN, 0.0) + lacking
    return found


def without_price(found: Mapping[str, float]) -> str:
    """Return a sentence on it; empty where all has a price.

    >>> without_price({"": 2682000.0})
    '745 h of GPUs of an unknown model have no price.'
    """
    models = [cut(model, _LONGEST) for model in sorted(found) if model]
    models += ["GPUs of an unknown model"] if _UNKNOWN in found else []
    if not models:
        return ""
    named = " and ".join(models) if len(models) <= _NAMED else f"{len(models)} models"
    return f"{hours(sum(found.values()))} of {named} have no price."
