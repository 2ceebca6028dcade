"""Parts of a group of accounts: that of one user, and that of all whose names are known."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.accounting.account import Account
from gpumon.accounting.query import HourUse
from gpumon.accounting.summary import AccountGroup


def account_of(group: AccountGroup | None, user: str) -> Account:
    """The account of a user, an empty one where the group has none."""
    return next((one for one in group.accounts if one.user == user), Account(user)) if group else Account(user)


def named_use(hours: Sequence[HourUse]) -> Account:
    """The use of GPUs by holders whose names are known, each moment of a GPU once however many share it."""
    held = judged = busy = idle = 0.0
    for hour in hours:
        named = [one for one in hour.accounts if one.user]
        nameless = sum(one.held for one in hour.accounts if not one.user)
        # A GPU may have holders of both kinds at once.
        together = max([hour.use.held - nameless, *(one.held for one in named)]) if named else 0.0
        held += together
        judged += min(together, sum(one.judged for one in named))
        busy += sum(one.busy for one in named)
        idle += min(hour.use.idle_held, sum(one.idle_held for one in named))
    return Account("", held, max(judged, busy + idle), busy, idle)
