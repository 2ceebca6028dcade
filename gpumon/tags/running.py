"""A run that has begun, as a training loop uses it: what `gpumon.run` gives.

Nothing here raises, waits, or touches a GPU: the training comes first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from itertools import count
from numbers import Integral
from threading import get_ident
from time import monotonic_ns
from types import TracebackType
from typing import Generic, ParamSpec, TypeVar, cast, overload

from gpumon.model.run import LARGEST
from gpumon.tags.client import Board
from gpumon.tags.description import Description
from gpumon.tags.lifetime import keep
from gpumon.tags.run_tags import AT_ONCE, LeftLoader, RunTags, UnclosedEpoch
from gpumon.tags.telling import Telling
from gpumon.tags.values import number_of, whole
from gpumon.tags.warn import shown, warn_once

T = TypeVar("T")
P = ParamSpec("P")


class ActiveRun(RunTags):
    """A run that has begun. Safe to call from several threads: of two that write at once the last one wins.

    A forked child inherits it switched off, and a copy or an unpickled one is off too: a run belongs
    to the process that began it.
    """

    def __init__(
        self,
        board: Board,
        epochs: int | None = None,
        look: Callable[[], tuple[str, ...]] | None = None,
        again: Callable[[], ActiveRun] | None = None,
        telling: Telling | None = None,
    ) -> None:
        super().__init__(board, look, telling)
        self._again = again
        self._planned = epochs
        self._told = 0
        """Steps by `log(step=…)`, as long as nothing else counts any."""

    @overload
    def epochs(self, over: int | None = None, *, start: int = 0) -> Iterator[int]: ...
    @overload
    def epochs(self, over: Iterable[T], *, start: int = 0) -> Iterator[T]: ...
    def epochs(self, over: Iterable[T] | int | None = None, *, start: int = 0) -> Iterator[T] | Iterator[int]:
        """Go through the epochs, with an exact tag where each begins and ends, however it ends.

        Without `over`: the numbers from `start` (after a resume: the first epoch still to do) up to
        the `epochs` of the run, or for ever. A number stands for that many epochs in all. Anything
        else is gone through as it is: its integers are epoch numbers, other things are counted from `start`.
        """
        first = whole(start)
        if first is None:
            warn_once("start", f"run.epochs(start={shown(start)}): not an epoch number")
            first = 0
        number = whole(over)
        if over is not None and number is None:
            return self._epochs(cast("Iterable[T]", over), first)
        if number is not None and number != self._board.description.epochs:
            self._board.describe(epochs=max(0, min(number, LARGEST)))
        last = self._planned if number is None else number
        return self._epochs(count(first) if last is None else range(first, last), first)

    def _epochs(self, over: Iterable[T], start: int) -> Iterator[T]:
        for number, item in enumerate(over, start):
            epoch = int(item) if isinstance(item, Integral) else number
            opened = self._begin_epoch(epoch)
            try:
                yield item
            except GeneratorExit:
                if not self.on:
                    raise  # the process may have ended, and this module be gone
                self._board.is_left = left = self._is_within_epoch()
                self._end_epoch(opened, left=left)
                if not left:  # at the end of the epoch, as far as is known here: `finish` may know
                    self._unclosed = UnclosedEpoch(self._board.events, monotonic_ns())
                raise
            self._end_epoch(opened)

    @contextmanager
    def epoch(self, number: int) -> Iterator[None]:
        """One epoch of a loop that counts by itself."""
        opened = self._begin_epoch(number)
        try:
            yield
        except BaseException:
            self._end_epoch(opened, left=True)
            raise
        # Of its last epoch a run ends at once in any case, also where each epoch leaves its loader before its end.
        is_last = self._board.epoch + 1 >= self._board.description.epochs
        is_short = self._is_short() or (not is_last and self._is_within_epoch())
        self._end_epoch(opened)
        if is_short:  # left by `return` or `break`, if the run ends now
            self._unclosed = UnclosedEpoch(self._board.events, monotonic_ns(), is_short)

    def steps(self, loader: Iterable[T]) -> Steps[T]:
        """Go through `loader`, counting a step for each batch and measuring how long the training waits for it.

        `len()` is the loader's; what the loader raises passes through. Steps count over the whole run. Two loaders that
        are zipped make one step of each pair.
        """
        if not self._board.description.facts.batch:
            self.batch_of(loader)
        return Steps(self, loader)

    def step(self, steps: int = 1) -> None:
        """Count a step of a loop that does not use `steps()`; within one that does, nothing is counted twice."""
        if self._loaders and get_ident() in self._loaders:
            warn_once("steps", "run.step() in a loop over run.steps(…), which counts its batches, counts nothing")
            return
        try:
            made = int(steps)
        except Exception:  # nothing like a number, or a type of the user's own that may do anything
            made = -1
        if 0 <= made <= LARGEST:
            self._board.steps += made
        else:
            warn_once("step", f"run.step({shown(steps)}): not a number of steps")
        if (now := monotonic_ns()) >= self._due:
            self._at_due(now)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Tag what happens inside as `name`: validate, test, checkpoint, …; then the phase before continues."""
        before = self.begin_phase(name)
        try:
            yield
        finally:
            left = self._left_loader
            is_left_now = left is not None and left.event == self._board.events and self._fewest > 0
            self.begin_phase(before)
            if left is not None and is_left_now:  # a loader within the phase, whose end is no sign of going on
                self._left_loader = left._replace(event=self._board.events)

    def log(self, metrics: Mapping[str, object] | None = None, /, *told: object, **more: object) -> None:
        """Show numbers with the run, and keep them with its epoch: 8 names, the most telling ones or those chosen.

        An epoch keeps the last number of each name, and the course over time the last one of each point.
        A CUDA tensor is never waited for: its value shows with a later step or log. `step=`, or a second argument, as
        other loggers take it, is how many steps were made so far: without epochs, the numbers are kept with the row of
        that step, else with that of the last one. It counts steps, too, in a loop that has neither `steps()` nor
        `step()`, which count by themselves.
        """
        self._take_arrived()
        step = more.pop("step", told[0] if told else None)
        given = dict(metrics) if isinstance(metrics, Mapping) else {}
        if metrics is not None and not isinstance(metrics, Mapping):
            warn_once("log", f"run.log({type(metrics).__name__}): give names, such as run.log(loss=loss)")
        at = self._step_of_log(step) if self.on else 0
        known: dict[str, float] = {}
        for name, value in {**given, **more}.items():
            number = number_of(str(name), value) if self.on else None
            if isinstance(number, float):
                self._pending.forget(str(name))
                known[str(name)] = number
            elif number is not None:
                self._pending.add(str(name), number, self._board.epoch, self._rows.end_of(at))
        if known and at:
            self._log_step(known, at)
        elif known:
            self._board.log(known)

    def _step_of_log(self, step: object) -> int:
        """Return the step to which belongs what is logged now; 0 where it is none's. `step`: as the loop tells it."""
        board, told = self._board, None if step is None else whole(step)
        if told is not None and self._told <= told <= LARGEST and board.steps == self._told:
            self._told = board.steps = told  # a loop that counts them by itself
            if (now := monotonic_ns()) >= self._due:
                self._at_due(now)
        if self._first is not None or board.trained or not board.steps:
            return 0
        if board.steps > self._rows.next:
            self._mark_rows(monotonic_ns())  # what was logged until now is of the rows before
        return board.steps if told is None else min(max(1, told), board.steps)

    def finish(self, *, failed: bool = False) -> None:
        """End the run: as interrupted while a KeyboardInterrupt is handled. A second call does nothing.

        While another exception is handled that has left an epoch, it is stopped: only `with` knows whether that fails.
        """
        error = sys.exc_info()[1]
        if failed or isinstance(error, KeyboardInterrupt):
            self.end(error, failed=failed)
        else:
            is_left = self._board.is_left or self._epoch is not None or self._left_by_it()
            if self._epoch is not None and self._is_in_steps():
                self._end_epoch(self._epoch, left=True)
            self.end(stopped=error is not None and is_left)

    def stop(self) -> None:
        """End the run before its end, on purpose, as a trial that is pruned: it is stopped, and has not failed."""
        if self._epoch is not None and not self._is_within_epoch() and not self._is_in_steps():
            self._end_epoch(self._epoch)
        self.end(stopped=True)

    def _is_short(self) -> bool:
        """Whether the open epoch has fewer steps than those before it, which all had as many."""
        return self._is_even and 0 < self._board.steps - self._epoch_step < self._fewest

    def _is_within_epoch(self) -> bool:
        """Whether the loop of the open epoch, which is left now, has batches before it, as far as its steps show."""
        steps = self._board.steps - self._epoch_step
        if not self._has_loader:
            return 0 < steps < self._fewest
        if self._fewest and steps >= self._fewest:
            return False  # its user makes no more of them in an epoch
        left = self._left_loader
        return left is not None and left.event == self._board.events and monotonic_ns() - left.at_ns < AT_ONCE

    def _is_in_steps(self) -> bool:
        """Whether this thread is in a loop over batches that has fewer steps yet than every epoch before."""
        steps = self._board.steps - self._epoch_step
        return get_ident() in self._loaders and not 0 < self._fewest <= steps

    def __enter__(self) -> ActiveRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(error)

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Decorate `function`: each of its calls is a run of its own, and this one, never entered, is withdrawn."""
        self._board.close(withdrawn=True)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            with self._again() if self._again is not None else self:
                return function(*args, **kwargs)

        return call

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing():
            return  # this module may be gone
        board = getattr(self, "_board", None)
        if board is not None and board.on and board.events == 1 and not board.steps and not board.must_end:
            # Begun and dropped in one line: its author means the rest of the program.
            warn_once(
                "kept",
                f"write 'run = gpumon.run(…)': {self.name!r} was not assigned to a name, so nothing can be tagged",
            )
            keep(board)

    def __reduce__(self) -> tuple[Callable[..., ActiveRun], tuple[Description, int | None, int]]:
        return _copy_of, (self._board.description, self._planned, self._board.steps)


class Steps(Generic[T]):
    """The batches of a loader, with a tag for each."""

    def __init__(self, run: ActiveRun, loader: Iterable[T]) -> None:
        self._run = run
        self._loader = loader

    def __len__(self) -> int:
        return len(cast("Sequence[T]", self._loader))

    def __iter__(self) -> Iterator[T]:
        # What is done for each batch stands here, without a call but to the clock: a training step leaves
        # nothing of this in the caches, and then each function that is called costs as much as all the rest.
        run, board, clock, thread = self._run, self._run._board, monotonic_ns, get_ident()
        if thread in run._loaders:
            yield from self._within()
            return
        run._loaders.append(thread)
        run._has_loader = True
        begun, is_over = board.steps, False
        since = clock()
        try:
            for batch in self._loader:  # starts the workers of a DataLoader: that is waiting too
                now = clock()
                board.wait_ns += now - since
                since = 0
                board.steps += 1
                if now >= run._due:
                    run._at_due(now)
                yield batch
                since = clock()
            is_over = True
        finally:
            run._loaders.remove(thread)
            if since:
                board.wait_ns += clock() - since
            if not is_over and run._unpaired == board.steps:
                board.steps -= 1  # its last batch was fetched for a pair that did not come
            if not is_over and board.on and not 0 < _length(self._loader) <= board.steps - begun:
                run._left_loader = LeftLoader(board.events, clock())

    def _within(self) -> Iterator[T]:
        """The batches of a second loader that begins in the loop of another one.

        Zipped with it, they belong to the other's steps: a step is counted once. In a loop of their own, such as a
        validation in the middle of an epoch, each is a step: two of them come without one of the other between.
        """
        run, board, thread = self._run, self._run._board, get_ident()
        others = run._loaders.count(thread)
        run._loaders.append(thread)
        held, seen = 0, -1
        since = monotonic_ns()
        try:
            for batch in self._loader:
                now = monotonic_ns()
                board.wait_ns += now - since
                since = 0
                if run._loaders.count(thread) <= others:  # the other is over
                    held, board.steps = 0, board.steps + 1
                elif board.steps == seen:
                    held, board.steps = 0, board.steps + 1 + held
                else:
                    held = 1
                seen = board.steps
                if now >= run._due:
                    run._at_due(now)
                yield batch
                since = monotonic_ns()
            if board.steps == seen:
                board.steps += held
            elif held:
                run._unpaired = board.steps  # the other one is a batch ahead
        finally:
            run._loaders.remove(thread)
            if since:
                board.wait_ns += monotonic_ns() - since


def _length(loader: object) -> int:
    """Batches of a loader; 0 where it does not say."""
    try:
        return len(cast("Sequence[object]", loader))
    except Exception:  # without end, or with a length that may do anything
        return 0


def _copy_of(described: Description, epochs: int | None, step: int) -> ActiveRun:
    """Stand-in for an unpickled run: it counts and yields, and publishes nothing."""
    copy = ActiveRun(Board(None, described), epochs)
    copy._board.steps = step
    return copy
