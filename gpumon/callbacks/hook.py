"""`Hook`, on which all callbacks are built: a run that begins and ends with the training.

A framework calls callbacks in its own order and from its own threads. It may also pickle, copy or silently drop them. A
`Hook` therefore contains only settings until `begin`, and callbacks catch every exception that its methods raise.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from time import monotonic_ns
from types import FrameType
from typing import Any, ParamSpec, Protocol
from weakref import WeakSet

from gpumon.tracking.active_run import ActiveRun, run
from gpumon.tracking.batch_size import BatchSize
from gpumon.tracking.lifetime import call_at_end_of_cell
from gpumon.tracking.warn import warn_once

_MAX_FRAMES = 64


def frames(function: str) -> Iterator[FrameType]:
    """Yield the stack frames of this thread's functions with the name `function`, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return
        if frame.f_code.co_name == function:
            yield frame
        frame = frame.f_back


def variables(module: str, *functions: str) -> Mapping[str, Any]:
    """Return the local variables of a function of `module` that this thread is running.

    `functions`: names of the functions to look for on the stack. The first one that is found is used. Empty if none is
    found.
    """
    for function in functions:
        for frame in frames(function):
            if frame.f_globals.get("__name__") == module:
                return frame.f_locals
    return {}


def with_loggers(settings: Mapping[str, Any], framework: str, loggers: Sequence[object]) -> dict[str, Any]:
    """Return `settings` with the framework's name in `log_to`, such as "lightning", replaced by `loggers`."""
    log_to = settings.get("log_to")
    targets = list(log_to) if isinstance(log_to, list | tuple) else [log_to]
    if framework not in [target for target in targets if isinstance(target, str)]:
        return {**settings}
    if not loggers:
        warn_once("log_to framework", f"log_to={framework!r}: this training has no logger")
    replaced = [logger for target in targets for logger in (loggers if target == framework else [target])]
    return {**settings, "log_to": replaced or None}


def without_log(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return `settings` for pickling. `log_to` is set to None if it cannot be pickled."""
    import pickle  # most callbacks are never pickled

    try:
        pickle.dumps(settings.get("log_to"))
    except Exception:  # loggers with open files, threads or connections raise various errors
        return {**settings, "log_to": None}
    return {**settings}


P = ParamSpec("P")
_paused: WeakSet[Hook] = WeakSet()
"""Hooks whose training has ended but whose run may still be resumed."""
MAX_EPOCHS = 1_000_000
"""Maximum plausible number of planned epochs. A larger number is ignored, because frameworks use such numbers for
trainings without a limit."""


def guarded(method: Callable[P, object]) -> Callable[P, None]:
    """Wrap `method` so that an exception becomes a single warning and never reaches the training."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(*args, **kwargs)
        except Exception as error:  # monitoring must never fail a training
            warn_failed(method.__qualname__, error)

    return call


def warn_failed(what: str, error: Exception) -> None:
    """Warn once that `what` (the name of a method or phase) failed.

    Methods that run at each step call this function directly instead of being `guarded`. This saves one function call
    per step.
    """
    warn_once(f"callback {what}", f"{what}: {type(error).__name__}: {error}")


class Hook:
    """The settings of a callback and, while a training runs, its run. Pickles and copies do not contain the run."""

    def __init__(self, framework: str, name: str | None = None, **settings: Any) -> None:
        self._framework = framework
        self._name = name
        self._config = settings.pop("config", None)
        self._settings = settings
        self.run: ActiveRun | None = None
        self.is_paused = False
        """Whether the training has ended and an evaluation may continue its run."""

    def begin(
        self, epochs: int | None, base: int, env: Mapping[str, str] | None = None, loggers: Sequence[object] = ()
    ) -> None:
        """Begin a run.

        `epochs`: total number of planned epochs, None if there is no plan. `base`: number of the framework's first
        epoch, 0 or 1. `env`: environment variables, with the ranks that the framework reports added; None for the
        environment of this process. `loggers`: the training's loggers, which replace the framework's name in `log_to`.
        """
        self.end(failed=True, late=True)  # trainings do not overlap, so a run that is still open has failed
        for other in list(_paused):
            other.end()  # runs of earlier trainings can no longer be resumed
        planned = epochs if epochs and 0 < epochs <= MAX_EPOCHS else None
        settings = with_loggers(self._settings, self._framework, loggers)
        self.run = run(self._name, epochs=planned, framework=self._framework, env=env, **settings)
        self.run.describe(base=base)
        if self._config is not None:
            self.run.config(self._config)
        self.run.must_end()
        self._end_with_cell()

    def end(
        self, error: BaseException | None = None, *, failed: bool = False, stopped: bool = False, late: bool = False
    ) -> None:
        """End the run, if there is one.

        `error`: the exception that ended the training, or None. `failed`: whether the training failed even if `error`
        is None. `stopped`: whether the training was stopped early on purpose. `late`: whether the training ended
        earlier, at a time that the framework did not report.
        """
        if self.run is not None:
            run, self.run, self.is_paused = self.run, None, False
            _paused.discard(self)
            cause = error if error is not None or not failed else sys.exc_info()[1]
            run.end(cause, failed=failed, stopped=stopped, late=late)

    def pause(self) -> None:
        """Pause the run. The training has succeeded, but a validation or test that follows belongs to the same run."""
        if self.run is not None:
            self.run.pause()
            self.is_paused = True
            _paused.add(self)

    def resume(self) -> bool:
        """Resume a paused run. Return False if there is no paused run; the caller must then begin a run."""
        if self.run is None or not self.is_paused:
            return False
        self.is_paused = False
        _paused.discard(self)
        self.run.must_end()
        self.run.begin_phase("")
        self._end_with_cell()
        return True

    def _end_with_cell(self) -> None:
        """End the run as failed or interrupted if its training has not ended by the end of the notebook cell.

        A paused run is not ended, because an evaluation in a later cell may continue it.
        """
        reference = weakref.ref(self)

        def end(error: BaseException | None) -> None:
            hook = reference()
            if hook is not None and not hook.is_paused:
                hook.end(error, failed=True)

        call_at_end_of_cell(end)

    def plan(self, steps: object) -> None:
        """Publish the planned number of steps of the whole run. An invalid number is ignored."""
        if self.run is not None:
            self.run.plan(steps=steps)

    def config(self, values: Mapping[str, object]) -> None:
        """Store the framework's parameters with the run. Parameters with the value None are left out."""
        if self.run is not None:
            self.run.framework_config({name: value for name, value in values.items() if value is not None})

    def begin_epoch(self, number: int) -> None:
        if self.run is not None:
            self.run.begin_epoch(number)

    def end_epoch(self) -> None:
        if self.run is not None:
            self.run.end_epoch()

    def phase(self, name: str) -> str:
        """Begin the phase `name` and return the previous one."""
        return self.run.begin_phase(name) if self.run is not None else ""

    def batch_of(self, loader: object, times: int = 1) -> None:
        """Publish the number of samples per step. A step has `times` batches of `loader`."""
        if self.run is not None:
            self.run.batch_of(loader, times)

    def set_batch_size(self, size: BatchSize) -> None:
        """Publish the number of samples per step."""
        if self.run is not None:
            self.run.set_batch_size(size)

    def at_step(self, step: int, since: int = 0) -> None:
        """Set the number of steps done so far.

        `since`: start of a wait for data that has just ended (ns, from `monotonic_ns`); 0 if there was none.
        """
        if self.run is not None:
            self.run.at_step(step, since)

    def skip_to_step(self, step: int) -> None:
        """Set the number of steps done so far, without times for the single steps."""
        if self.run is not None:
            self.run.skip_to_step(step)

    def waited(self, nanoseconds: int) -> None:
        """Add a wait for data of this duration."""
        if self.run is not None:
            self.run.waited(nanoseconds)

    def waited_since(self, since: int) -> None:
        """Add a wait for data that began at `since` (ns, from `monotonic_ns`) and ends now. 0 means no wait."""
        if self.run is not None and since:
            self.run.waited(monotonic_ns() - since)

    def wait_unknown(self) -> None:
        """Mark the wait for data as not measured, because this callback cannot measure it."""
        if self.run is not None:
            self.run.wait_unknown()

    def log(self, metrics: Mapping[str, object]) -> None:
        if self.run is not None:
            self.run.log(metrics)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "run": None, "is_paused": False, "_settings": without_log(self._settings)}

    def __del__(self) -> None:
        # The callback was dropped before its training ended. This happens because some frameworks do not report
        # exceptions to callbacks. An exception that is being handled now is not the one of the training, whose
        # traceback would keep the callback alive. At the end of the process, the run has already been ended, and this
        # module may have been unloaded.
        run = getattr(self, "run", None)
        if run is not None and run.on:
            self.run = None
            run.end(None, failed=True, late=True)


CHECKPOINT = "checkpoint"
Phase = Callable[[str], str]
"""A function that begins a phase and returns the previous one."""


def in_phase(method: Callable[..., Any], get_phase: Callable[[Any], Phase | None], name: str) -> Callable[..., Any]:
    """Wrap `method` of a class so that each call is recorded as the phase `name`.

    `get_phase(self)` returns the function that begins a phase, or None if there is no run.
    """

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        phase, previous = None, ""
        try:
            phase = get_phase(self)
            previous = phase(name) if phase is not None else ""
        except Exception as error:  # monitoring must never fail a checkpoint
            phase = None
            warn_failed(name, error)
        try:
            return method(self, *args, **kwargs)
        finally:
            if phase is not None:
                restore_phase(phase, previous)

    return call


class Monitor(Protocol):
    """A callback whose training may end with an exception."""

    def end_with_error(self, error: BaseException) -> None: ...


def reporting(method: Callable[..., Any], monitors: Callable[[Any], Iterable[Monitor]]) -> Callable[..., Any]:
    """Wrap `method` of a class so that an exception in it also ends the runs of the monitors of the training.

    `monitors(self)` returns these monitors. Used for frameworks that do not report exceptions to callbacks.
    """

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except BaseException as error:
            for monitor in monitors(self):
                monitor.end_with_error(error)
            raise

    return call


def restore_phase(phase: Phase, previous: str) -> None:
    """Return to the phase `previous`. Never raises."""
    try:
        phase(previous)
    except Exception as error:
        warn_failed(previous, error)
