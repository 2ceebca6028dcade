"""Sums of usage: `DeviceUse` for a device, and `Account` for one user on a device.

The file has a column for each field.
"""

from __future__ import annotations

from typing import NamedTuple


class Account(NamedTuple):
    """How much one user used a device, over some hours. `energy` is in joules, all others in seconds."""

    user: str
    """Empty for an unknown holder."""
    held: float = 0.0
    """Time with processes or runs of the user on the device."""
    judged: float = 0.0
    """Part of `held` in which `busy` and `idle_held` are known."""
    busy: float = 0.0
    idle_held: float = 0.0
    metered: float = 0.0
    """Part of `held` in which `energy` is known."""
    energy: float = 0.0
    """Includes moments without an answer between two counter readings, which are in no other sum."""


class DeviceUse(NamedTuple):
    """How much a device was used, over some hours. `energy` and `free_energy` are in joules, all others in seconds."""

    observed: float = 0.0
    """Time in which the device answered and was not divided by MIG; the rest of the time is unknown."""
    identified: float = 0.0
    """Part of `observed` in which all holders are known."""
    judged: float = 0.0
    """Part of `observed` in which it is known whether the device was busy."""
    held: float = 0.0
    busy: float = 0.0
    idle_held: float = 0.0
    metered: float = 0.0
    """Time in which `energy` is known: part of `observed` and of the time in which MIG divided the device."""
    energy: float = 0.0
    """Includes moments without an answer between two counter readings."""
    free: float = 0.0
    """Time in which it is known that no process held the device."""
    free_energy: float = 0.0
    """Part of `energy` used in the `free` time."""


DEVICE_COLUMNS = DeviceUse._fields
"""Columns of the sums of a device in an hour, in the file."""
USER_COLUMNS = Account._fields[1:]
"""Columns of the sums of a user on a device in an hour, in the file."""
