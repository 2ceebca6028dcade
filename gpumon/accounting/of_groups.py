"""Accounts of users as those of their groups."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.accounting.account import Account
from gpumon.accounting.query import KeptAccounts
from gpumon.common.config import UserGroups


def by_group(kept: KeptAccounts, groups: UserGroups) -> KeptAccounts:
    """Return accounts with the group in the place of each known user.

    Where two of a group share a GPU, each of them holds it: the group has the time of both.
    """
    return kept._replace(hours=[hour._replace(accounts=_added_up(hour.accounts, groups)) for hour in kept.hours])


def _added_up(accounts: Sequence[Account], groups: UserGroups) -> list[Account]:
    found: dict[str, list[Account]] = {}
    for one in accounts:
        found.setdefault(groups.name(one.user) if one.user else "", []).append(one)
    return [
        Account(name, *(sum(column) for column in zip(*(one[1:] for one in members), strict=True)))
        for name, members in found.items()
    ]
