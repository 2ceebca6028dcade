"""Parts of kept history other than the tiers: each takes every tick, and writes tables of its own."""

from __future__ import annotations

import sqlite3
from typing import Protocol

from gpumon.model.frame import Tick


class HistoryPart(Protocol):
    """Takes ticks in the thread that samples, so it only adds up; all else happens in history's own thread."""

    def add(self, tick: Tick) -> None:
        """Take a tick; they come in order."""

    def opened(self, connection: sqlite3.Connection) -> None:
        """Close what an earlier daemon left open in a file that was just opened. Raises sqlite3.Error."""

    def write(self, connection: sqlite3.Connection) -> None:
        """Write what has come since the last time: all of it or, when sqlite3.Error is raised, none."""

    def finish(self) -> None:
        """Note that no tick comes any more; `write` comes once again."""
