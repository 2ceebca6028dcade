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
    """Hours of a user, or a part of them."""

    name: str
    """Name of the user, GPU, day or hour; empty for unknown users."""
    place: float
    """Position among GPUs, days or hours."""
    account: Account
    charge: Charge | None
    """None without configured prices."""
    unseen: float = 0.0
    """GPU-seconds without data; only for days and hours."""
    device: str = ""
    """UUID of the GPU; empty if the row covers several."""
    is_of_window: bool = True
    """Whether the hours belong to the window; False for a user who only holds a GPU now."""


class WindowAccounts(NamedTuple):
    """Accounts of a window, for all users or one user."""

    headlines: Headlines | None
    """None if nothing is known."""
    rows: Mapping[str, Sequence[AccountRow]]
    """Rows of users under the key ""; for one user, rows under `GPUS` and `TIMES`."""
    why: str
    """Text shown in place of rows."""


def read_window(path: str, window: UserWindow, now: float, user: str, prices: Prices | None) -> WindowAccounts:
    """Return the accounts of a window up to `now` (s since 1970), of one user if `user` is given.

    Raises GpumonError.
    """
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
    """Return a row for each user, and one for unknown users or parts of them."""
    charges = price_hours(group.hours, kept.devices, prices).users if prices else {}
    accounts = [*group.accounts, *([group.rest] if any(group.rest[1:]) else ())]
    return [
        AccountRow(one.user, place, one, charges.get(one.user, Charge()) if prices else None)
        for place, one in enumerate(accounts)
    ]


def _part(
    group: AccountGroup, window: UserWindow, user: str, kept: StoredAccounts, prices: Prices | None
) -> AccountRow:  # fmt: skip
    """Return a user's hours on a GPU, or in a day or an hour."""
    charges = price_hours(group.hours, kept.devices, prices).users if prices else {}
    charge, account = charges.get(user, Charge()) if prices else None, find_account(group, user)
    if group.device:
        return AccountRow(
            device_name(group.device), float(group.device.number), account, charge, device=group.device.uuid
        )
    return AccountRow(window.step_title(group.begin), group.begin, account, charge, group.unseen)
