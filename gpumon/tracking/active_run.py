"""`gpumon.run`: publishes the epochs, phases and steps of a hand-written training loop.

    with gpumon.run("resnet50", epochs=90) as run:
        for epoch in run.epochs():
            for batch in run.steps(loader):
                ...
            with run.phase("validate"):
                ...
            run.log(loss=loss, accuracy=accuracy)

Nothing here raises, waits, or uses a GPU, because it must never disturb the training. An invalid argument is ignored
with a warning. Numbers may be of any numeric type.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from importlib import import_module
from itertools import count
from math import inf
from numbers import Integral
from operator import index
from threading import get_ident
from time import monotonic_ns
from types import FunctionType, TracebackType
from typing import Any, ParamSpec, TypeVar, cast, overload

from gpumon.common import paths
from gpumon.common.errors import UsageError
from gpumon.model import rocm_devices
from gpumon.model.run import LARGEST, RunFacts
from gpumon.model.vendors import AMD, IDENTIFIERS, NVIDIA
from gpumon.tracking import context, stack_dump
from gpumon.tracking.board import Board
from gpumon.tracking.context import default_name, detect_framework, find_devices, has_driver_numbers, visible_uuids
from gpumon.tracking.data_wait import Steps
from gpumon.tracking.description import Description
from gpumon.tracking.lifetime import call_at_end_of_cell, code_of, keep, was_left_by_exception
from gpumon.tracking.logged_values import number_of, whole
from gpumon.tracking.metadata import RunMetadata, metadata_of
from gpumon.tracking.run_tags import AT_ONCE, RunTags, UnclosedEpoch
from gpumon.tracking.warn import shown, warn_once

T = TypeVar("T")
P = ParamSpec("P")


class ActiveRun(RunTags):
    """A run that has been started. Its methods may be called from several threads, and the last call takes effect.

    The run belongs to the process that started it. In a forked child, and after copying or unpickling, the object does
    nothing. A program that forks to become a daemon must start its run after the fork.
    """

    def __init__(
        self,
        board: Board,
        epochs: int | None = None,
        find_devices: Callable[[], tuple[str, ...]] | None = None,
        restart: Callable[[], ActiveRun] | None = None,
        metadata: RunMetadata | None = None,
    ) -> None:
        super().__init__(board, find_devices, metadata)
        self._restart = restart
        self._planned = epochs
        self._logged_step = 0
        """Newest step passed to `log(step=…)`. If nothing else counts steps, it is the step count of the run."""

    @overload
    def epochs(self, over: int | None = None, *, start: int = 0) -> Iterator[int]: ...
    @overload
    def epochs(self, over: Iterable[T], *, start: int = 0) -> Iterator[T]: ...
    def epochs(self, over: Iterable[T] | int | None = None, *, start: int = 0) -> Iterator[T] | Iterator[int]:
        """Iterate over the epochs, and record when each begins and ends, even if the loop is left early.

        `over` is the total number of epochs, or an iterable. Without `over`, epochs are counted up to the `epochs`
        passed to `gpumon.run`, or without end if none was passed. `start` is the number of the first epoch. After a
        resume, pass the first epoch that is still to be done. If the items of an iterable are integers, they are the
        epoch numbers. Other items are numbered from `start`. As in a plain `for` loop, exceptions of the iterable are
        not caught, and a number like 2.5 raises TypeError.
        """
        first = whole(start)
        if first is None:
            warn_once("start", f"run.epochs(start={shown(start)}): not an epoch number")
            first = 0
        if over is None:
            last = self._planned
        elif isinstance(over, float) and over == inf:
            last = None
        elif (last := _epoch_count(over)) is None:
            return self._epochs(cast("Iterable[T]", over), first)
        elif last != self._board.description.epochs:
            self._board.describe(epochs=_count("epochs", max(0, last), _EPOCHS) or 0)
        return self._epochs(count(first) if last is None else range(first, last), first)

    def _epochs(self, over: Iterable[T], start: int) -> Iterator[T]:
        for number, item in enumerate(over, start):
            opened = self._begin_epoch(_epoch_number(item, number))
            loop = code_of(sys._getframe().f_back)
            try:
                yield item
            except GeneratorExit:
                if not self.on:
                    raise  # at the end of the process, when this module may already be unloaded
                self._board.is_left = left = self._is_within_epoch()
                is_raised = not self._is_complete() and was_left_by_exception(sys._getframe().f_back, loop)
                self._end_epoch(opened, aborted=left)
                if not left:  # seems to be the end of the epoch, but the end of the run may show that it was left early
                    self._unclosed = UnclosedEpoch(self._board.events, monotonic_ns())
                    self._board.raised = (self._unclosed.event, self._unclosed.at_ns) if is_raised else None
                raise
            self._end_epoch(opened)

    @contextmanager
    def epoch(self, number: int) -> Iterator[None]:
        """Record the body of a `with` statement as epoch `number`, for a loop that counts its epochs itself."""
        opened = self._begin_epoch(number)
        try:
            yield
        except BaseException as error:
            self._board.is_left = isinstance(error, SystemExit)
            self._end_epoch(opened, aborted=True)
            raise
        # The loader of the last epoch is not checked, because the run always ends right after that epoch.
        is_last = self._board.epoch + 1 >= self._board.description.epochs
        is_short = self._is_short() or (not is_last and self._is_within_epoch())
        self._end_epoch(opened)
        if is_short:  # if the run ends next, the epoch was left by `return` or `break`
            self._unclosed = UnclosedEpoch(self._board.events, monotonic_ns(), is_short)

    def steps(self, loader: Iterable[T]) -> Steps[T]:
        """Iterate over `loader`. Each batch counts as a step, and the time spent waiting for it is measured.

        The returned iterable has the same `len()` as the loader. Exceptions of the loader are not caught. Steps are
        counted over the whole run. If two loaders are zipped, each pair counts as one step.
        """
        if not self._has_read_workers or not self._board.description.facts.batch:
            self.batch_of(loader)
        return Steps(self, loader)

    def step(self, steps: int = 1) -> None:
        """Count `steps` steps in a loop that does not use `steps()`.

        Inside a loop over `steps()`, this does nothing.
        """
        if self._loaders and get_ident() in self._loaders:
            warn_once("steps", "run.step() has no effect in a loop over run.steps(…), which already counts the batches")
            return
        increment = whole(steps)
        if increment is not None and 0 <= increment <= LARGEST:
            self._board.steps += increment
        else:
            warn_once("step", f"run.step({shown(steps)}): not a number of steps")
        if (now := monotonic_ns()) >= self._due:
            self._at_due(now)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record the body of a `with` statement as phase `name`, such as validate, test or checkpoint.

        After the statement, the previous phase continues.
        """
        previous = self.begin_phase(name)
        try:
            yield
        finally:
            left = self._left_loader
            was_left_now = left is not None and left.event == self._board.events and self._fewest > 0
            self.begin_phase(previous)
            if left is not None and was_left_now:  # ending this phase does not mean that the epoch continues
                self._left_loader = left._replace(event=self._board.events)

    def log(self, metrics: Mapping[str, object] | None = None, /, *args: object, **named: object) -> None:
        """Log numbers by name. They are shown with the run and stored with the current epoch.

        Up to 8 names are used: those chosen with `metrics=` of `gpumon.run`, or else the most informative ones. For
        each name, an epoch stores the last value. A chart over time also shows the last value at each point. `log`
        never waits for a CUDA tensor, so the value of a tensor appears at a later step or log. `step=` is the number of
        steps done so far. As in other loggers, it may also be the second positional argument. A run without epochs
        stores the values with the range of steps that contains this step, by default with the newest range. If the loop
        uses neither `steps()` nor `step()`, this number also becomes the step count of the run.
        """
        self._log_arrived()
        step_argument = named.pop("step", args[0] if args else None)
        mapping = dict(metrics) if isinstance(metrics, Mapping) else {}
        if metrics is not None and not isinstance(metrics, Mapping):
            warn_once("log", f"run.log({type(metrics).__name__}): give names, such as run.log(loss=loss)")
        step = self._step_of_log(step_argument) if self.on else 0
        known: dict[str, float] = {}
        for name, value in {**mapping, **named}.items():
            number = number_of(str(name), value) if self.on else None
            if isinstance(number, float):
                self._pending.forget(str(name))
                known[str(name)] = number
            elif number is not None:
                self._pending.add(str(name), number, self._board.epoch, self._rows.end_of(step))
        if known and step:
            self._log_step(known, step)
        elif known:
            self._board.log(known)

    def _step_of_log(self, step_argument: object) -> int:
        """Return the step to which logged numbers belong; 0 if they belong to no step.

        `step_argument`: as passed to `log`.
        """
        board, step = self._board, None if step_argument is None else whole(step_argument)
        if step_argument is not None and (step is None or not 0 <= step <= LARGEST):
            warn_once("log step", f"run.log(step={shown(step_argument)}): not a number of steps")
            step = None
        if step is not None and self._logged_step <= step <= LARGEST and board.steps == self._logged_step:
            self._logged_step = board.steps = step  # no other call counts the steps of this loop
            if (now := monotonic_ns()) >= self._due:
                self._at_due(now)
        if self._first is not None or board.trained or not board.steps:
            return 0
        if board.steps > self._rows.next:
            self._mark_rows(monotonic_ns())  # earlier numbers belong to earlier rows
        return board.steps if step is None else min(max(1, step), board.steps)

    def finish(self, *, failed: bool = False) -> None:
        """End the run.

        If a KeyboardInterrupt is being handled, the run counts as interrupted. A second call does nothing.

        If another exception ended an epoch early and is being handled now, the run counts as stopped. Only a `with`
        statement can tell whether such an exception is a failure.
        """
        error = sys.exc_info()[1]
        if failed or isinstance(error, KeyboardInterrupt):
            self.end(error, failed=failed)
        else:
            is_left = self.has_left_epoch()
            if self._epoch is not None and self._is_in_steps():
                self._end_epoch(self._epoch, aborted=True)
            self.end(stopped=error is not None and is_left)

    def has_left_epoch(self) -> bool:
        """Return whether an epoch is open, or was left before its end."""
        return self._board.is_left or self._epoch is not None or self._left_epoch_just_now()

    def stop(self) -> None:
        """End the run early on purpose, for example when a trial is pruned. It counts as stopped, not as failed."""
        if self._epoch is not None and self._is_complete():
            self._end_epoch(self._epoch)
        self.end(stopped=True)

    def _is_short(self) -> bool:
        """Whether all earlier epochs had the same number of steps and the open epoch has fewer."""
        return self._is_even and 0 < self._board.steps - self._epoch_step < self._fewest

    def _is_within_epoch(self) -> bool:
        """Whether the number of steps suggests that the loop of the open epoch was left before its last batch."""
        steps = self._board.steps - self._epoch_step
        if not self._has_loader:
            return 0 < steps < self._fewest
        if self._fewest and steps >= self._fewest:
            return False  # earlier epochs had no more steps
        left = self._left_loader
        return left is not None and left.event == self._board.events and monotonic_ns() - left.at_ns < AT_ONCE

    def _is_complete(self) -> bool:
        """Whether the steps of the open epoch show that it is complete. False if nothing counts its steps."""
        if self._has_loader:
            return not self._is_within_epoch() and not self._is_in_steps()
        return 0 < self._fewest <= self._board.steps - self._epoch_step

    def _is_in_steps(self) -> bool:
        """Whether this thread is in a loop over batches and the open epoch has fewer steps than every earlier epoch."""
        steps = self._board.steps - self._epoch_step
        return get_ident() in self._loaders and not 0 < self._fewest <= steps

    def __enter__(self) -> ActiveRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(error)

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        """Decorate `function` so that each call is a separate run.

        The run of this object itself is withdrawn, as if it had never begun.
        """
        self._board.close(withdrawn=True)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            with self._restart() if self._restart is not None else self:
                return function(*args, **kwargs)

        return call

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing():
            return  # this module may already be unloaded
        board = getattr(self, "_board", None)
        if board is not None and board.on and board.events == 1 and not board.steps and not board.must_end:
            # The result of `gpumon.run` was not kept. The run is meant to last for the rest of the program.
            warn_once(
                "kept",
                f"write 'run = gpumon.run(…)': {self.name!r} was not assigned to a variable, so its epochs cannot be "
                f"recorded",
            )
            keep(board)

    def __reduce__(self) -> tuple[Callable[..., ActiveRun], tuple[Description, int | None, int]]:
        return _unpickle, (self._board.description, self._planned, self._board.steps)


for _method in (*vars(RunTags).values(), *vars(ActiveRun).values()):
    if isinstance(_method, FunctionType):
        # If this is called within a tf.function, AutoGraph would convert it, or warn that it cannot. AutoGraph marks
        # its own code with this attribute, too:
        # https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/python/autograph/impl/api.py
        _method.autograph_info__ = None  # type: ignore[attr-defined]


def _epoch_count(over: Any) -> int | None:
    """Return `over` as a number of epochs; None if it is an iterable. Raises an error if `range(over)` would."""
    number = whole(over)
    if number is not None or (_is_iterable(over) and not _is_scalar_array(over)):
        return number
    try:
        return index(over)
    except TypeError as error:
        raise TypeError(f"run.epochs(over={shown(over)}): give a number of epochs or an iterable ({error})") from None


def _is_iterable(value: object) -> bool:
    return hasattr(type(value), "__iter__") or hasattr(type(value), "__getitem__")


def _is_scalar_array(value: object) -> bool:
    """Whether `value` is an array or tensor with a single number.

    Such a value is not iterable, although its class is.
    """
    try:
        return getattr(value, "shape", None) == ()
    except Exception:  # reading an attribute of a user's object may raise anything
        return False


def _epoch_number(item: object, default: int) -> int:
    """Return `item` as an epoch number if it is an integer, else `default`."""
    number = whole(item) if isinstance(item, Integral) else None
    return default if number is None else number


def _unpickle(description: Description, epochs: int | None, step: int) -> ActiveRun:
    """Return the object that an unpickled run becomes. It counts steps and yields items, but publishes nothing."""
    copy = ActiveRun(Board(None, description), epochs)
    copy._board.steps = step
    return copy


LOG_WAIT = 3.0
"""Default of `log_wait`: maximum seconds to wait at the end of a run for the values of its last epochs."""
LONGEST_WAIT = 3600
_EPOCHS = f"give a number from 0 to {LARGEST}"
_starts: Counter[str] = Counter()
"""For each name, the number of runs that this process has started. The number is part of the id of a run. Names are
counted separately, because a run that only rank 0 starts must not shift the numbers of other runs."""


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
    """Start a run. gpumon then shows this training and assigns GPU samples to its epochs, steps and phases.

    Use it as a context manager, as a decorator (each call of the function is a run), or keep the returned object and
    call `finish()` at the end.

    `name` defaults to the name of the script or notebook. `epochs` and `steps` are the planned numbers, with `steps`
    counted over the whole run. `batch` is the number of samples per step of this process, and is needed only if the
    loader has no batch size. `devices` are UUIDs (`GPU-…`, `MIG-…`) or CUDA's device numbers in this process, and are
    needed only if gpumon cannot find them. `tags` are words to find the run by. `metrics` are the names of logged
    numbers to show, or patterns such as `rewards/*`; the default is the eight most informative ones. `run_id` is shared
    by all ranks of a run and comes from the launcher by default.

    `log_to` says where gpumon writes its measurements of each epoch: "tensorboard", "wandb", "mlflow", "csv:PATH", a
    logger, a function of a dict and the epoch's number, or a list of these (docs/train/loggers.md). At the end of the
    run, gpumon waits at most `log_wait` seconds for the values of the last epochs.

    Raises nothing: an invalid argument is ignored with a warning, and if the run cannot be published, the returned
    object works but publishes nothing. Only an unknown argument name raises TypeError, as for any Python function.
    """
    try:
        return _start(
            name, epochs=epochs, steps=steps, devices=devices, framework=framework, batch=batch, tags=tags,
            metrics=metrics, run_id=run_id, log_to=log_to, log_wait=log_wait, directory=directory, env=env,
        )  # fmt: skip
    except Exception as error:  # no free descriptor, or an unreadable module; the training continues without a run
        warn_once("run", f"this training will not show in gpumon: {type(error).__name__}: {error}")
        return ActiveRun(Board(None, Description(name="run", id="run")), whole(epochs))


def _start(
    name: object, *, epochs: object, steps: object, devices: Any, framework: object, batch: object, tags: Any,
    metrics: Any, run_id: object, log_to: object, log_wait: float, directory: object, env: Mapping[str, str] | None,
) -> ActiveRun:  # fmt: skip
    planned = _count("epochs", epochs, _EPOCHS)
    planned_steps = _count("steps", steps, f"give a number from 0 to {LARGEST}")
    samples = _count("batch", batch, "give the number of samples per step")
    if env is None or not isinstance(env, Mapping):
        env = os.environ
    uuids, visible = _parse_devices(devices, env)
    name = _text("name", name) or default_name(sys.argv, env, vars(sys.modules["__main__"]))
    run_id, path = _text("run_id", run_id), _path("directory", directory)
    if framework is not None:
        framework = _text("framework", framework) or ""
    rank, earlier = context.detect_rank(env, sys.modules), _starts[name]
    _starts[name] += 1

    def places() -> paths.Places:
        return paths.places(path, env=env)

    def devices_in_use() -> tuple[str, ...]:
        return uuids or find_devices(sys.modules, env, alone=rank.world_size == 1)

    description = Description(
        name=name,
        id=context.attempt_id(
            run_id or context.run_id(name, rank, earlier, context.parent_identity(starter=rank.starter), _user()),
            rank.attempt,
        ),
        framework=framework if framework is not None else detect_framework(sys.modules),
        rank=rank.rank,
        local_rank=rank.local_rank,
        world_size=max(1, rank.world_size),
        devices=devices_in_use(),
        visible=visible,
        order=rocm_devices.ORDER if context.uses_rocm(sys.modules) else env.get(NVIDIA.order[0], ""),
        epochs=planned or 0,
        facts=RunFacts(
            batch=samples or 0,
            planned_steps=planned_steps or 0,
            job=env.get("SLURM_JOB_ID", ""),
            time_limit=context.time_limit(env),
        ),
    )

    def restart() -> ActiveRun:
        return run(
            name, epochs=planned, steps=planned_steps, devices=devices, framework=framework, batch=samples,
            tags=tags, metrics=metrics, run_id=run_id or None, log_to=log_to, log_wait=log_wait, directory=path,
            env=env,
        )  # fmt: skip

    board = Board(lambda: paths.tag_dir_for_client(places()), description)
    patterns = (metrics,) if isinstance(metrics, str) else metrics
    if isinstance(patterns, list | tuple | set | frozenset) and all(isinstance(name, str) for name in patterns):
        board.chosen = tuple(patterns)
    else:
        warn_once("chosen", f"metrics={shown(metrics)}: give names of metrics, or omit it")
    metadata = metadata_of(board, env, rank.local_rank)
    metadata.start()
    metadata.tag(tags if isinstance(tags, list | tuple | set | frozenset) else (tags,))
    active_run = ActiveRun(board, planned, devices_in_use, restart, metadata)
    active_run.finds_framework = framework is None
    if board.on:
        stack_dump.prepare()
    if log_to is not None and rank.rank == 0 and board.on:
        _attach_loggers(active_run, log_to, log_wait, places)
    call_at_end_of_cell(partial(_end_if_interrupted, weakref.ref(active_run)))
    return active_run


def _end_if_interrupted(reference: weakref.ref[ActiveRun], error: BaseException | None) -> None:
    """End a run if the stop button of a notebook interrupted the cell that started it, in the middle of an epoch.

    Without a `with` statement, the run cannot see the exception itself.
    """
    active_run = reference()
    if active_run is not None and isinstance(error, KeyboardInterrupt) and active_run.has_left_epoch():
        active_run.end(error)


def _attach_loggers(active_run: ActiveRun, log_to: object, log_wait: float, places: Callable[[], paths.Places]) -> None:
    """Write the values of each epoch of the run to `log_to`."""
    if not isinstance(log_wait, int | float) or not 0 <= log_wait <= LONGEST_WAIT:
        warn_once("log_wait", f"log_wait={shown(log_wait)}: give seconds from 0 to {LONGEST_WAIT}")
        log_wait = LOG_WAIT
    try:
        # Imported only here, because this module imports the ledger, which a training without loggers must not load.
        registry = import_module("gpumon.loggers.registry")
        log = registry.epoch_log(log_to, run=active_run.id, places=places, wait=log_wait)
    except UsageError as error:
        warn_once("log_to", str(error))
    except Exception as error:  # such as an unreadable module
        warn_once("log_to", f"nothing is written to log_to: {type(error).__name__}: {error}")
    else:
        log.start(active_run._board.path)
        active_run.listener = log


def _count(name: str, value: object, advice: str) -> int | None:
    """Return `value` as a count; None if it is None or infinite. Anything else gives a warning and None."""
    if value is None or (isinstance(value, float) and value == inf):
        return None
    number = whole(value)
    if number is None or not 0 <= number <= LARGEST:
        warn_once(name, f"{name}={shown(value)}: {advice}, or omit it")
        return None
    return number


def _text(name: str, value: object) -> str:
    """Return `value` as text; empty if it is None. If the conversion fails, warns and returns an empty text."""
    if value is None:
        return ""
    try:
        return os.fsdecode(value) if isinstance(value, os.PathLike | bytes) else str(value)
    except Exception as error:  # converting a user's object may raise anything
        warn_once(name, f"{name}={type(value).__name__}: {type(error).__name__}: {error}")
        return ""


def _path(name: str, value: object) -> str | None:
    """Return `value` as a path; None if it is None. If it is not a path, warns and returns None."""
    if value is None or isinstance(value, str | bytes | os.PathLike):
        return _text(name, value) or None
    warn_once(name, f"{name}={shown(value)}: give a path, or omit it")
    return None


def _parse_devices(devices: object, env: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    """Return the UUIDs in `devices`, and its device numbers in the form of CUDA_VISIBLE_DEVICES.

    Without numbers in `devices`, the second text is CUDA_VISIBLE_DEVICES of `env`, or empty if the numbers in that
    variable are not the driver's. Anything else in `devices` is ignored with a warning. This includes device objects of
    a framework, because gpumon finds those devices itself.
    """
    if isinstance(devices, str) and "," in devices:
        devices = devices.split(",")
    items = devices if isinstance(devices, list | tuple | set | frozenset | range) else (devices,)
    is_rocm = context.uses_rocm(sys.modules)
    all_visible = rocm_devices.rocm_visible_devices(env) if is_rocm else env.get(NVIDIA.numbers, "")
    listed = [entry.strip() for entry in all_visible.split(",") if entry.strip()]
    parsed: list[str] = []
    for device in items if devices is not None else ():
        number = _number(device)
        if type(device).__name__.lower() == "device":
            warn_once("devices", "devices= takes UUIDs such as GPU-8932f937-…: gpumon finds the devices by itself")
        elif isinstance(device, str) and device.strip().startswith(IDENTIFIERS):
            parsed.append(device.strip())
        elif number is not None and number < (len(listed) or LARGEST):
            parsed.append(listed[number] if listed else str(number))
        else:
            warn_once(
                "devices",
                f"devices={shown(device)}: give numbers, or UUIDs such as GPU-8932f937-… ('{NVIDIA.listing}')",
            )
    uuids = tuple(device for device in parsed if device.startswith(IDENTIFIERS))
    numbers = [device for device in parsed if not device.startswith(IDENTIFIERS)]
    visible = ",".join(numbers) or all_visible
    has_numbers = has_driver_numbers(env, AMD.numbers if is_rocm else NVIDIA.numbers)
    return uuids, visible if has_numbers or visible_uuids(visible) else ""


def _number(device: object) -> int | None:
    """Return the number of a device given as 0, "0" or "cuda:0"; None if `device` is no such value."""
    if isinstance(device, str):
        text = device.strip().removeprefix("cuda:")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 5 else None
    number = whole(device)
    return number if number is not None and number >= 0 else None


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0  # on Windows, where boards are not supported
