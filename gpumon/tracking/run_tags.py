"""The tags of a run that has begun: what callbacks publish, and a training loop through `ActiveRun`.

Nothing here raises, waits, or touches a GPU: the training comes first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from time import monotonic_ns
from typing import NamedTuple, Protocol

from gpumon.model.run import LARGEST
from gpumon.tracking import out_of_memory
from gpumon.tracking.board import Board
from gpumon.tracking.context import framework_of
from gpumon.tracking.lifetime import ending
from gpumon.tracking.loader import CpuTime, Samples, samples_of
from gpumon.tracking.memory import NEVER, MemoryReader
from gpumon.tracking.metadata import Telling
from gpumon.tracking.values import Pending, RowEnd, StepMarker, whole
from gpumon.tracking.warn import shown, warn_once
from gpumon.tracking.wire import NOT_KNOWN

UNWINDING = 1_000_000_000
"""ns within which the exception that has left an epoch comes to the end of the run."""
AT_ONCE = 100_000_000
"""ns between the ends of the loops over batches and over epochs, where both are left at once."""
_MOST_LATE = 16
"""Logs for rows that are over, between two steps that are published; more of them count to the open row."""
STEP_EVERY = 50_000_000
"""ns between two steps that are published, and looked at for more than their number."""


class UnclosedEpoch(NamedTuple):
    """An epoch whose loop was left: by `break` when it was over, or by an exception in the middle."""

    event: int
    """Number of the event that ended it."""
    at_ns: int
    """ns, monotonic."""
    is_short: bool = False
    """Whether it had fewer steps than each of those before it."""


class LeftLoader(NamedTuple):
    """A loop over batches that was left before the last one."""

    event: int
    """Number of the newest event then."""
    at_ns: int
    """ns, monotonic."""


class EpochListener(Protocol):
    """Something that goes along with a run on the training's own thread. Raises nothing."""

    def come_by(self) -> None:
        """The training is at a step, or before an epoch."""

    def epoch_ended(self, epoch: int, step: int) -> None:
        """An epoch has ended, `step` steps after the training's begin."""

    def run_paused(self, rows_to: int) -> None:
        """The run is over unless more follows; without epochs, its rows of steps lead to step `rows_to`, else 0."""

    def run_ended(self, rows_to: int, *, waits: bool) -> None:
        """The run is over; `waits`: and nothing is lost if this takes a moment."""


class RunTags:
    """Tags of one run, in its board: epochs, phases, steps and waits."""

    def __init__(
        self, board: Board, look: Callable[[], tuple[str, ...]] | None = None, telling: Telling | None = None
    ) -> None:
        self._board = board
        self._telling = Telling(board) if telling is None else telling
        self._look = look
        self._due = 0 if board.on else NEVER
        self._looked = 0
        self._epoch: object | None = None
        self._first: int | None = None
        self._batch_given = board.description.facts.batch > 0
        self._unclosed = UnclosedEpoch(0, 0)
        self._left_loader: LeftLoader | None = None
        """The last loop over batches of the open epoch, if it was left before its end."""
        self._has_loader = False
        """Whether the open epoch has a loop over batches."""
        self._epoch_step = 0
        """Steps before the open epoch."""
        self._fewest = 0
        """Steps of the shortest epoch that was gone through; 0 before the first."""
        self._is_even = True
        """Whether all that were gone through had as many."""
        self._pending = Pending()
        self._memory = MemoryReader(board)
        self._rows = StepMarker()
        self._late = 0
        self._loaders: list[int] = []
        """Threads of the loaders in use: a batch of theirs counts as a step when it comes, before the step is made."""
        self._unpaired = -1
        """Steps when a loader that is zipped with another one had no batch for the last of the other's."""
        self.finds_framework = False
        """Whether the framework is found among the modules that are imported, also after the run began."""
        if board.on:
            board.cpu_time = CpuTime().seconds
        self.listener: EpochListener | None = None

    @property
    def name(self) -> str:
        """As people see it."""
        return self._board.description.name

    @property
    def id(self) -> str:
        """Shared by all ranks of this run."""
        return self._board.description.id

    @property
    def on(self) -> bool:
        """Whether tags are published; false after the end, and where no board could be made."""
        return self._board.on

    def __repr__(self) -> str:
        epoch = f", epoch {self._board.epoch}" if self._board.epoch >= 0 else ""
        return f"<run {self.id}{epoch}, step {self._board.steps}{'' if self.on else ', off'}>"

    def _repr_html_(self) -> str:
        from html import escape  # in notebooks only

        return f"<code>{escape(repr(self))}</code>"

    def begin_epoch(self, number: int) -> None:
        """An epoch begins now; one that is open ends. For callbacks: a loop uses `epochs` or `epoch`."""
        self._begin_epoch(number)

    def end_epoch(self) -> None:
        """The open epoch ends now; without one nothing happens. For callbacks."""
        if self._epoch is not None:
            self._end_epoch(self._epoch)

    def begin_phase(self, name: str) -> str:
        """The phase `name` begins now; gives the one before, to go back to. For callbacks."""
        if not self._board.on:
            return ""
        self._memory.at_boundary()
        if self._first is None:
            # No row ends within what is over now.
            now = monotonic_ns()
            if self._board.steps:
                self._mark_rows(now)
            self._rows.note(self._made(now))
        return self._board.phase(name if isinstance(name, str) else shown(name))

    def at_step(self, step: int, since: int = 0) -> None:
        """The training has come to `step` of the whole run; `since` when (ns, monotonic) it waited for data, unless 0.

        For callbacks.
        """
        now, board = monotonic_ns(), self._board
        if since and board.wait_ns != NOT_KNOWN:
            board.wait_ns += now - since
        board.steps = step
        if now >= self._due:
            self._at_due(now)

    def made_by_now(self, step: int) -> None:
        """The training has made `step` steps of the whole run, and it is unknown when each: no row ends among them.

        For callbacks.
        """
        now, board = monotonic_ns(), self._board
        board.steps = step
        self._rows.note(RowEnd(step, now, board.wait_ns))
        board.publish(now)

    def waited(self, nanoseconds: int) -> None:
        """So long did the training wait for data; published with the next step. For callbacks."""
        if self._board.wait_ns != NOT_KNOWN:
            self._board.wait_ns += max(1, nanoseconds)  # measured: never 0

    def wait_unknown(self) -> None:
        """Report the wait for data of this training as unknown from now on. For callbacks."""
        self._board.wait_ns = NOT_KNOWN

    def batch_of(self, loader: object, times: int = 1) -> None:
        """Publish that a step takes `times` batches of `loader`, where it knows their size. For callbacks too."""
        try:
            found = samples_of(loader, times)
        except Exception:  # a loader of the user's own, whose attributes may do anything
            return
        if found is not None:
            self.samples(found)

    def samples(self, found: Samples) -> None:
        """A step has so many, as a loader or batch shows; what `gpumon.run` was given stands. For callbacks."""
        known = self._board.description.facts
        told = known._replace(batch=found.batch, mean_batch=found.mean)
        if not self._batch_given and 0 < found.batch <= LARGEST and told != known:
            self._board.describe(facts=told)

    def plan(self, *, epochs: object = None, steps: object = None) -> None:
        """Publish how many epochs or steps are planned, from which views tell the time left. For callbacks.

        Only what is a whole number from 1 on is taken; what `gpumon.run` was given stands. `steps` count over the
        whole run, as `at_step` does: `max_steps` of a trainer.
        """
        known = self._board.description
        planned = whole(steps) or 0
        if 0 < planned <= LARGEST and not known.facts.planned_steps:
            self._board.describe(facts=known.facts._replace(planned_steps=planned))
        planned = whole(epochs) or 0
        if 0 < planned <= LARGEST and not known.epochs:
            self._board.describe(epochs=planned)

    def pause(self) -> None:
        """The training is over, and well, unless more follows: a framework that validates or tests behind it.

        Until then the run is in the phase `paused`, which counts for nothing. `begin_phase` or `begin_epoch` continues
        it; where nothing follows, it has ended now, whatever becomes of the process. For callbacks.
        """
        if self._epoch is not None:
            self._end_epoch(self._epoch, left=True)  # its framework ends each one that it goes through
        self._take_arrived()
        self._memory.at_boundary()
        self._board.pause()
        if self.listener is not None and self._board.on:
            self.listener.run_paused(self._board.steps if self._first is None else 0)

    def config(self, given: object = None, /, **more: object) -> None:
        """Keep parameters with the run, by name: a dict, a namespace of argparse, a dataclass, or keyword arguments.

        Parts of a part have names with dots, such as `optimizer.lr`. Others on this machine can read them: what looks
        like a secret is masked. Later values take the place of earlier ones.
        """
        self._telling.config(given, more)

    def framework_config(self, given: Mapping[str, object]) -> None:
        """Keep parameters that the framework knows; those that the user gave stand. For callbacks."""
        self._telling.config(given, {}, by_framework=True)

    def note(self, text: str) -> None:
        """Keep a line with the run, such as what was tried; what looks like a secret is masked."""
        self._telling.note(text)

    def tag(self, *tags: str) -> None:
        """Tag the run with words to find it by, such as 'baseline'."""
        self._telling.tag(tags)

    def must_end(self) -> None:
        """A run that is dropped, or whose process ends, before its own end has not finished. For callbacks."""
        self._board.must_end = True

    def describe(self, **changes: object) -> None:
        """Change what is said of this run, by the fields of `Description`; for callbacks."""
        self._board.describe(**changes)

    def end(
        self, error: BaseException | None = None, *, failed: bool = False, stopped: bool = False, late: bool = False
    ) -> None:
        """End the run, which `error` has left; `stopped`: before its end, on purpose. For callbacks.

        `late`: nobody noticed when it ended, so that it ends with its last sign of life.
        """
        if late:
            self._board.set_back()
        how = ending(error)
        stopped = stopped or how.stopped
        failed = how.failed or (failed and not how.stopped)
        broken = failed or how.stopped or error is not None  # by sys.exit(0) too, which is no failure
        # Asked first: what is published below is no sign that the training has gone on.
        left = (broken or self._unclosed.is_short) and self._left_by_it()
        if failed:
            out_of_memory.PROCESS.raised(error)
        self._take_arrived()
        self._telling.look()
        if self._epoch is not None:
            self._end_epoch(self._epoch, left=broken or stopped)
        elif left:
            self._board.end_epoch(left=True)
        self._memory.at_boundary()
        listener = self.listener if self._board.on else None
        self._board.close(failed=failed, interrupted=how.interrupted, stopped=stopped)
        if listener is not None:
            listener.run_ended(self._board.steps if self._first is None else 0, waits=not (broken or stopped))

    def _begin_epoch(self, number: object) -> object:
        if self._epoch is not None:
            self._end_epoch(self._epoch)  # its loop was left without being closed
        if self.listener is not None and self._board.on:
            self.listener.come_by()
        self._epoch = opened = object()
        self._board.see_to_file()
        if not self._board.is_folding:
            self._find_devices()
        if self._telling.is_pending:
            self._telling.look()
        try:
            epoch = int(number)  # type: ignore[call-overload]
        except Exception:  # nothing like a number, or a type of the user's own that may do anything
            warn_once("epoch", f"{shown(number)} is not an epoch number")
            epoch = -1
        if self._first is None:
            self._first = epoch
            if epoch:
                self._board.describe(first_epoch=epoch)
        self._memory.at_boundary()
        self._left_loader, self._has_loader, self._epoch_step = None, False, self._board.steps
        self._board.begin_epoch(epoch)
        return opened

    def _end_epoch(self, opened: object, *, left: bool = False) -> None:
        if self._epoch is not opened:
            return
        self._epoch = None
        if not self._board.on:
            return  # at the end of the process this module may be gone
        steps = self._board.steps - self._epoch_step
        if steps > 0 and not left:
            self._is_even = self._is_even and steps == (self._fewest or steps)
            self._fewest = min(self._fewest or steps, steps)
        self._take_arrived()
        self._memory.at_boundary()
        self._board.end_epoch(left=left)
        if self.listener is not None and not self._board.is_folding:
            self.listener.epoch_ended(self._board.epoch, self._board.steps)

    def _left_by_it(self) -> bool:
        """Whether what ends the run left an epoch: nothing was published since, no time has passed."""
        return self._board.events == self._unclosed.event and monotonic_ns() - self._unclosed.at_ns < UNWINDING

    def _at_due(self, now: int) -> None:
        """Publish a step, and look after all that steps bring along.

        At most every 50 ms, which each step finds out for itself: readers look no more often, and after a real
        training step, which leaves cold caches, publishing costs 20 times what it does in a loop of its own.
        """
        if not self._board.on:
            self._due = NEVER
            return
        self._due = now + STEP_EVERY
        self._late = 0
        self._board.unfold()
        self._board.publish(now)
        if self._first is None and self._board.steps:
            self._mark_rows(now)
        if now >= self._memory.due_ns:
            self._memory.read(now)
        if self._pending:
            self._take_arrived()
        if self.listener is not None:
            self.listener.come_by()
        self._board.see_to_file()
        self._looked += 1
        if not self._looked & (self._looked - 1):
            # CUDA may have come up since, or the model may have moved: looked up again at 1, 2, 4, 8, …
            self._find_devices()
            self._telling.look()

    def _mark_rows(self, now: int) -> None:
        """Publish which rows of steps are over, in a training without epochs."""
        board = self._board
        ends = self._rows.passed(self._made(now))
        if ends:
            self._memory.at_boundary()
            board.end_rows(ends)

    def _made(self, now: int) -> RowEnd:
        board = self._board
        return RowEnd(board.steps - bool(self._loaders), now, board.wait_ns)

    def _take_arrived(self) -> None:
        for (epoch, row), metrics in sorted(self._pending.collect().items()):
            if row and self._first is None:
                self._log_step(metrics, min(row, self._board.steps))
            else:
                self._board.log(metrics, epoch)

    def _log_step(self, metrics: Mapping[str, float], step: int) -> None:
        """Publish what was logged at `step` of a training without epochs, for the row in which it lies."""
        over = step <= self._rows.ended and self._late < _MOST_LATE
        self._late += over
        self._board.log(metrics, step=step if over else 0)

    def _find_devices(self) -> None:
        if self._look is None or not self._board.on:
            return
        if self.finds_framework and not self._board.description.framework and (name := framework_of(sys.modules)):
            self._board.describe(framework=name)
        found = self._look()
        if found and found != self._board.description.devices:
            self._board.describe(devices=found)
