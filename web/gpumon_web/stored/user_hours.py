"""Accounts of a window for the users page, and as CSV. Runs in the worker process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from gpumon.caps import CapState, read_cap_states
from gpumon.common.caps import Caps
from gpumon.common.config import Prices, UserGroups
from gpumon.common.errors import GpumonError
from gpumon.common.privacy import current_policy, use_policy
from gpumon.reports import usage
from gpumon.storage.usage.period_totals import AccountGroup, UserWindow, parse_window, summary
from gpumon.storage.usage.query import StoredAccounts, StoredDevice, by_group, read_accounts
from gpumon_web.components.page import Cells
from gpumon_web.stored.holder_strips import MAX_SLOT, Strip, device_strip, read_outages

Holding = Mapping[str, tuple[str, Sequence[str]]]
"""GPUs held now, by user: as text such as `0–3, 6`, and their UUIDs. The user "" stands for unknown holders.

Empty if holders are not known at all.
"""


@dataclass(frozen=True, slots=True)
class UserHours:
    """Accounts of a window: seconds, joules, and shares of slots."""

    window: UserWindow
    user: str
    """The only user that is shown; empty for all."""
    now: float
    holding: Holding
    has_history: bool
    group: AccountGroup | None = None
    before: AccountGroup | None = None
    """Accounts of the window before."""
    days: Sequence[AccountGroup] = ()
    """Accounts by day, or by hour in a window of a day."""
    gpus: Sequence[tuple[AccountGroup, Sequence[AccountGroup]]] = ()
    """Accounts by GPU, with those by day, if a single user is shown."""
    strips: Sequence[Strip] = ()
    known_devices: Sequence[StoredDevice] = ()
    problem: str = ""
    """Why the history cannot be read."""
    missing: str | Cells = ""
    """Why there is no history."""
    prices: Prices | None = None
    groups: UserGroups | None = None
    is_by_group: bool = False
    """Whether accounts are per group instead of per user."""
    caps: Sequence[CapState] = ()


def read_hours(
    paths: Sequence[str], period: str, day: str, zone: str, user: str, now: float, holding: Holding,
    groups: UserGroups | None = None,
) -> UserHours:  # fmt: skip
    """Return a window's accounts from the most recently written history.

    With a `user`, also the user's time on each GPU; with `groups`, accounts are per group instead of per user.
    """
    with use_policy(current_policy()._replace(me=user)):  # if names are hidden, `user` is the hash of the viewer's name
        held = _holding_by_group(groups, holding) if groups else holding
        hours = UserHours(parse_window(period, day, zone, now), user, now, held, bool(paths))
        try:
            return _with_accounts(hours, paths[0], groups) if paths else hours
        except GpumonError as error:
            return replace(hours, problem=str(error))


def user_caps(
    paths: Sequence[str], caps: Caps, groups: UserGroups | None, prices: Prices | None, user: str, now: float
) -> list[CapState]:
    """Return the state of each cap on usage; with a `user`, only of those that apply to this user.

    Empty if there is no history, or if it cannot be read.
    """
    if not paths:
        return []
    with use_policy(current_policy()._replace(me=user)), suppress(GpumonError):  # the page says that it cannot be read
        return read_cap_states(paths[0], caps, groups, prices, now, user)
    return []


def _holding_by_group(groups: UserGroups, holding: Holding) -> Holding:
    """Return the GPUs held now, by group."""
    by_group_name = {
        name: (", ".join(holding[user][0] for user in users),
               list(dict.fromkeys(uuid for user in users for uuid in holding[user][1])))
        for name, users in groups.shared_out(user for user in holding if user).items()
    }  # fmt: skip
    return {**by_group_name, **{user: held for user, held in holding.items() if not user}}


def _with_accounts(hours: UserHours, path: str, groups: UserGroups | None) -> UserHours:
    window, user, now = hours.window, hours.user, hours.now
    previous = window.neighbor(-1)
    accounts, earlier = _read_window(path, window, now, groups), _read_window(path, previous, now, groups)
    outages = read_outages(path, window.begin - MAX_SLOT, window.end)
    end = max(window.begin, min(window.end, now))
    totals = summary(accounts, window.begin, end, "user")
    previous_totals = summary(earlier, previous.begin, previous.end, "user")
    # If days begin within a UTC hour, the strips also need the hour that straddles the begin.
    strip_hours = [hour for hour in earlier.hours if hour.begin > window.begin - MAX_SLOT] + list(accounts.hours)

    def device_groups(device: StoredDevice) -> list[AccountGroup]:
        device_hours = [hour for hour in accounts.hours if hour.device == device.uuid]
        return summary(StoredAccounts(device_hours, [device]), window.begin, end, window.step, window.zone)

    by_device = summary(accounts, window.begin, end, "device") if user else []
    return replace(
        hours,
        group=totals[0] if totals else None,
        known_devices=accounts.devices,
        before=previous_totals[0] if previous_totals else None,
        days=summary(accounts, window.begin, end, window.step, window.zone),
        gpus=[
            (group, device_groups(device))
            for group in by_device
            if (device := group.device) and any(account.user == user for account in group.accounts)
        ],
        strips=[
            device_strip(strip_hours, device, window.begin, window.end, now, len(accounts.devices), outages)
            for device in accounts.devices
        ],
    )


def users_csv(
    paths: Sequence[str], period: str, day: str, zone: str, user: str, now: float, prices: Prices | None = None
) -> list[bytes]:
    """Return the accounts of a window by day as CSV: of all users, or of one. Raises GpumonError."""
    with use_policy(current_policy()._replace(me=user)):
        window = parse_window(period, day, zone, now)
        accounts = _read_window(paths[0], window, now) if paths else StoredAccounts((), ())
        end = max(window.begin, min(window.end, now))
        days = summary(accounts, window.begin, end, "day", window.zone)
        return [line.encode() for line in usage.csv(days, accounts.devices, prices, only=user)]


def _read_window(
    path: str, window: UserWindow, now: float, groups: UserGroups | None = None
) -> StoredAccounts:  # fmt: skip
    accounts = read_accounts(path, window.begin, min(window.end, now))
    return by_group(accounts, groups) if groups else accounts
