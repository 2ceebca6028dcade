"""A run that has begun: what `gpumon.run` gives to a training loop.

Nothing here raises, waits, or touches a GPU: the training comes first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from itertools import count
from numbers import Integral
from time import monotonic_ns
from types import TracebackType
from typing import Generic, NamedTuple, ParamSpec, TypeVar, cast, overload

from gpumon.run_facts import LARGEST
from gpumon.tags import out_of_memory
from gpumon.tags.client import Board
from gpumon.tags.description import Description
from gpumon.tags.lifetime import ending, keep
from gpumon.tags.loader import Samples, samples_of
from gpumon.tags.memory import NEVER, MemoryReader
from gpumon.tags.values import Pending, number_of, whole
from gpumon.tags.warn import warn_once
from gpumon.tags.wire import NOT_KNOWN

T = TypeVar("T")
P = ParamSpec("P")
UNWINDING = 1_000_000_000
"""ns within which the exception that has left an epoch comes to the end of the run."""
STEP_EVERY = 50_000_000
"""ns between two steps that are published, and looked at for more than their number."""


class UnclosedEpoch(NamedTuple):
    """An epoch whose loop was left: by `break` when it was over, or by an exception in the middle."""

    event: int
    """Number of the event that ended it."""
    at_ns: int
    """ns, monotonic."""


class ActiveRun:
    """A run that has begun. Safe to call from several threads: of two that write at once the last one wins.

    A forked child inherits it switched off, and so does whoever unpickles or copies it: a run belongs
    to the process that began it.
    """

    def __init__(
        self,
        board: Board,
        epochs: int | None = None,
        look: Callable[[], tuple[str, ...]] | None = None,
        again: Callable[[], ActiveRun] | None = None,
    ) -> None:
        self._again = again
        self._board = board
        self._planned = epochs
        self._look = look
        self._due = 0 if board.on else NEVER
        self._looked = 0
        self._epoch: object | None = None
        self._first: int | None = None
        self._batch_given = board.description.facts.batch > 0
        self._unclosed = UnclosedEpoch(0, 0)
        self._pending = Pending()
        self._memory = MemoryReader(board)

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
            warn_once("start", f"run.epochs(start={start!r}): not an epoch number")
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
                # Its loop was left, at the end of an epoch or within one: `finish` may know.
                self._end_epoch(opened)
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
        self._end_epoch(opened)

    def steps(self, loader: Iterable[T]) -> Steps[T]:
        """Go through `loader`, counting a step for each batch and measuring how long the training waits for it.

        `len()` is the loader's; what the loader raises passes through. Steps count over the whole run.
        """
        if not self._board.description.facts.batch:
            self.batch_of(loader)
        return Steps(self, loader)

    def batch_of(self, loader: object, times: int = 1) -> None:
        """A step takes `times` batches of `loader`: told where the loader knows how large. For callbacks too."""
        try:
            found = samples_of(loader, times)
        except Exception as error:  # a loader of the user's own, whose attributes may do anything
            warn_once("batch", f"the batch size is unknown: {type(error).__name__}: {error}")
            return
        if found is not None:
            self.samples(found)

    def samples(self, found: Samples) -> None:
        """A step has so many, as a loader or batch shows; what `gpumon.run` was given stands. For callbacks."""
        known = self._board.description.facts
        told = known._replace(batch=found.batch, mean_batch=found.mean)
        if not self._batch_given and 0 < found.batch <= LARGEST and told != known:
            self._board.describe(facts=told)

    def step(self, steps: int = 1) -> None:
        """Count a step of a loop that does not use `steps()`."""
        try:
            made = int(steps)
        except (TypeError, ValueError, OverflowError):
            made = -1
        if 0 <= made <= LARGEST:
            self._board.steps += made
        else:
            warn_once("step", f"run.step({steps!r}): not a number of steps")
        if (now := monotonic_ns()) >= self._due:
            self._at_due(now)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Tag what happens inside as `name`: validate, test, checkpoint, …; then the phase before goes on."""
        before = self.begin_phase(str(name))
        try:
            yield
        finally:
            self.begin_phase(before)

    def log(self, metrics: Mapping[str, object] | None = None, /, *_: object, **more: object) -> None:
        """Show numbers with the run, and keep them with its epoch: up to 8 names.

        A CUDA tensor is never waited for: its value shows with a later step or log. `step=`, or a second argument, as
        other loggers take it, is left aside: gpumon counts steps by itself.
        """
        self._take_arrived()
        more.pop("step", None)
        given = dict(metrics) if isinstance(metrics, Mapping) else {}
        if metrics is not None and not isinstance(metrics, Mapping):
            warn_once("log", f"run.log({type(metrics).__name__}): give names, such as run.log(loss=loss)")
        known: dict[str, float] = {}
        for name, value in {**given, **more}.items():
            number = number_of(str(name), value) if self.on else None
            if isinstance(number, float):
                self._pending.forget(str(name))
                known[str(name)] = number
            elif number is not None:
                self._pending.add(str(name), number, self._board.epoch)
        if known:
            self._board.log(known)

    def must_end(self) -> None:
        """A process that ends before this run does has not finished it. For callbacks."""
        self._board.must_end = True

    def describe(self, **changes: object) -> None:
        """Change what is said of this run, by the fields of `Description`; for callbacks."""
        self._board.describe(**changes)

    def finish(self, *, failed: bool = False) -> None:
        """End the run: as interrupted while a KeyboardInterrupt is handled. A second call does nothing."""
        error = sys.exc_info()[1]
        interrupted = isinstance(error, KeyboardInterrupt)
        self.end(error if failed or interrupted else None, failed=failed)

    def end(self, error: BaseException | None = None, *, failed: bool = False) -> None:
        """End the run, which `error` has left. For callbacks."""
        how = ending(error)
        failed = failed or how.failed
        broken = failed or error is not None  # by sys.exit(0) too, which is no failure
        # Asked first: what is published below is no sign that the training has gone on.
        left = broken and self._left_by_it()
        if failed:
            out_of_memory.PROCESS.raised(error)
        self._take_arrived()
        if self._epoch is not None:
            self._end_epoch(self._epoch, left=broken)
        elif left:
            self._board.end_epoch(left=True)
        self._memory.at_boundary()
        self._board.close(failed=failed, interrupted=how.interrupted)

    def begin_epoch(self, number: int) -> None:
        """An epoch begins now; one that is open ends. For callbacks: a loop uses `epochs` or `epoch`."""
        self._begin_epoch(number)

    def end_epoch(self) -> None:
        """The open epoch ends now; without one nothing happens. For callbacks."""
        if self._epoch is not None:
            self._end_epoch(self._epoch)

    def begin_phase(self, name: str) -> str:
        """The phase `name` begins now; gives the one before, to go back to. For callbacks."""
        self._memory.at_boundary()
        return self._board.phase(name)

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

    def waited(self, nanoseconds: int) -> None:
        """So long did the training wait for data; published with the next step. For callbacks."""
        if self._board.wait_ns != NOT_KNOWN:
            self._board.wait_ns += max(1, nanoseconds)  # measured: never 0

    def wait_unknown(self) -> None:
        """Nobody can tell how long this training waits for data: from now on it shows as not known. For callbacks."""
        self._board.wait_ns = NOT_KNOWN

    def __enter__(self) -> ActiveRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(error)

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Decorate `function`: each of its calls is a run of its own, and this one, which nobody enters, is none."""
        self._board.close(withdrawn=True)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            with self._again() if self._again is not None else self:
                return function(*args, **kwargs)

        return call

    def __del__(self) -> None:
        board = getattr(self, "_board", None)
        if board is not None and board.on and board.events == 1 and not board.steps:
            # Begun and dropped in one line: its author means the rest of the program.
            warn_once(
                "kept",
                f"write 'run = gpumon.run(…)': {self.name!r} was not assigned to a name, so nothing can be tagged",
            )
            keep(board)

    def __reduce__(self) -> tuple[Callable[..., ActiveRun], tuple[Description, int | None, int]]:
        return _copy_of, (self._board.description, self._planned, self._board.steps)

    def _begin_epoch(self, number: object) -> object:
        if self._epoch is not None:
            self._end_epoch(self._epoch)  # its loop was left without being closed
        self._epoch = opened = object()
        self._find_devices()
        try:
            epoch = int(number)  # type: ignore[call-overload]
        except (TypeError, ValueError, OverflowError):
            warn_once("epoch", f"{number!r} is not an epoch number")
            epoch = -1
        if self._first is None:
            self._first = epoch
            if epoch:
                self._board.describe(first_epoch=epoch)
        self._memory.at_boundary()
        self._board.begin_epoch(epoch)
        return opened

    def _end_epoch(self, opened: object, *, left: bool = False) -> None:
        if self._epoch is opened:
            self._epoch = None
            self._take_arrived()
            self._memory.at_boundary()
            self._board.end_epoch(left=left)

    def _left_by_it(self) -> bool:
        """Whether the exception that ends the run left an epoch: nothing was told since, and no time has passed."""
        return self._board.events == self._unclosed.event and monotonic_ns() - self._unclosed.at_ns < UNWINDING

    def _at_due(self, now: int) -> None:
        """Publish a step, and look after all that steps bring along.

        At most every 50 ms, which each step finds out for itself: nobody reads it more often, and after a real
        training step, which leaves cold caches, publishing costs 20 times what it does in a loop of its own.
        """
        if not self._board.on:
            self._due = NEVER
            return
        self._due = now + STEP_EVERY
        self._board.publish(now)
        if now >= self._memory.due_ns:
            self._memory.read(now)
        if self._pending:
            self._take_arrived()
        self._looked += 1
        if not self._looked & (self._looked - 1):
            # CUDA may have come up since, or the model may have moved: looked up again at 1, 2, 4, 8, …
            self._find_devices()

    def _take_arrived(self) -> None:
        for epoch, metrics in sorted(self._pending.collect().items()):
            self._board.log(metrics, epoch)

    def _find_devices(self) -> None:
        if self._look is None or not self._board.on:
            return
        found = self._look()
        if found and found != self._board.description.devices:
            self._board.describe(devices=found)


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
        run, board, clock = self._run, self._run._board, monotonic_ns
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
        finally:
            if since:
                board.wait_ns += clock() - since


def _copy_of(described: Description, epochs: int | None, step: int) -> ActiveRun:
    """Stand-in for an unpickled run: it counts and yields, and publishes nothing."""
    copy = ActiveRun(Board(None, described), epochs)
    copy._board.steps = step
    return copy
