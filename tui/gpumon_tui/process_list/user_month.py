"""Hours and charges of users in this month of the calendar, from the accounts that a daemon keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from gpumon_tui.asked import Asked

if TYPE_CHECKING:
    from gpumon.common.config import Prices
    from gpumon.cost import Charge
    from gpumon.storage.usage.query import StoredAccounts

_AGAIN = 60.0
"""Seconds for which they are good: a daemon writes the hour that goes on once a minute."""
Read = Callable[[str, float, float], "StoredAccounts"]


class UserMonth(NamedTuple):
    """A user's part of a month."""

    held: float
    """Seconds."""
    charge: Charge


NO_MONTHS: Mapping[str, UserMonth] = {}


class MonthReader:
    """Reads them in a thread beside the view. `told` is called there."""

    def __init__(self, told: Callable[[], object], read: Read | None = None) -> None:
        self.asked = Asked(told)
        self._read = read

    def of(self, path: str, now: float, prices: Prices) -> Mapping[str, UserMonth]:
        """Return the month of `now` (s since 1970) by user; empty until it was read, or where nothing keeps it."""
        if not path:
            return NO_MONTHS
        return self.asked.ask(("month", path), lambda: self._month(path, now, prices), _AGAIN).found or NO_MONTHS

    def _month(self, path: str, now: float, prices: Prices) -> dict[str, UserMonth]:
        from gpumon.cost import NO_CHARGE, price_hours
        from gpumon.storage.usage.query import by_user, read_accounts
        from gpumon.storage.usage.summary import PERIODS

        begin, _ = PERIODS["month"](now, None)
        kept = (self._read or read_accounts)(path, begin, now)
        charges = price_hours(kept.hours, kept.devices, prices).users
        return {one.user: UserMonth(one.held, charges.get(one.user, NO_CHARGE)) for one in by_user(kept.hours)}
