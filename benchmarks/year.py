"""A year of accounts and events of eight GPUs, as a group of people fills it, in a file of kept history."""

from __future__ import annotations

import random
import sqlite3

from benchmarks.month_values import UUIDS
from gpumon.common.clock import SECOND
from gpumon.model.device import Device
from gpumon.model.events import Event, EventSubject
from gpumon.storage.events.log import EventBatch, write_events
from gpumon.storage.history.tiers import HOUR
from gpumon.storage.usage.account import USER_COLUMNS, DeviceUse, write_accounts
from gpumon.storage.usage.hours import AccountBook, DeviceHourKey, UserHourKey

_USERS = [f"user-{number:02}" for number in range(24)]
_YEAR = 365 * 24
"""Hours."""
_SHARED = 0.2
"""The share of hours in which a second user holds a GPU, too."""
_DAILY = {
    ("run_began", "run_ended"): 36.0, ("run_began", "run_died"): 4.0, ("idle_began", "idle_ended"): 20.0,
    ("throttling_began", "throttling_ended"): 10.0, ("gpu_lost", "gpu_back"): 0.05,
    ("daemon_started", "daemon_stopped"): 0.1, ("out_of_memory",): 3.0,
}  # fmt: skip
"""Events of each kind on a day, by pairs that begin and end something: of more than 50,000 a year."""


def keep_year(connection: sqlite3.Connection, end: float, hours: int = _YEAR) -> None:
    """Add the hours before `end` (s since 1970).

    Every GPU is held by one or two users in each; runs, throttling and the like come at random times.
    """
    chance, book = random.Random(1), AccountBook()
    for gpu, uuid in enumerate(UUIDS):
        book.names[uuid] = Device(uuid, gpu, "NVIDIA H100 80GB HBM3")
        user = chance.choice(_USERS)
        for hour in range(int(end // HOUR) - hours, int(end // HOUR)):
            if chance.random() < 0.15:
                user = chance.choice(_USERS)
            busy, energy = chance.uniform(2400, 3500), chance.uniform(1.8e6, 2.4e6)
            users = [user] if chance.random() > _SHARED else [user, chance.choice(_USERS)]
            free, idle = 50.0, 3550.0 - busy
            use = DeviceUse(
                **dict.fromkeys(("observed", "identified", "judged", "metered"), 3600.0), held=3550.0, busy=busy,
                idle_held=idle, energy=energy, free=free, free_energy=72 * free,
            )  # fmt: skip
            book.devices[DeviceHourKey(hour, uuid)] = [*use]
            for name in set(users):
                part = 1 / len(set(users)) * chance.uniform(0.9, 1.0)
                of_user = {
                    **dict.fromkeys(("held", "judged", "metered"), 3550.0), "busy": busy * part,
                    "idle_held": idle * part, "energy": energy * part,
                }  # fmt: skip
                book.users[UserHourKey(hour, uuid, name)] = [of_user[column] for column in USER_COLUMNS]
    connection.execute("BEGIN IMMEDIATE")
    write_accounts(connection, book)
    write_events(connection, EventBatch(tuple(_events(chance, end, hours)), (), 0, is_settled=False), "0" * 32)
    connection.execute("COMMIT")


def _events(chance: random.Random, end: float, hours: int) -> list[Event]:
    """In the order of time."""
    found = []
    for kinds, daily in _DAILY.items():
        for _ in range(round(daily * hours / 24)):
            at, lasted = end - chance.random() * hours * HOUR, 0.0
            of = EventSubject(
                "" if kinds[0] == "daemon_started" else chance.choice(UUIDS), chance.choice(_USERS),
                f"train-{chance.getrandbits(32):08x}" if kinds[0].startswith(("run", "out")) else "",
                "gpu.throttled_hw_thermal" if kinds[0].startswith("throttling") else "",
            )  # fmt: skip
            for kind in kinds:
                found.append(Event(int((at + lasted) * SECOND), kind, of, {"name": "llama-8b-sft"}, lasted))
                lasted = min(chance.expovariate(1 / 5000), end - at)
    return sorted(found, key=lambda event: event.time_ns)
