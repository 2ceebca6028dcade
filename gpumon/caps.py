"""Caps on what users and groups use per day, week or month, and when they will be reached.

Views show caps, and `gpumon notify` sends a message when one is nearly used up. gpumon never stops anything because
of a cap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpumon.common.caps import Caps, Limits
from gpumon.common.config import DEFAULT, Prices, UserGroups
from gpumon.common.numbers import NAN, is_known
from gpumon.common.privacy import HIDDEN, SHOWN, current_policy
from gpumon.cost import UNKNOWN, WHOLE, Amount, Charge, price_hours
from gpumon.storage.history.tiers import DAY, HOUR
from gpumon.storage.usage.account import Account
from gpumon.storage.usage.period_totals import PERIODS, Zone, summary
from gpumon.storage.usage.query import HourUse, StoredAccounts, by_group, group_hours, read_accounts

RATE_OVER = float(DAY)
"""Seconds over which the present rate of use is averaged. A whole day, because people work by day."""
MIN_SEEN = 600.0
"""Seconds of this time in which a GPU must have been sampled. Otherwise there is no forecast."""


@dataclass(frozen=True, slots=True)
class CapState:
    """How much of a cap is used."""

    holder: str
    """Name of the user or group."""
    is_group: bool
    measure: str
    """One of `MEASURES`."""
    limit: float
    """In base units: seconds, joules, or the currency."""
    used: Amount
    """Usage since the start of the period, in the same unit. It is incomplete if some time was not sampled, and NaN if
    nothing was measured."""
    period: str
    """`day`, `week` or `month`."""
    begin: float
    """Start of the period, in seconds since 1970."""
    end: float
    reached: float = NAN
    """Start of the hour in which the cap was reached; NaN if it was not reached."""
    forecast: float = NAN
    """When the cap will be reached at the rate of the sampled part of the last `RATE_OVER` seconds. NaN if that is not
    within the period, or if too little was sampled."""

    @property
    def share(self) -> float:
        """The used share of the limit; NaN if unknown."""
        return self.used.value / self.limit


def cap_window(caps: Caps, now: float, zone: Zone = None) -> tuple[float, float]:
    """Return the start and end (s since 1970) of the accounts that `cap_states` needs."""
    return min(PERIODS[caps.period](now, zone)[0], now - RATE_OVER) // HOUR * HOUR, now


def read_cap_states(
    path: str, caps: Caps, groups: UserGroups | None, prices: Prices | None, now: float, user: str = ""
) -> list[CapState]:
    """Return the state of every cap from a history file; with a `user`, only of those that apply to this user.

    See `cap_states` for the other parameters. Raises GpumonError if the file cannot be read.
    """
    states = cap_states(read_accounts(path, *cap_window(caps, now)), caps, groups, prices, now)
    return states_of(states, user, groups) if user else states


def cap_states(
    stored: StoredAccounts, caps: Caps, groups: UserGroups | None, prices: Prices | None, now: float, zone: Zone = None
) -> list[CapState]:
    """Return the state of every cap, those that are used most first.

    `stored`: the accounts in `cap_window`. `groups`, `prices`: as configured; None if there are none. A cap on cost
    without prices is unknown. If names are hidden, the list is empty; if they are hashed, it has no groups.
    """
    people = current_policy()
    if people.way == HIDDEN:
        return []
    users = {people.name(name) if name != DEFAULT else name: limits for name, limits in caps.users.items()}
    states = [*_states(stored, users, caps.period, prices, now, zone, is_group=False)]
    if groups is not None and caps.groups and people.way == SHOWN:
        grouped = by_group(stored, groups)
        states += _states(grouped, caps.groups, caps.period, prices, now, zone, is_group=True)
    return sorted(states, key=lambda state: -state.share if is_known(state.share) else 1.0)


def _states(
    stored: StoredAccounts, limits: Mapping[str, Limits], period: str, prices: Prices | None, now: float, zone: Zone,
    *, is_group: bool,
) -> Iterator[CapState]:  # fmt: skip
    begin, end = PERIODS[period](now, zone)
    # Usage is stored by whole hours of UTC. An hour that began before the period is left out: it belongs to both.
    first = math.ceil(begin / HOUR) * HOUR
    (whole,) = summary(
        StoredAccounts([hour for hour in stored.hours if hour.begin >= first], stored.devices), begin, now, "user", zone
    ) or (None,)
    was_sampled = whole is not None and not whole.unseen and first == begin
    recent = [hour for hour in stored.hours if hour.begin >= now - RATE_OVER]
    seen = max(
        (sum(hour.use.observed for hour in hours) for _, hours in group_hours(recent, lambda hour: hour.device)),
        default=0.0,
    )
    by_holder: dict[str, list[tuple[HourUse, Account]]] = {}
    for hour in stored.hours:
        for account in hour.accounts:
            by_holder.setdefault(account.user, []).append((hour, account))
    for holder in sorted({*by_holder, *limits} - {"", DEFAULT}):
        for measure, limit in limits.get(holder, limits.get(DEFAULT, {})).items():
            used = [(hour.begin, _amount(measure, hour, account, stored, prices))
                    for hour, account in by_holder.get(holder, ())]  # fmt: skip
            own = [(time, amount) for time, amount in used if time >= first]
            total = sum((amount for _, amount in own), Amount(0.0))
            total = total._replace(complete=total.complete and was_sampled)
            newest = sum(amount.value for time, amount in used if time >= now - RATE_OVER and is_known(amount.value))
            left = (limit - total.value) * seen / newest if newest > 0 and seen >= MIN_SEEN else NAN
            yield CapState(
                holder, is_group, measure, limit, total if total.is_meaningful else UNKNOWN, period, begin, end,
                _reached(own, limit), now + left if left > 0 and now + left < end else NAN,
            )  # fmt: skip


def _amount(measure: str, hour: HourUse, account: Account, stored: StoredAccounts, prices: Prices | None) -> Amount:
    """Return what an account adds to a measure, in base units."""
    if measure == "hours":
        return Amount(account.held)
    if measure == "idle-hours":
        return Amount(account.idle_held, complete=account.judged >= WHOLE * account.held)
    if measure == "kwh":
        return Amount(account.energy, complete=account.metered >= WHOLE * account.held)
    if prices is None:
        return UNKNOWN
    one = HourUse(hour.begin, hour.device, hour.use, [account])
    charge = price_hours([one], stored.devices, prices).users.get(account.user, Charge())
    return charge.held if prices.gpu_hour else charge.energy


def _reached(used: Iterable[tuple[float, Amount]], limit: float) -> float:
    """Return the start of the hour in which the sum reached the limit; NaN if it did not.

    `used`: amounts by start of their hour, in the order of time.
    """
    total = 0.0
    for time, amount in used:
        total += amount.value if is_known(amount.value) else 0.0
        if total >= limit:
            return time
    return NAN


def states_of(states: Sequence[CapState], user: str, groups: UserGroups | None) -> list[CapState]:
    """Return the states of the caps that apply to a user: the user's own and the caps of the user's group."""
    group = groups.name(user) if groups is not None else None
    return [state for state in states if state.holder == (group if state.is_group else user)]
