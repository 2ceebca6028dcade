"""Costs of the driver's calls: written from time to time for `status --verbose`, and one that turned slow is logged."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from gpumon.common.clock import SECOND
from gpumon.common.driver_calls import FILE, SHARE, DriverCall, write_calls
from gpumon.sources.base import AsksDriver, Source

_FIRST, _EVERY = 2 * SECOND, 30 * SECOND
"""ns: soon after the start, for who looks whether all is well, and then seldom."""


class CallsFile:
    """Keeps the file of a daemon's directory."""

    def __init__(self, source: Source | AsksDriver, directory: str, say: Callable[[str], None]) -> None:
        self._source = source
        self._directory = directory
        self._say = say
        self._due = 0
        self._wait = _FIRST
        self._slow: set[str] = set()
        self._is_failing = False

    def round(self, now: int) -> None:
        """Write it where it is time; `now` in ns. Never raises: it costs no sample."""
        if now < self._due or not isinstance(self._source, AsksDriver):
            return
        self._due = now + self._wait
        self._wait = min(_EVERY, 2 * self._wait)
        calls = self._source.driver_calls()
        for call in calls:
            if call.every and call.function not in self._slow:
                self._slow.add(call.function)
                self._say(slow(call))
        try:
            write_calls(self._directory, calls)
            self._is_failing = False
        except FileNotFoundError:
            self._is_failing = True  # the directory is gone: the recorder says so, and stops
        except OSError as error:
            if not self._is_failing:
                self._say(f"the costs of driver calls cannot be kept: {error.strerror or error}")
            self._is_failing = True

    def close(self) -> None:
        """Remove the file: what a daemon's calls cost is of that daemon."""
        with suppress(OSError):  # it was never written, or its directory is gone
            os.unlink(f"{self._directory}/{FILE}")


def slow(call: DriverCall) -> str:
    """Return a line on a call that has turned slow."""
    return (
        f"{call.function} takes {1000 * SHARE * call.every:.0f} ms and more for a GPU: it is made every "
        f"{call.every:.1f} s there instead of at each sample"
    )
