"""Lines of the daemon's log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from gpumon.common.text import clean
from gpumon.ring.writer import RingWriter

_MOST_REFUSALS = 100


class DaemonLog:
    """Lines for the daemon's log: frames that were lost, claims that were refused."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._lost = 0
        self._claims: set[str] = set()
        """Keys of runs whose refusal was logged."""

    def round(self, writer: RingWriter, refused: Mapping[str, str]) -> None:
        """Log what is new after a round of sampling; `refused` as in `Sampler.refused`."""
        if writer.is_failing and not self._lost:
            self._say("frames cannot be stored, because the file system is full or failing; sampling continues")
        elif self._lost and not writer.is_failing:
            self._say(f"frames are stored again; {self._lost} were lost")
        self._lost = writer.lost_writes if writer.is_failing else 0
        for key, reason in refused.items():
            # Users make boards at will, and their claims are not to fill the log.
            if key not in self._claims and len(self._claims) < _MOST_REFUSALS:
                self._claims.add(key)
                self._say(clean(f"run {key} is not assigned a GPU that it claims: {reason}", 512))


def say(text: str) -> None:
    """Print a line of the daemon's log."""
    print(f"gpumon: {text}", file=sys.stderr, flush=True)
