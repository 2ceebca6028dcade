"""The color of each user: assigned once, stored in a file, and the same for all viewers of a server.

A user gets a color when first seen: the one that the fewest of the present users have. It never changes afterward, and
users who come or leave do not change the colors of others.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from math import inf
from threading import Lock

from gpumon.common.errors import GpumonError
from gpumon.common.paths import read_regular
from gpumon.storage.ledger.reader import Ledgers
from gpumon.storage.usage.query import read_users

FILE = "web-colors"
COLORS = 8
ROUNDS = 3
"""Number of marks, including no mark, that distinguish users with the same color."""
_USUAL = 5
"""Number of colors that are easiest to tell apart, and are preferred."""
MOST = 1000
"""Most users with a stored color; browsers derive the colors of the others from their names."""
_LONGEST = 256
_MOST_BYTES = 2**20


class PersonColors:
    """Colors and marks of users, by name, as `color + COLORS * mark`. Thread-safe.

    `path`: the file that stores them; empty to store nothing.
    """

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._places: dict[str, int] = {}
        self._lock = Lock()
        self._is_read = False

    def places(self, there: Iterable[str] = ()) -> dict[str, int]:
        """Return the color and mark of every user ever seen, after assigning them to new users in `there`."""
        names = sorted(name for name in {*there} if name and len(name) <= _LONGEST)
        with self._lock:
            if not self._is_read or any(name not in self._places for name in names):
                self._read()  # another server may have added them
            new = [name for name in names if name not in self._places][: max(0, MOST - len(self._places))]
            for name in new:
                self._places[name] = self._free(names)
            if new:
                self._keep(new)
            return dict(self._places)

    def _free(self, there: Iterable[str]) -> int:
        """Return the least used color and mark, first among the present users, then among all."""
        now = [self._places[name] for name in there if name in self._places]
        colors_now, places_now = Counter(place % COLORS for place in now), Counter(now)
        colors, places = Counter(place % COLORS for place in self._places.values()), Counter(self._places.values())

        def cost(place: int) -> tuple[int, ...]:
            color = place % COLORS
            is_less_usual = int(color >= _USUAL)
            return colors_now[color], places_now[place], 2 * colors[color] + is_less_usual, places[place], place

        return min(range(COLORS * ROUNDS), key=cost)

    def _read(self) -> None:
        self._is_read = True
        lines: list[bytes] = []
        with suppress(OSError):
            lines = read_regular(self._path, _MOST_BYTES).splitlines()
        for line in lines:
            with suppress(ValueError, TypeError, RecursionError):
                place, name = json.loads(line)
                if isinstance(name, str) and isinstance(place, int) and 0 <= place < COLORS * ROUNDS:
                    self._places.setdefault(name, place)

    def _keep(self, names: Iterable[str]) -> None:
        if not self._path:
            return
        lines = "".join(json.dumps([self._places[name], name]) + "\n" for name in names)
        with suppress(OSError):  # if the disk is full, they last as long as the server
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            fd = os.open(self._path, flags, 0o600)
            try:
                os.write(fd, lines.encode())
            finally:
                os.close(fd)


def meet_past(colors: PersonColors, ledgers: Sequence[str], histories: Sequence[str]) -> None:
    """Assign a color to every user in the ledgers and the accounts, in the order of their first run."""
    names: list[str] = []
    with suppress(GpumonError), Ledgers(ledgers) as opened:
        names += [row.user for _, row in reversed(opened.candidates())]
    for path in histories:
        with suppress(GpumonError):
            names += read_users(path, -inf, inf)
    for name in dict.fromkeys(names):
        colors.places([name])
