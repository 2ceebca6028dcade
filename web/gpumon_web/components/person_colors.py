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
_PREFERRED = 5
"""Number of colors that are easiest to tell apart, and are preferred."""
MAX_USERS = 1000
"""Most users with a stored color; browsers derive the colors of the others from their names."""
_MAX_NAME_LENGTH = 256
_MAX_BYTES = 2**20


class PersonColors:
    """The style of each user, by name: color and mark as `color + COLORS * mark`. Thread-safe.

    `path`: the file that stores them; empty to store nothing.
    """

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._styles: dict[str, int] = {}
        self._lock = Lock()
        self._is_read = False

    def styles(self, present: Iterable[str] = ()) -> dict[str, int]:
        """Return the style of every user seen so far, after assigning styles to new users among `present`."""
        names = sorted(name for name in {*present} if name and len(name) <= _MAX_NAME_LENGTH)
        with self._lock:
            if not self._is_read or any(name not in self._styles for name in names):
                self._read()  # another server may have added them
            new = [name for name in names if name not in self._styles][: max(0, MAX_USERS - len(self._styles))]
            for name in new:
                self._styles[name] = self._least_used(names)
            if new:
                self._append(new)
            return dict(self._styles)

    def _least_used(self, present: Iterable[str]) -> int:
        """Return the least used style, first among the present users, then among all."""
        now = [self._styles[name] for name in present if name in self._styles]
        colors_now, styles_now = Counter(style % COLORS for style in now), Counter(now)
        colors, styles = Counter(style % COLORS for style in self._styles.values()), Counter(self._styles.values())

        def cost(style: int) -> tuple[int, ...]:
            color = style % COLORS
            is_less_preferred = int(color >= _PREFERRED)
            return colors_now[color], styles_now[style], 2 * colors[color] + is_less_preferred, styles[style], style

        return min(range(COLORS * ROUNDS), key=cost)

    def _read(self) -> None:
        self._is_read = True
        lines: list[bytes] = []
        with suppress(OSError):
            lines = read_regular(self._path, _MAX_BYTES).splitlines()
        for line in lines:
            with suppress(ValueError, TypeError, RecursionError):
                style, name = json.loads(line)
                if isinstance(name, str) and isinstance(style, int) and 0 <= style < COLORS * ROUNDS:
                    self._styles.setdefault(name, style)

    def _append(self, names: Iterable[str]) -> None:
        if not self._path:
            return
        lines = "".join(json.dumps([self._styles[name], name]) + "\n" for name in names)
        with suppress(OSError):  # if the disk is full, they last as long as the server
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            fd = os.open(self._path, flags, 0o600)
            try:
                os.write(fd, lines.encode())
            finally:
                os.close(fd)


def add_past_users(colors: PersonColors, ledgers: Sequence[str], histories: Sequence[str]) -> None:
    """Assign a color to every user in the ledgers and the accounts, in the order of their first run."""
    names: list[str] = []
    with suppress(GpumonError), Ledgers(ledgers) as opened:
        names += [row.user for _, row in reversed(opened.candidates())]
    for path in histories:
        with suppress(GpumonError):
            names += read_users(path, -inf, inf)
    for name in dict.fromkeys(names):
        colors.styles([name])
