"""Sums of accounts: the use of a device over some hours, and the part of a user in it; the file has them as columns."""

from __future__ import annotations

from typing import NamedTuple


class Account(NamedTuple):
    """The part of a user in a device's use, over some hours: seconds, and joules of `energy`."""

    user: str
    """Empty where a holder is not known."""
    held: float = 0.0
    """In which processes or runs of theirs were on it."""
    judged: float = 0.0
    """Of `held`: for which the two that follow are known."""
    busy: float = 0.0
    idle_held: float = 0.0
    metered: float = 0.0
    """Of `held`: for which `energy` is known."""
    energy: float = 0.0
    """Also that of moments without an answer between two readings of the counter, which are in no other sum."""


class DeviceUse(NamedTuple):
    """The use of a device over some hours: seconds, and joules of `energy`."""

    observed: float = 0.0
    """In which it answered, and MIG did not divide it; of the rest of the time nothing is known."""
    identified: float = 0.0
    """Of `observed`: in which all who held it are known."""
    judged: float = 0.0
    """Of `observed`: in which it was known whether it was busy."""
    held: float = 0.0
    busy: float = 0.0
    idle_held: float = 0.0
    metered: float = 0.0
    """For which `energy` is known: of `observed`, and of time in which MIG divided it."""
    energy: float = 0.0
    """Also that of moments without an answer between two readings of the counter."""
    free: float = 0.0
    """In which it is known that nobody held it."""
    free_energy: float = 0.0
    """The part of `energy` that it used meanwhile."""


DEVICE_COLUMNS = DeviceUse._fields
"""Sums of a device in an hour, as the file has them."""
USER_COLUMNS = Account._fields[1:]
"""Sums of a user on a device in an hour."""
