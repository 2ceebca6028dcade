"""`Steps` counts the steps of a loop over batches, and measures how long the loop waits for each batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from gpumon.tracking.run_tags import LeftLoader

if TYPE_CHECKING:
    from gpumon.tracking.active_run import ActiveRun

T = TypeVar("T")


class Steps(Generic[T]):
    """The batches of a loader, each of which counts as a step of the run.

    If two such iterators are zipped, each pair of batches counts as one step. In a loop inside another loop, such as a
    validation in the middle of an epoch, each batch counts as a step. The two cases differ in the order of the batches:
    in an inner loop, several batches come without a batch of the outer loader in between.
    """

    def __init__(self, run: ActiveRun, loader: Iterable[T]) -> None:
        self._run = run
        self._loader = loader

    def __len__(self) -> int:
        return len(cast("Sequence[T]", self._loader))

    def __iter__(self) -> Iterator[T]:
        # The work per batch is inlined, and only the clock is called. A training step evicts this code from the CPU
        # caches, so each additional call would take as long as all the rest of it.
        run, board, clock, thread = self._run, self._run._board, monotonic_ns, get_ident()
        if thread in run._loaders:
            yield from self._iterate_nested()
            return
        run._loaders.append(thread)
        run._has_loader = True
        board.begin_steps()
        first_step, is_over, is_first = board.steps, False, True
        since = clock()
        try:
            for batch in self._loader:  # starts the workers of a DataLoader, which counts as waiting
                now = clock()
                board.wait_ns += now - since
                if is_first:
                    is_first = False
                    run.begin_pass(now - since)
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
                ending = clock() - since
                board.wait_ns += ending
                if is_over and not is_first:
                    run.end_pass(ending)
            if not is_over and run._unpaired == board.steps:
                board.steps -= 1  # the other zipped loader had no batch to go with this one
            if not is_over and board.on and not 0 < _length(self._loader) <= board.steps - first_step:
                run._left_loader = LeftLoader(board.events, clock())
            if not run._loaders and board.on:  # at the end of the process, the board's module may already be unloaded
                board.end_steps()

    def _iterate_nested(self) -> Iterator[T]:
        """Iterate over a second loader that starts inside the loop over another one.

        If both loaders are zipped, their batches alternate, and each pair counts as one step. In a separate loop, such
        as a validation in the middle of an epoch, two batches come without a batch of the outer loader in between. Then
        each batch counts as a step.
        """
        run, board, thread = self._run, self._run._board, get_ident()
        others = run._loaders.count(thread)
        run._loaders.append(thread)
        uncounted, steps_before = 0, -1
        since = monotonic_ns()
        try:
            for batch in self._loader:
                now = monotonic_ns()
                board.wait_ns += now - since
                since = 0
                if run._loaders.count(thread) <= others:  # the outer loader has ended
                    uncounted, board.steps = 0, board.steps + 1
                elif board.steps == steps_before:
                    uncounted, board.steps = 0, board.steps + 1 + uncounted
                else:
                    uncounted = 1
                steps_before = board.steps
                if now >= run._due:
                    run._at_due(now)
                yield batch
                since = monotonic_ns()
            if board.steps == steps_before:
                board.steps += uncounted
            elif uncounted:
                run._unpaired = board.steps  # the outer loader is one batch ahead
        finally:
            run._loaders.remove(thread)
            if since:
                board.wait_ns += monotonic_ns() - since


def _length(loader: object) -> int:
    """Return the number of batches of a loader; 0 if it has no length."""
    try:
        return len(cast("Sequence[object]", loader))
    except Exception:  # the loader has no length, or its __len__ raises an exception
        return 0
