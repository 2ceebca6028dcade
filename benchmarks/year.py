"""A year of accounts of eight GPUs, as a group of people fills it, in a file of kept history."""

from __future__ import annotations

import random
import sqlite3

from benchmarks.month_values import UUIDS
from gpumon.accounting.book import AccountBook, HourOfDevice, HourOfUser
from gpumon.accounting.rows import write_accounts
from gpumon.frame import Device
from gpumon.history.tiers import HOUR

_USERS = [f"user-{number:02}" for number in range(24)]
_HOURS = 365 * 24
_SHARED = 0.2
"""The share of hours in which a second user holds a GPU, too."""


def keep_year(connection: sqlite3.Connection, end: float) -> None:
    """Add the hours of a year before `end` (s since 1970): every GPU is held by one or two users in each."""
    chance, book = random.Random(1), AccountBook()
    for gpu, uuid in enumerate(UUIDS):
        book.names[uuid] = Device(uuid, gpu, "NVIDIA H100 80GB HBM3")
        user = chance.choice(_USERS)
        for hour in range(int(end // HOUR) - _HOURS, int(end // HOUR)):
            if chance.random() < 0.15:
                user = chance.choice(_USERS)
            busy, energy = chance.uniform(2400, 3500), chance.uniform(1.8e6, 2.4e6)
            users = [user] if chance.random() > _SHARED else [user, chance.choice(_USERS)]
            book.devices[HourOfDevice(hour, uuid)] = [
                3600.0, 3600.0, 3600.0, 3550.0, busy, 3550.0 - busy, 3600.0, energy,
            ]  # fmt: skip
            for name in set(users):
                part = 1 / len(set(users)) * chance.uniform(0.9, 1.0)
                book.users[HourOfUser(hour, uuid, name)] = [
                    3550.0, 3550.0, busy * part, (3550.0 - busy) * part, 3550.0, energy * part,
                ]  # fmt: skip
    connection.execute("BEGIN IMMEDIATE")
    write_accounts(connection, book)
    connection.execute("COMMIT")
