"""The wait for data of a run as its boundaries tell of it, while it goes on: the share that its ledger keeps of it."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model.frame import Boundary, Run, waited_between


class Waited(NamedTuple):
    """Seconds waited for data."""

    wait: float = 0.0
    of: float = 0.0
    """Seconds of the phases of epochs in which that was measured: not of what lies between epochs."""

    @property
    def share(self) -> float:
        """The wait as a share of the time in which it was measured; NaN where nobody has measured it."""
        return min(self.wait / self.of, 1.0) if self.of > 0 else NAN


class WaitFold:
    """Adds up the wait between boundaries, epoch by epoch: a phase counts where any of it was measured."""

    def __init__(self) -> None:
        self._ended = Waited()
        self._phases: dict[str, Waited] = {}
        """Of the epoch that is open."""

    def take(self, phase: str, before: Boundary, after: Boundary) -> None:
        """Take what lies between two boundaries of an epoch, none of which was lost."""
        seconds = (after.monotonic_ns - before.monotonic_ns) / SECOND
        self._phases[phase] = _added(self._phases.get(phase), seconds, waited_between(before.wait, after.wait))

    def end(self) -> None:
        """End the epoch that is open."""
        self._ended, self._phases = _joined(self._ended, self._phases), {}

    def until(self, last: Boundary | None, run: Run, now: float, monotonic_ns: int = 0) -> Waited:
        """Return all until `now` (s since 1970; or by the clock that nobody sets), with the phase begun by `last`."""
        return _joined(self._ended, self._open_until(last, run, now, monotonic_ns))

    def open_until(self, last: Boundary | None, run: Run, now: float) -> Waited:
        """Return that of the open epoch alone, until `now` (s since 1970)."""
        return _joined(Waited(), self._open_until(last, run, now, 0))

    def _open_until(self, last: Boundary | None, run: Run, now: float, monotonic_ns: int) -> dict[str, Waited]:
        if last is None:
            return self._phases
        seconds = (monotonic_ns - last.monotonic_ns if monotonic_ns else now * SECOND - last.time_ns) / SECOND
        added = _added(self._phases.get(last.phase), max(0.0, seconds), waited_between(last.wait, run.wait))
        return {**self._phases, last.phase: added}

    def copy(self) -> WaitFold:
        """Return what is known now; it changes no more."""
        found = WaitFold()
        found._ended, found._phases = self._ended, dict(self._phases)
        return found


def _added(before: Waited | None, seconds: float, wait: float) -> Waited:
    before = before or Waited()
    return Waited(before.wait + (wait if is_known(wait) else 0.0), before.of + seconds)


def _joined(ended: Waited, phases: dict[str, Waited]) -> Waited:
    measured = [one for one in phases.values() if one.wait > 0]
    return Waited(ended.wait + sum(one.wait for one in measured), ended.of + sum(one.of for one in measured))
