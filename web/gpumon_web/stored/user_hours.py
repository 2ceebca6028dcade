"""Accounts of a window for the users page, and as CSV. Runs in the worker process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from gpumon.caps import CapState, read_cap_states
from gpumon.common.caps import Caps
from gpumon.common.config import Prices, UserGroups
from gpumon.common.errors import GpumonError
from gpumon.common.privacy import current_policy, use_policy
from gpumon.reports import usage
from gpumon.storage.usage.period_totals import AccountGroup, UserWindow, parse_window, summary
from gpumon.storage.usage.query import StoredAccounts, StoredDevice, by_group, read_accounts
from gpumon_web.stored.holder_strips import MAX_SLOT, device_strip, read_outages

Holding = Mapping[str, tuple[str, Sequence[str]]]
"""GPUs held now, by user: as text such as `0–3, 6`, and their UUIDs. The user "" stands for unknown holders.

Empty if holders are not known at all.
"""


def users_document(
    paths: Sequence[str], period: str, day: str, zone: str, user: str, now: float, holding: Holding,
    groups: UserGroups | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return a window's accounts from the most recently written history: seconds, joules, and shares of slots.

    With a `user`, also the user's time on each GPU; with `groups`, accounts are per group instead of per user.
    """
    with use_policy(current_policy()._replace(me=user)):  # if names are hidden, `user` is the hash of the viewer's name
        held = _holding_by_group(groups, holding) if groups else holding
        return _document(paths, parse_window(period, day, zone, now), user, now, held, groups)


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


def _document(
    paths: Sequence[str], window: UserWindow, user: str, now: float, holding: Holding, groups: UserGroups | None
) -> dict[str, Any]:  # fmt: skip
    document: dict[str, Any] = {
        "window": window,
        "user": user,
        "now": now,
        "holding": holding,
        "problem": "",
        "has_history": bool(paths),
    }
    no_accounts = StoredAccounts((), ())
    try:
        accounts = _read_window(paths, window, now, groups) if paths else no_accounts
        earlier = _read_window(paths, window.neighbor(-1), now, groups) if paths else no_accounts
        outages = read_outages(paths[0], window.begin - MAX_SLOT, window.end) if paths else []
    except GpumonError as error:
        return {**document, "problem": str(error), "group": None, "before": None, "days": [], "devices": [], "gpus": [],
                "known_devices": []}  # fmt: skip
    end = max(window.begin, min(window.end, now))
    totals = summary(accounts, window.begin, end, "user")
    previous = window.neighbor(-1)
    previous_totals = summary(earlier, previous.begin, previous.end, "user")
    # If days begin within a UTC hour, the strips also need the hour that straddles the begin.
    strip_hours = [hour for hour in earlier.hours if hour.begin > window.begin - MAX_SLOT] + list(accounts.hours)

    def device_groups(device: StoredDevice) -> list[AccountGroup]:
        hours = [hour for hour in accounts.hours if hour.device == device.uuid]
        return summary(StoredAccounts(hours, [device]), window.begin, end, window.step, window.zone)

    return {
        **document,
        "group": totals[0] if totals else None,
        "known_devices": accounts.devices,
        "before": previous_totals[0] if previous_totals else None,
        "days": summary(accounts, window.begin, end, window.step, window.zone),
        "gpus": [
            (group, device_groups(device))
            for group in summary(accounts, window.begin, end, "device")
            if (device := group.device) and any(account.user == user for account in group.accounts)
        ]
        if user
        else [],
        "devices": [
            device_strip(strip_hours, device, window.begin, window.end, now, len(accounts.devices), outages)
            for device in accounts.devices
        ],
    }


def users_csv(
    paths: Sequence[str], period: str, day: str, zone: str, user: str, now: float, prices: Prices | None = None
) -> list[bytes]:
    """Return the accounts of a window by day as CSV: of all users, or of one. Raises GpumonError."""
    with use_policy(current_policy()._replace(me=user)):
        return _csv_lines(paths, period, day, zone, user, now, prices)


def _csv_lines(
    paths: Sequence[str], period: str, day: str, zone: str, user: str, now: float, prices: Prices | None
) -> list[bytes]:
    window = parse_window(period, day, zone, now)
    accounts = _read_window(paths, window, now) if paths else StoredAccounts((), ())
    end = max(window.begin, min(window.end, now))
    days = summary(accounts, window.begin, end, "day", window.zone)
    return [line.encode() for line in usage.csv(days, accounts.devices, prices, only=user)]


def _read_window(
    paths: Sequence[str], window: UserWindow, now: float, groups: UserGroups | None = None
) -> StoredAccounts:  # fmt: skip
    accounts = read_accounts(paths[0], window.begin, min(window.end, now))
    return by_group(accounts, groups) if groups else accounts
