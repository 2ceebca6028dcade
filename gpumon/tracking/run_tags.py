"""Publishes the epochs, phases and steps of a run. Callbacks use `RunTags` directly, and training loops use
`ActiveRun`.

Nothing here raises, waits, or uses a GPU, because it must never disturb the training.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from time import monotonic_ns
from typing import NamedTuple, Protocol

from gpumon.common.clock import SECOND
from gpumon.model.run import LARGEST
from gpumon.tracking import out_of_memory, stack_dump
from gpumon.tracking.batch_size import BatchSize, read_batch_size, read_workers
from gpumon.tracking.board import Board
from gpumon.tracking.context import detect_framework
from gpumon.tracking.cpu_time import CpuTime
from gpumon.tracking.lifetime import UNWINDING, ending_of
from gpumon.tracking.logged_values import PendingNumbers, RowEnd, StepMarker, whole
from gpumon.tracking.memory import NEVER, MemoryReader
from gpumon.tracking.metadata import RunMetadata
from gpumon.tracking.warn import shown, warn_once
from gpumon.tracking.wire_format import NOT_KNOWN

AT_ONCE = 100_000_000
"""Maximum ns between leaving the loop over batches and leaving the loop over epochs, if both are left together."""
_MAX_LATE_LOGS = 16
"""Maximum number of logs that are added to ended rows between two published steps. The values of further logs are added
to the open row."""
STEP_EVERY = 50_000_000
"""ns between two published steps."""
_PASSES_EVERY = 10 * SECOND
"""ns between two publications of the waits at the start and end of passes over a loader."""


class UnclosedEpoch(NamedTuple):
    """An epoch whose loop was left by `break` or by an exception, so that the epoch may be incomplete."""

    event: int
    """Number of the event that ended the epoch."""
    at_ns: int
    """Time at which the loop was left, in ns of the monotonic clock."""
    is_short: bool = False
    """Whether the epoch had fewer steps than each earlier epoch."""


class LeftLoader(NamedTuple):
    """A loop over batches that was left before the last batch."""

    event: int
    """Number of the newest event when the loop was left."""
    at_ns: int
    """Time at which the loop over the loader was left, in ns of CLOCK_MONOTONIC."""


class EpochListener(Protocol):
    """Receives the progress of a run. The training's own thread calls the methods, which must not raise."""

    def poll(self) -> None:
        """Called before each epoch, and at steps at most every 50 ms (`STEP_EVERY`)."""

    def epoch_ended(self, epoch: int, step: int) -> None:
        """Called when an epoch has ended. `step`: number of steps since the training began."""

    def run_paused(self, rows_to: int) -> None:
        """Called when the training is over, but an evaluation may continue the run.

        `rows_to`: in a run without epochs, the last step, at which the rows of steps end; otherwise 0.
        """

    def run_ended(self, rows_to: int, *, waits: bool) -> None:
        """Called when the run has ended.

        `waits`: whether this call may wait for data. `rows_to`: as in `run_paused`.
        """


class RunTags:
    """Publishes epochs, phases, steps and waits for data of one run in its board."""

    def __init__(
        self,
        board: Board,
        find_devices: Callable[[], tuple[str, ...]] | None = None,
        metadata: RunMetadata | None = None,
    ) -> None:
        self._board = board
        self._metadata = RunMetadata(board) if metadata is None else metadata
        self._find_devices = find_devices
        self._due = 0 if board.on else NEVER
        """Time at which the next step is to be published, in ns of the monotonic clock."""
        self._published_steps = 0
        self._epoch: object | None = None
        """Token of the open epoch."""
        self._first: int | None = None
        """Number of the first epoch."""
        self._has_batch = board.description.facts.batch > 0
        self._unclosed = UnclosedEpoch(0, 0)
        self._left_loader: LeftLoader | None = None
        """The last loop over batches in the open epoch, if that loop was left early."""
        self._has_loader = False
        """Whether the open epoch has a loop over batches."""
        self._epoch_step = 0
        """Number of steps before the open epoch."""
        self._fewest = 0
        """Number of steps of the shortest completed epoch; 0 before the first epoch is complete."""
        self._is_even = True
        """Whether all completed epochs had the same number of steps."""
        self._pending = PendingNumbers()
        self._memory = MemoryReader(board)
        self._rows = StepMarker()
        self._late_logs = 0
        self._has_read_workers = False
        """Whether the workers of a loader were read. Later loaders, for example for validation, do not count."""
        self._passes = -1
        """Number of passes over the training's loader. The first pass is not counted, because it also fills caches."""
        self._pass_waits = 0
        """Nanoseconds waited for the first batch and the end of these passes."""
        self._passes_due = 0
        self._loaders: list[int] = []
        """For each loader in use, the thread that uses it. A batch counts as a step when it is fetched, before the step
        is done."""
        self._unpaired = -1
        """Number of steps at the time when one of two zipped loaders had no batch to go with the last batch of the
        other; otherwise -1."""
        self.finds_framework = False
        """Whether to detect the framework from the imported modules. This is repeated after the start of the run."""
        if board.on:
            cpu = CpuTime()
            board.cpu_time, board.worker_cpu_time = cpu.seconds, cpu.children_seconds
        self.listener: EpochListener | None = None

    @property
    def name(self) -> str:
        """Name of the run."""
        return self._board.description.name

    @property
    def id(self) -> str:
        """Id of the run, shared by all its ranks."""
        return self._board.description.id

    @property
    def on(self) -> bool:
        """Whether the run is being published. False after its end, or if its board could not be created."""
        return self._board.on

    def __repr__(self) -> str:
        epoch = f", epoch {self._board.epoch}" if self._board.epoch >= 0 else ""
        return f"<run {self.id}{epoch}, step {self._board.steps}{'' if self.on else ', off'}>"

    def _repr_html_(self) -> str:
        from html import escape  # only notebooks need this module

        return f"<code>{escape(repr(self))}</code>"

    def begin_epoch(self, number: int) -> None:
        """End the open epoch, if any, and begin epoch `number`.

        For callbacks; a training loop uses `epochs` or `epoch`.
        """
        self._begin_epoch(number)

    def end_epoch(self) -> None:
        """End the open epoch, if any. For callbacks."""
        if self._epoch is not None:
            self._end_epoch(self._epoch)

    def begin_phase(self, name: str) -> str:
        """Begin phase `name`. Return the name of the previous phase, so that the caller can return to it.

        For callbacks.
        """
        if not self._board.on:
            return ""
        self._memory.read_at_boundary()
        if self._first is None:
            # No row of steps may contain steps of two phases.
            now = monotonic_ns()
            if self._board.steps:
                self._mark_rows(now)
            self._rows.restart(self._row_end(now))
        return self._board.phase(name if isinstance(name, str) else shown(name))

    def at_step(self, step: int, since: int = 0) -> None:
        """Set the number of steps done in the whole run. For callbacks.

        `since`: if the training has just waited for data, the time at which the wait began (ns of CLOCK_MONOTONIC);
        else 0.
        """
        now, board = monotonic_ns(), self._board
        if since and board.wait_ns != NOT_KNOWN:
            board.wait_ns += now - since
        board.steps = step
        if now >= self._due:
            self._at_due(now)

    def skip_to_step(self, step: int) -> None:
        """Set the number of steps of the whole run without ending a row of steps. For callbacks.

        Used if there are no times for the individual steps.
        """
        now, board = monotonic_ns(), self._board
        board.steps = step
        self._rows.restart(RowEnd(step, now, board.wait_ns))
        board.publish(now)

    def waited(self, nanoseconds: int) -> None:
        """Add `nanoseconds` of waiting for data. They are published with the next step. For callbacks."""
        if self._board.wait_ns != NOT_KNOWN:
            self._board.wait_ns += max(1, nanoseconds)  # 0 would mean that the wait was not measured

    def wait_unknown(self) -> None:
        """From now on, report that the time this training waits for data is unknown. For callbacks."""
        self._board.wait_ns = NOT_KNOWN

    def batch_of(self, loader: object, times: int = 1) -> None:
        """Publish the samples per step if the batch size of `loader` can be read. A step takes `times` batches.

        Also for callbacks.
        """
        try:
            size = read_batch_size(loader, times)
            loading, workers = ("", 0) if self._has_read_workers else read_workers(loader)
        except Exception:  # reading an attribute of a user's loader may raise anything
            return
        self._has_read_workers = True
        if size is not None:
            self.set_batch_size(size)
        if loading:
            self._board.describe(facts=self._board.description.facts._replace(loading=loading, workers=workers))

    def begin_pass(self, wait_ns: int) -> None:
        """Note that the training waited this long for the first batch of a pass over its loader."""
        if self._board.is_training:
            self._passes += 1
            self._pass_waits += wait_ns if self._passes else 0

    def end_pass(self, wait_ns: int) -> None:
        """Note that the training waited this long after the last batch of a pass, until the loader ended."""
        if self._passes > 0 and self._board.is_training:
            self._pass_waits += wait_ns
            if (now := monotonic_ns()) >= self._passes_due:
                self._passes_due = now + _PASSES_EVERY
                self._publish_passes()

    def _publish_passes(self) -> None:
        facts = self._board.description.facts
        if 0 < self._passes != facts.passes:
            waits = round(self._pass_waits / SECOND, 3)
            self._board.describe(facts=facts._replace(passes=self._passes, pass_waits=waits))

    def set_batch_size(self, size: BatchSize) -> None:
        """Publish the samples per step. A batch size that was passed to `gpumon.run` takes precedence.

        For callbacks.
        """
        facts = self._board.description.facts
        changed = facts._replace(batch=size.batch, mean_batch=size.mean)
        if not self._has_batch and 0 < size.batch <= LARGEST and changed != facts:
            self._board.describe(facts=changed)

    def plan(self, *, epochs: object = None, steps: object = None) -> None:
        """Publish the number of planned epochs or steps, from which the remaining time is estimated. For callbacks.

        Values other than positive integers are ignored. Numbers passed to `gpumon.run` take precedence. `steps` counts
        the whole run, like `max_steps` of a trainer.
        """
        description = self._board.description
        planned = whole(steps) or 0
        if 0 < planned <= LARGEST and not description.facts.planned_steps:
            self._board.describe(facts=description.facts._replace(planned_steps=planned))
        planned = whole(epochs) or 0
        if 0 < planned <= LARGEST and not description.epochs:
            self._board.describe(epochs=planned)

    def pause(self) -> None:
        """End the training as successful, unless another phase or epoch, such as a test, begins later. For callbacks.

        The run is then in the phase `paused`, which does not count in any measurement. `begin_phase` or `begin_epoch`
        continues the run. If neither is called, the time of this call becomes the end of the run, however the process
        ends.
        """
        if self._epoch is not None:
            self._end_epoch(self._epoch, aborted=True)  # frameworks end every completed epoch themselves
        self._log_arrived()
        self._memory.read_at_boundary()
        self._board.pause()
        if self.listener is not None and self._board.on:
            self.listener.run_paused(self._board.steps if self._first is None else 0)

    def config(self, values: object = None, /, **named: object) -> None:
        """Store parameters with the run, given as a dict, an argparse namespace, a dataclass, or keyword arguments.

        Nested values get names with dots, such as `optimizer.lr`. Other users of this machine can read them, so values
        that look like secrets are masked. A later value replaces an earlier one.
        """
        self._metadata.config(values, named)

    def framework_config(self, values: Mapping[str, object]) -> None:
        """Store parameters that the framework reports. They do not replace parameters that the user gave.

        For callbacks.
        """
        self._metadata.config(values, {}, by_framework=True)

    def note(self, text: str) -> None:
        """Store a line of text with the run. Parts that look like secrets are masked."""
        self._metadata.note(text)

    def tag(self, *tags: str) -> None:
        """Add tags. A tag is a word, such as 'baseline', by which the run can be found later."""
        self._metadata.tag(tags)

    def must_end(self) -> None:
        """Count the run as failed if it is dropped, or if its process ends, before `end` is called. For callbacks."""
        self._board.must_end = True

    def describe(self, **changes: object) -> None:
        """Change fields of the run's `Description`, and publish it. For callbacks."""
        self._board.describe(**changes)

    def end(
        self, error: BaseException | None = None, *, failed: bool = False, stopped: bool = False, late: bool = False
    ) -> None:
        """End the run. For callbacks.

        `error`: the exception that ended the run. `failed`: the run failed, even if `error` is None. `stopped`: the run
        was ended early on purpose. `late`: the run ended earlier without reporting its end, so the time of its last
        activity is used.
        """
        if late:
            self._board.backdate_end()
        ending = ending_of(error)
        stopped = stopped or ending.stopped
        failed = ending.failed or (failed and not ending.stopped)
        is_broken_off = failed or ending.stopped or error is not None  # including sys.exit(0), which is no failure
        # Checked before anything is published below, because publishing would look like progress of the training.
        left = (is_broken_off or self._unclosed.is_short) and self._left_epoch_just_now()
        if failed:
            out_of_memory.REPORTER.report_error(error)
        self._log_arrived()
        self._metadata.update_program()
        self._publish_passes()
        if self._epoch is not None:
            self._end_epoch(self._epoch, aborted=is_broken_off or stopped)
        elif left:
            self._board.end_epoch(aborted=True)
        self._memory.read_at_boundary()
        listener = self.listener if self._board.on else None
        self._board.close(failed=failed, interrupted=ending.interrupted, stopped=stopped)
        if listener is not None:
            waits = not (is_broken_off or stopped)
            listener.run_ended(self._board.steps if self._first is None else 0, waits=waits)

    def _begin_epoch(self, number: object) -> object:
        if self._epoch is not None:
            self._end_epoch(self._epoch)  # the loop of this epoch was left without being closed
        if self.listener is not None and self._board.on:
            self.listener.poll()
        self._epoch = token = object()
        self._board.repair_file()
        if not self._board.is_folding:
            self._update_devices()
        if self._metadata.is_pending:
            self._metadata.update_program()
        epoch = whole(number)
        if epoch is None or not -LARGEST <= epoch <= LARGEST:
            epoch = min(self._board.epoch + 1, LARGEST)
            warn_once("epoch", f"{shown(number)} is not an epoch number: the epoch is counted as {epoch}")
        if self._first is None:
            self._first = epoch
            if epoch:
                self._board.describe(first_epoch=epoch)
        self._memory.read_at_boundary()
        self._left_loader, self._has_loader, self._epoch_step = None, False, self._board.steps
        self._board.begin_epoch(epoch)
        return token

    def _end_epoch(self, token: object, *, aborted: bool = False) -> None:
        if self._epoch is not token:
            return
        self._epoch = None
        if not self._board.on:
            return  # at the end of the process, this module may already be unloaded
        steps = self._board.steps - self._epoch_step
        if steps > 0 and not aborted:
            self._is_even = self._is_even and steps == (self._fewest or steps)
            self._fewest = min(self._fewest or steps, steps)
        self._log_arrived()
        self._memory.read_at_boundary()
        self._board.end_epoch(aborted=aborted)
        if self.listener is not None and not self._board.is_folding:
            self.listener.epoch_ended(self._board.epoch, self._board.steps)

    def _left_epoch_just_now(self) -> bool:
        """Whether an epoch was left just now.

        If so, nothing has been published since then, and almost no time has passed.
        """
        return self._board.events == self._unclosed.event and monotonic_ns() - self._unclosed.at_ns < UNWINDING

    def _at_due(self, now: int) -> None:
        """Publish a step and do the periodic work.

        Called at most every 50 ms, because each step first compares the time. Readers do not poll more often than that.
        After a real training step, the CPU caches are cold, and publishing takes 20 times as long as in a tight loop.
        """
        if not self._board.on:
            self._due = NEVER
            return
        self._due = now + STEP_EVERY
        self._late_logs = 0
        self._board.unfold()
        self._board.publish(now)
        if self._first is None and self._board.steps:
            self._mark_rows(now)
        if now >= self._memory.due_ns:
            self._memory.read(now)
        if self._pending:
            self._log_arrived()
        if self.listener is not None:
            self.listener.poll()
        self._board.repair_file()
        stack_dump.check(now)
        self._published_steps += 1
        if not self._published_steps & (self._published_steps - 1):
            # CUDA may have been initialized, or the model moved, since the last check. Checks are made at 1, 2, 4, 8, …
            self._update_devices()
            self._metadata.update_program()

    def _mark_rows(self, now: int) -> None:
        """Publish the rows of steps that have ended, in a run without epochs."""
        ends = self._rows.advance(self._row_end(now))
        if ends:
            self._memory.read_at_boundary()
            self._board.end_rows(ends)

    def _row_end(self, now: int) -> RowEnd:
        """Return the end of a row at the current step. A step whose batch has only been fetched does not count."""
        board = self._board
        return RowEnd(board.steps - bool(self._loaders), now, board.wait_ns)

    def _log_arrived(self) -> None:
        """Log the values that have arrived from a GPU."""
        for (epoch, row), metrics in sorted(self._pending.collect().items()):
            if row and self._first is None:
                self._log_step(metrics, min(row, self._board.steps))
            else:
                self._board.log(metrics, epoch)

    def _log_step(self, metrics: Mapping[str, float], step: int) -> None:
        """Publish the values that a run without epochs logged at `step`, for the row that contains this step."""
        is_late = step <= self._rows.ended and self._late_logs < _MAX_LATE_LOGS
        self._late_logs += is_late
        self._board.log(metrics, step=step if is_late else 0)

    def _update_devices(self) -> None:
        """Publish the devices and the framework if they have changed or have only now been found."""
        if self._find_devices is None or not self._board.on:
            return
        if self.finds_framework and not self._board.description.framework and (name := detect_framework(sys.modules)):
            self._board.describe(framework=name)
        devices = self._find_devices()
        if devices and devices != self._board.description.devices:
            self._board.describe(devices=devices)
