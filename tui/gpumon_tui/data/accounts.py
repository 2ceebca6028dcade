"""GPU hours by user in a calendar window, read and summed in a background thread for the accounts screen."""

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
"""Seconds for which an answer stays valid: `SOON` for the current window, whose last hour the daemon updates once a
minute, `LATER` for past ones.
"""
GPUS, TIMES = "GPUs", "times"
"""Breakdowns of a user's hours."""


class AccountRow(NamedTuple):
    """GPU hours of a user: all of them, or those on a GPU, in a day or in an hour."""

    name: str
    """Name of the user, GPU, day or hour; empty for unknown users."""
    position: float
    """Sort position among users, GPUs, days or hours."""
    account: Account
    charge: Charge | None
    """None without configured prices."""
    unseen: float = 0.0
    """GPU-seconds without data; only for days and hours."""
    device: str = ""
    """UUID of the GPU; empty if the row covers several GPUs."""
    is_of_window: bool = True
    """Whether the hours belong to the window; False for a user who only holds a GPU now."""


class WindowAccounts(NamedTuple):
    """Accounts of a window, for all users or one user."""

    headlines: Headlines | None
    """None if there are no data for the window."""
    rows: Mapping[str, Sequence[AccountRow]]
    """Rows of users under the key ""; for one user, rows under `GPUS` and `TIMES`."""
    empty_text: str
    """Text shown if there are no rows."""


def read_window(path: str, window: UserWindow, now: float, user: str, prices: Prices | None) -> WindowAccounts:
    """Return the accounts of a window up to `now` (s since 1970), of one user if `user` is given.

    Raises GpumonError.
    """
    previous = window.neighbor(-1)
    stored, earlier = (read_accounts(path, period.begin, min(period.end, now)) for period in (window, previous))
    end = max(window.begin, min(window.end, now))
    total = next(iter(summary(stored, window.begin, end, "user")), None)
    previous_total = next(iter(summary(earlier, previous.begin, previous.end, "user")), None)
    group = seen(total)
    empty_text = no_rows_text(total, user)
    if group is None:
        return WindowAccounts(None, {}, empty_text)
    sums = headlines(group, previous_total, stored.devices, window, user)
    if not user:
        return WindowAccounts(sums, {"": _users(group, stored, prices)}, empty_text)
    gpu_rows, time_rows = (
        [
            _part(period, window, user, stored, prices)
            for period in summary(stored, window.begin, end, grouping, window.zone)
        ]
        for grouping in ("device", window.step)
    )
    return WindowAccounts(sums, {GPUS: [row for row in gpu_rows if row.account.held], TIMES: time_rows}, empty_text)


def _users(group: AccountGroup, stored: StoredAccounts, prices: Prices | None) -> Sequence[AccountRow]:
    """Return a row for each user, and one for hours and work that belong to unknown users."""
    charges = price_hours(group.hours, stored.devices, prices).users if prices else {}
    accounts = [*group.accounts, *([group.rest] if any(group.rest[1:]) else ())]
    return [
        AccountRow(account.user, index, account, charges.get(account.user, Charge()) if prices else None)
        for index, account in enumerate(accounts)
    ]


def _part(
    group: AccountGroup, window: UserWindow, user: str, stored: StoredAccounts, prices: Prices | None
) -> AccountRow:  # fmt: skip
    """Return a user's hours on a GPU, or in a day or an hour."""
    charges = price_hours(group.hours, stored.devices, prices).users if prices else {}
    charge, account = charges.get(user, Charge()) if prices else None, find_account(group, user)
    if group.device:
        return AccountRow(
            device_name(group.device), float(group.device.number), account, charge, device=group.device.uuid
        )
    return AccountRow(window.step_title(group.begin), group.begin, account, charge, group.unseen)
