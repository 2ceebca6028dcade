"""Groups of users, as `[groups]` of the settings file names them: whose time is added up on one bill.

A user is in one group at most, so that the groups of a site add up to its users.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

NO_GROUP = "(no group)"
"""In the place of a name, for users whom no group has."""
_MOST_GROUPS, _MOST_USERS = 1000, 100_000
_MOST_LETTERS = 64


class UserGroups(NamedTuple):
    """Groups by name."""

    of_user: Mapping[str, str]
    """The group of each user who has one."""

    def name(self, user: str) -> str:
        """The group of a user; `NO_GROUP` where there is none."""
        return self.of_user.get(user, NO_GROUP)

    def shared_out(self, users: Iterable[str]) -> dict[str, Sequence[str]]:
        """Return users by group, in the order given; those without one last."""
        found: dict[str, list[str]] = {}
        for user in users:
            found.setdefault(self.name(user), []).append(user)
        without = found.pop(NO_GROUP, None)
        return {**found, **({NO_GROUP: without} if without else {})}


def read_groups(table: Any) -> UserGroups:
    """Return the groups of a `[groups]` table. Raises ValueError, which says what is wrong with it."""
    if not isinstance(table, Mapping) or len(table) > _MOST_GROUPS:
        raise ValueError('groups must be a table, such as [groups] with lines such as vision = ["ann", "bob"]')
    found: dict[str, str] = {}
    for group, users in table.items():
        if not _is_name(group) or group == NO_GROUP:
            raise ValueError(f"a group in [groups] must have a name of at most {_MOST_LETTERS} letters")
        if not isinstance(users, list) or not all(map(_is_name, users)):
            raise ValueError(f'{group} in [groups] must be a list of users, such as {group} = ["ann", "bob"]')
        for user in users:
            if found.setdefault(user, group) != group:
                raise ValueError(f"[groups] has {user} in {found[user]} and in {group}: a user has one group")
    if len(found) > _MOST_USERS:
        raise ValueError(f"[groups] has more than {_MOST_USERS} users")
    return UserGroups(found)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _MOST_LETTERS and value.isprintable()
