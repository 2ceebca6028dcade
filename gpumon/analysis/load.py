"""The work of a busy GPU in a word that holds still: samples about a threshold are no change."""

from collections.abc import Container
from enum import Enum
from typing import NamedTuple

from gpumon.analysis.thresholds import LETS_UP, LIGHT, NO_KERNEL, PAUSE, STEADY
from gpumon.common.clock import SECOND
from gpumon.model.metrics import IDLE


class Load(Enum):
    """The work of a GPU that counts as busy; the value is the word for people."""

    PAUSING = "pausing"
    LIGHT = "light load"
    BUSY = "busy"


def load_of(share: float) -> Load:
    """Return the load of one sample: "busy" next to 0 % reads as an error, next to 5 % too."""
    return Load.BUSY if not share < LIGHT else Load.LIGHT if share >= IDLE else Load.PAUSING


class _Course(NamedTuple):
    """The load of a GPU as it is said, and what speaks against it since when."""

    load: Load
    worked_ns: int
    """When it last did anything, ns, CLOCK_MONOTONIC."""
    since_ns: int = 0
    """Since when all samples are of another load; 0 while the newest is not."""
    work: float = 0.0
    """Work since then: shares times ns."""


class Loads:
    """Remembers the load of each GPU, from samples in their order.

    A GPU that begins to work is busy at once. One that was busy is said to work less, once all samples of some seconds
    say so, and any to pause once in such a time no kernel ran; one that pauses is said to have a light load, or the
    reverse, once those of a longer time say so.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Course] = {}

    def take(self, uuid: str, share: float, monotonic_ns: int, passed: int) -> None:
        """Take in the share of time in which a GPU worked, at a moment, `passed` ns after the one before."""
        load, known = load_of(share), self._known.get(uuid)
        is_work = share >= IDLE
        worked = monotonic_ns if is_work or known is None else known.worked_ns
        if (
            known is None
            or load is Load.BUSY
            or load is known.load
            or (is_work and monotonic_ns - known.worked_ns >= PAUSE * SECOND)
        ):
            self._known[uuid] = _Course(load, worked)
            return
        since = known.since_ns or monotonic_ns - passed
        work = known.work + share * passed
        lasted = max(1, monotonic_ns - since)
        share = work / lasted
        if lasted >= (LETS_UP if known.load is Load.BUSY or share < NO_KERNEL else STEADY) * SECOND:
            self._known[uuid] = _Course(load_of(share), worked)
        else:
            self._known[uuid] = _Course(known.load, worked, since, work)

    def forget(self, uuid: str) -> None:
        """Forget a GPU that nobody holds, or whose work is not known: its next load is none that changed."""
        self._known.pop(uuid, None)

    def clear(self) -> None:
        """Forget all, as after a gap."""
        self._known.clear()

    def keep(self, uuids: Container[str]) -> None:
        """Forget devices other than these."""
        self._known = {uuid: known for uuid, known in self._known.items() if uuid in uuids}

    def of(self, uuid: str) -> Load | None:
        """Return the load of a GPU at the newest sample; None where that is not known."""
        known = self._known.get(uuid)
        return known.load if known else None
