"""Accounts of users in a window of the calendar, read and added up in a thread: rows of the screen of accounts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpumon.common.config import Prices
from gpumon.cost import Charge, price_hours
from gpumon.reports.usage import Headlines, device_name, headlines, no_rows_text, seen
from gpumon.storage.usage.account import Account
from gpumon.storage.usage.period_totals import AccountGroup, UserWindow, find_account, summary
from gpumon.storage.usage.query import StoredAccounts, read_accounts

SOON, LATER = 60.0, 600.0
"""Seconds for which an answer is good: a daemon writes the hour that goes on once a minute; what is over stays."""
GPUS, TIMES = "GPUs", "times"
"""Ways to divide a user's hours."""


class AccountRow(NamedTuple):
    """Somebody's hours, or a part of a user's."""

    name: str
    """Of the user, the GPU, the day or the hour; empty for holders who are not known."""
    place: float
    """Where it stands among GPUs, days or hours."""
    account: Account
    charge: Charge | None
    """None without prices."""
    unseen: float = 0.0
    """Seconds, added up over GPUs, of which nothing is known: told of days and hours."""
    device: str = ""
    """UUID of the GPU; empty where it is of several."""
    is_of_window: bool = True
    """Whether it is of the window; else somebody just holds a GPU now."""


class WindowAccounts(NamedTuple):
    """Accounts of a window: of everybody, or of one user."""

    headlines: Headlines | None
    """None where nothing is known."""
    rows: Mapping[str, Sequence[AccountRow]]
    """Users below ""; of one user below `GPUS` and `TIMES`."""
    why: str
    """Words in the place of rows."""


def read_window(path: str, window: UserWindow, now: float, user: str, prices: Prices | None) -> WindowAccounts:
    """Return the accounts of a window up to `now` (s since 1970); with a `user` of that one. Raises GpumonError."""
    before = window.neighbor(-1)
    kept, earlier = (read_accounts(path, one.begin, min(one.end, now)) for one in (window, before))
    end = max(window.begin, min(window.end, now))
    whole = next(iter(summary(kept, window.begin, end, "user")), None)
    past = next(iter(summary(earlier, before.begin, before.end, "user")), None)
    group = seen(whole)
    why = no_rows_text(whole, user)
    if group is None:
        return WindowAccounts(None, {}, why)
    told = headlines(group, past, kept.devices, window, user)
    if not user:
        return WindowAccounts(told, {"": _users(group, kept, prices)}, why)
    of_gpus, of_times = (
        [_part(one, window, user, kept, prices) for one in summary(kept, window.begin, end, by, window.zone)]
        for by in ("device", window.step)
    )
    return WindowAccounts(told, {GPUS: [row for row in of_gpus if row.account.held], TIMES: of_times}, why)


def _users(group: AccountGroup, kept: StoredAccounts, prices: Prices | None) -> Sequence[AccountRow]:
    """A row for each user, and one of holders, or of parts, who are not known."""
    charges = price_hours(group.hours, kept.devices, prices).users if prices else {}
    accounts = [*group.accounts, *([group.rest] if any(group.rest[1:]) else ())]
    return [
        AccountRow(one.user, place, one, charges.get(one.user, Charge()) if prices else None)
        for place, one in enumerate(accounts)
    ]


def _part(
    group: AccountGroup, window: UserWindow, user: str, kept: StoredAccounts, prices: Prices | None
) -> AccountRow:  # fmt: skip
    """The hours of a user on a GPU, or of a day or an hour."""
    charges = price_hours(group.hours, kept.devices, prices).users if prices else {}
    charge, account = charges.get(user, Charge()) if prices else None, find_account(group, user)
    if group.device:
        return AccountRow(
            device_name(group.device), float(group.device.number), account, charge, device=group.device.uuid
        )
    return AccountRow(window.step_title(group.begin), group.begin, account, charge, group.unseen)
