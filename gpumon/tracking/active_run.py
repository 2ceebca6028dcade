"""`gpumon.run`: the tags of a training loop that its author writes by hand.

    with gpumon.run("resnet50", epochs=90) as run:
        for epoch in run.epochs():
            for batch in run.steps(loader):
                ...
            with run.phase("validate"):
                ...
            run.log(loss=loss, accuracy=accuracy)

Nothing here raises, waits, or touches a GPU: the training comes first. An argument that makes no sense is left aside
with a warning; numbers may be of any numeric type.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from itertools import count
from math import inf
from numbers import Integral
from threading import get_ident
from time import monotonic_ns
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from gpumon.common import paths
from gpumon.common.errors import UsageError
from gpumon.model.run import LARGEST, RunFacts
from gpumon.model.vendors import IDENTIFIERS, NVIDIA
from gpumon.tracking import context
from gpumon.tracking.board import Board
from gpumon.tracking.context import are_numbered_here, default_name, find_devices, framework_of, visible_uuids
from gpumon.tracking.description import Description
from gpumon.tracking.lifetime import keep
from gpumon.tracking.metadata import Telling, telling
from gpumon.tracking.run_tags import AT_ONCE, LeftLoader, RunTags, UnclosedEpoch
from gpumon.tracking.values import number_of, whole
from gpumon.tracking.warn import shown, warn_once

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


LOG_WAIT = 3.0
"""Seconds that the end of a run may wait for the values of its last epochs, if it logs them."""
LONGEST_WAIT = 3600
_begun: Counter[str] = Counter()
"""Runs that this process has begun, by name: one that only rank 0 begins does not shift the others."""


def run(
    name: str | None = None,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    devices: int | str | Sequence[int | str] | None = None,
    framework: str | None = None,
    batch: int | None = None,
    tags: str | Sequence[str] = (),
    metrics: str | Sequence[str] = (),
    run_id: str | None = None,
    log_to: object = None,
    log_wait: float = LOG_WAIT,
    directory: str | None = None,
    env: Mapping[str, str] | None = None,
) -> ActiveRun:
    """Begin a run: a training that gpumon shows, and whose samples it tags with epoch, step and phase.

    Use it as a context manager, or as a decorator of a function of which each call is a run; or keep what it gives
    and call `finish()` at the end. `name` defaults to that of the script or notebook; `epochs` and
    `steps` are how many are planned, `steps` over the whole run; `batch` how many samples a step of this process has,
    where its loader does not say; `devices` are UUIDs (`GPU-…`, `MIG-…`), or numbers as CUDA counts them in this
    process, where gpumon cannot find them by itself;
    `tags` are words to find the run by; `metrics` are names of logged numbers, or patterns such as `rewards/*`, that
    alone are shown, where the most telling eight of them are not the right ones; `run_id` is shared by all ranks of a
    run and follows from the launcher by default.

    `log_to` names where gpumon writes its values of each epoch: "tensorboard", "wandb", "mlflow", "csv:PATH", a
    logger, a function of a dict and the epoch's number, or a list of these (docs/runs.md). The end of the run waits
    `log_wait` seconds at most for those of its last epochs.

    Raises nothing: an argument that makes no sense is left aside with a warning, and where tags cannot be published
    the run works all the same and publishes nothing.
    """
    try:
        return _begin(
            name, epochs=epochs, steps=steps, devices=devices, framework=framework, batch=batch, tags=tags,
            metrics=metrics, run_id=run_id, log_to=log_to, log_wait=log_wait, directory=directory, env=env,
        )  # fmt: skip
    except Exception as error:  # no descriptor is left, a module cannot be read: a training goes on without a run
        warn_once("run", f"this training will not show in gpumon: {type(error).__name__}: {error}")
        return ActiveRun(Board(None, Description(name="run", id="run")), whole(epochs))


def _begin(
    name: object, *, epochs: object, steps: object, devices: Any, framework: object, batch: object, tags: Any,
    metrics: Any, run_id: object, log_to: object, log_wait: float, directory: object, env: Mapping[str, str] | None,
) -> ActiveRun:  # fmt: skip
    planned = _count("epochs", epochs, f"give a number from 0 to {LARGEST}")
    planned_steps = _count("steps", steps, f"give a number from 0 to {LARGEST}")
    samples = _count("batch", batch, "give the number of samples per step")
    if env is None or not isinstance(env, Mapping):
        env = os.environ
    given, visible = _devices(devices, env)
    name = _text("name", name) or default_name(sys.argv, env, vars(sys.modules["__main__"]))
    run_id, where_to = _text("run_id", run_id), _path("directory", directory)
    if framework is not None:
        framework = _text("framework", framework) or ""
    where, begun = context.place(env, sys.modules), _begun[name]
    _begun[name] += 1
    alone = where.world_size == 1

    def places() -> paths.Places:
        return paths.places(where_to, env=env)

    def look() -> tuple[str, ...]:
        return given or find_devices(sys.modules, env, alone=alone)

    described = Description(
        name=name,
        id=context.of_attempt(
            run_id or context.run_id(name, where, begun, context.parent_identity(starter=where.starter), _user()),
            where.attempt,
        ),
        framework=framework if framework is not None else framework_of(sys.modules),
        rank=where.rank,
        local_rank=where.local_rank,
        world_size=max(1, where.world_size),
        devices=look(),
        visible=visible,
        order=env.get(NVIDIA.order[0], ""),
        epochs=planned or 0,
        facts=RunFacts(batch=samples or 0, planned_steps=planned_steps or 0, job=env.get("SLURM_JOB_ID", "")),
    )

    def place() -> str:
        return paths.tag_dir_for_client(places())

    def again() -> ActiveRun:
        return run(
            name, epochs=planned, steps=planned_steps, devices=devices, framework=framework, batch=samples,
            tags=tags, metrics=metrics, run_id=run_id or None, log_to=log_to, log_wait=log_wait, directory=where_to,
            env=env,
        )  # fmt: skip

    board = Board(place, described)
    wanted = (metrics,) if isinstance(metrics, str) else metrics
    if isinstance(wanted, list | tuple | set | frozenset) and all(isinstance(one, str) for one in wanted):
        board.chosen = tuple(wanted)
    else:
        warn_once("chosen", f"metrics={shown(metrics)}: give names of metrics, or omit it")
    told = telling(board, env, where.local_rank)
    told.begin()
    told.tag(tags if isinstance(tags, list | tuple | set | frozenset) else (tags,))
    begun_run = ActiveRun(board, planned, look, again, told)
    begun_run.finds_framework = framework is None
    log = None
    if log_to is not None and where.rank == 0 and board.on:
        # By its name, since it reads the ledger: a training without loggers never imports that.
        if not isinstance(log_wait, int | float) or not 0 <= log_wait <= LONGEST_WAIT:
            warn_once("log_wait", f"log_wait={shown(log_wait)}: give seconds from 0 to {LONGEST_WAIT}")
            log_wait = LOG_WAIT
        try:
            attach = import_module("gpumon.loggers.attach")
            log = attach.epoch_log(log_to, run=described.id, where=places, wait=log_wait)
        except UsageError as error:
            warn_once("log_to", str(error))
        except Exception as error:  # a module that cannot be read
            warn_once("log_to", f"nothing is written to log_to: {type(error).__name__}: {error}")

    if log is not None:
        log.start(board.path)
        begun_run.listener = log
    return begun_run


def _count(name: str, value: object, advice: str) -> int | None:
    """`value` as a number of things; None where it is none, with a warning unless it is None or endless."""
    if value is None or (isinstance(value, float) and value == inf):
        return None
    number = whole(value)
    if number is None or not 0 <= number <= LARGEST:
        warn_once(name, f"{name}={shown(value)}: {advice}, or omit it")
        return None
    return number


def _text(name: str, value: object) -> str:
    """`value` as a text; empty where it is None, or none, with a warning."""
    if value is None:
        return ""
    try:
        return os.fsdecode(value) if isinstance(value, os.PathLike | bytes) else str(value)
    except Exception as error:  # an object of the user's own, that may do anything
        warn_once(name, f"{name}={type(value).__name__}: {type(error).__name__}: {error}")
        return ""


def _path(name: str, value: object) -> str | None:
    """`value` as a path; None where it is None, or none, with a warning."""
    if value is None or isinstance(value, str | bytes | os.PathLike):
        return _text(name, value) or None
    warn_once(name, f"{name}={shown(value)}: give a path, or omit it")
    return None


def _devices(devices: object, env: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """The UUIDs of `devices`, and the numbers of the driver for others as CUDA_VISIBLE_DEVICES has them.

    A framework's own devices are left aside: gpumon finds them by itself. So is anything else, with a warning.
    """
    if isinstance(devices, str) and "," in devices:
        devices = devices.split(",")
    given = devices if isinstance(devices, list | tuple | set | frozenset | range) else (devices,)
    listed = [entry.strip() for entry in env.get(NVIDIA.numbers, "").split(",") if entry.strip()]
    found: list[str] = []
    for device in given if devices is not None else ():
        number = _number(device)
        if type(device).__name__.lower() == "device":
            warn_once("devices", "devices= takes UUIDs such as GPU-8932f937-…: gpumon looks for those of this process")
        elif isinstance(device, str) and device.strip().startswith(IDENTIFIERS):
            found.append(device.strip())
        elif number is not None and number < (len(listed) or LARGEST):
            found.append(listed[number] if listed else str(number))
        else:
            warn_once(
                "devices",
                f"devices={shown(device)}: give numbers, or UUIDs such as GPU-8932f937-… ('{NVIDIA.listing}')",
            )
    uuids = tuple(device for device in found if device.startswith(IDENTIFIERS))
    numbers = [device for device in found if not device.startswith(IDENTIFIERS)]
    visible = ",".join(numbers) or env.get(NVIDIA.numbers, "")
    return uuids, visible if are_numbered_here(env) or visible_uuids(visible) else ""


def _number(device: object) -> int | None:
    """The number of a device: 0, "0" or "cuda:0"; None where it has none."""
    if isinstance(device, str):
        text = device.strip().removeprefix("cuda:")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 5 else None
    number = whole(device)
    return number if number is not None and number >= 0 else None


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0  # Windows, where no board can be made
