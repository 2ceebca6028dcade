"""Sums of usage: `DeviceUse` for a device, and `Account` for one user on a device.

The history file has a column for each field.
"""

from __future__ import annotations

from typing import NamedTuple


class Account(NamedTuple):
    """Usage of a device by one user, summed over some hours. `energy` is in joules, all other sums are in seconds."""

    user: str
    """Name of the user; empty if the holder is unknown."""
    held: float = 0.0
    """Time in which the user had processes or runs on the device."""
    judged: float = 0.0
    """Part of `held` in which `busy` and `idle_held` are known."""
    busy: float = 0.0
    idle_held: float = 0.0
    metered: float = 0.0
    """Part of `held` in which `energy` is known."""
    energy: float = 0.0
    """Includes the energy of short times in which the device did not answer, between two counter readings. No other sum
    includes these times.
    """


class DeviceUse(NamedTuple):
    """Usage of a device, summed over some hours.

    `energy` and `free_energy` are in joules, all other sums are in seconds.
    """

    observed: float = 0.0
    """Time in which the device answered and was not divided by MIG. The rest of the time is unknown."""
    identified: float = 0.0
    """Part of `observed` in which all holders are known."""
    judged: float = 0.0
    """Part of `observed` in which it is known whether the device was busy."""
    held: float = 0.0
    busy: float = 0.0
    idle_held: float = 0.0
    metered: float = 0.0
    """Time in which `energy` is known. It may also include time in which MIG divided the device."""
    energy: float = 0.0
    """Includes the energy of short times in which the device did not answer, between two counter readings."""
    free: float = 0.0
    """Time in which it is known that no process held the device."""
    free_energy: float = 0.0
    """Part of `energy` used in the `free` time."""


DEVICE_COLUMNS = DeviceUse._fields
"""Columns with sums in the table `device_hour`."""
USER_COLUMNS = Account._fields[1:]
"""Columns with sums in the table `account`."""
