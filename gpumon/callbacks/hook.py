"""The base of all callbacks: a run that begins and ends with the training.

A framework calls its callbacks in its own order and its own threads, pickles them, copies them, and
may drop them silently. So a `Hook` holds nothing but settings until `begin`, and no
method of it ever raises into the training.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from time import monotonic_ns
from types import FrameType
from typing import Any, ParamSpec, Protocol
from weakref import WeakSet

from gpumon.tracking.active_run import ActiveRun, run
from gpumon.tracking.loader import BatchSize
from gpumon.tracking.warn import warn_once

_DEEPEST = 64
"""Frames that are looked at."""


def frames(function: str) -> Iterator[FrameType]:
    """The frames of functions called `function` that run in this thread, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_DEEPEST):
        if frame is None:
            return
        if frame.f_code.co_name == function:
            yield frame
        frame = frame.f_back


def variables(module: str, *functions: str) -> Mapping[str, Any]:
    """The variables of the innermost of `functions` of `module` that runs in this thread; empty without one."""
    for function in functions:
        for frame in frames(function):
            if frame.f_globals.get("__name__") == module:
                return frame.f_locals
    return {}


class Ends(Protocol):
    """A hook, which must end with the cell unless its training is over."""

    @property
    def rests(self) -> bool: ...
    def end(self, error: BaseException | None = None, *, failed: bool = False) -> None: ...


def end_with_cell(hook: Ends) -> None:
    """End `hook` as failed or interrupted when the cell that runs now is over, if its training is not over by then.

    One that rests is left alone: an evaluation in a later cell belongs to its run.

    Nothing happens outside of IPython, and in other threads than the one that runs cells: they outlive them.
    """
    shell = _shell()
    if shell is None or threading.current_thread() is not threading.main_thread():
        return
    held = weakref.ref(hook)

    def over(result: Any = None) -> None:
        shell.events.unregister("post_run_cell", over)
        left = held()
        if left is not None and not left.rests:
            left.end(getattr(result, "error_in_exec", None), failed=True)

    shell.events.register("post_run_cell", over)


def _shell() -> Any:
    interactive = sys.modules.get("IPython")
    return interactive.get_ipython() if interactive is not None else None


def with_loggers(settings: Mapping[str, Any], framework: str, loggers: Sequence[object]) -> dict[str, Any]:
    """Return `settings` in which the framework's own `loggers` stand for its name, such as `log_to="lightning"`."""
    given = settings.get("log_to")
    several = list(given) if isinstance(given, list | tuple) else [given]
    if framework not in [one for one in several if isinstance(one, str)]:
        return {**settings}
    if not loggers:
        warn_once("log_to framework", f"log_to={framework!r}: this training has no logger")
    own = [logger for one in several for logger in (loggers if one == framework else [one])]
    return {**settings, "log_to": own or None}


def without_log(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return `settings` without a `log_to` that cannot be pickled: a callback goes to other processes without it."""
    import pickle  # most callbacks go nowhere

    try:
        pickle.dumps(settings.get("log_to"))
    except Exception:  # whatever a logger raises: an open file, a thread, a connection
        return {**settings, "log_to": None}
    return {**settings}


P = ParamSpec("P")
_resting: WeakSet[Hook] = WeakSet()
"""Hooks whose training is over, and whose run may continue."""
MOST_EPOCHS = 1_000_000
"""More than anybody plans."""


def guarded(method: Callable[P, object]) -> Callable[P, None]:
    """`method`, whose failure is a single warning and never the training's."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(*args, **kwargs)
        except Exception as error:  # a tag is never worth a training
            failed(method.__qualname__, error)

    return call


def failed(what: str, error: Exception) -> None:
    """Warn, once, of what failed in `what`. Hooks of each step call it themselves: one call less for each."""
    warn_once(f"callback {what}", f"{what}: {type(error).__name__}: {error}")


class Hook:
    """Settings of a callback, and the run while there is one. Pickles and copies without the run."""

    def __init__(self, framework: str, name: str | None = None, **settings: Any) -> None:
        self._framework = framework
        self._name = name
        self._config = settings.pop("config", None)
        self._settings = settings
        self.run: ActiveRun | None = None
        self.rests = False
        """Whether the training is over, and its run may continue with an evaluation."""

    def begin(
        self, epochs: int | None, base: int, env: Mapping[str, str] | None = None, loggers: Sequence[object] = ()
    ) -> None:
        """A training of `epochs` in all begins; its framework counts them from `base` (0 or 1).

        `env`: the environment, where the framework knows more of its ranks than stands there. `loggers`: those of the
        training, for which `log_to` has the framework's name.
        """
        self.end(failed=True, late=True)  # no framework begins a second before the first has ended as it should
        for other in list(_resting):
            other.end()  # nothing follows it any more
        # A framework that trains until it is stopped plans as many as fit into an integer.
        planned = epochs if epochs and 0 < epochs <= MOST_EPOCHS else None
        settings = with_loggers(self._settings, self._framework, loggers)
        self.run = run(self._name, epochs=planned, framework=self._framework, env=env, **settings)
        self.run.describe(base=base)
        if self._config is not None:
            self.run.config(self._config)
        self.run.must_end()
        end_with_cell(self)

    def end(
        self, error: BaseException | None = None, *, failed: bool = False, stopped: bool = False, late: bool = False
    ) -> None:
        """The training is over, by `error` where it is known; without one nothing happens.

        `stopped`: before its end, on purpose; `late`: some time ago, as its framework reported nothing.
        """
        if self.run is not None:
            ended, self.run, self.rests = self.run, None, False
            _resting.discard(self)
            known = error if error is not None or not failed else sys.exc_info()[1]
            ended.end(known, failed=failed, stopped=stopped, late=late)

    def rest(self) -> None:
        """The training is over, and well; a validation or test that follows is of the same run."""
        if self.run is not None:
            self.run.pause()
            self.rests = True
            _resting.add(self)

    def goes_on(self) -> bool:
        """Whether a run rests, which now continues; else one must begin."""
        if self.run is None or not self.rests:
            return False
        self.rests = False
        _resting.discard(self)
        self.run.must_end()
        self.run.begin_phase("")
        end_with_cell(self)
        return True

    def plan(self, steps: object) -> None:
        """The training plans so many steps over the whole run; what is no number of steps is left aside."""
        if self.run is not None:
            self.run.plan(steps=steps)

    def config(self, known: Mapping[str, object]) -> None:
        """Keep parameters that the framework knows; None stands for one that it does not."""
        if self.run is not None:
            self.run.framework_config({name: value for name, value in known.items() if value is not None})

    def begin_epoch(self, number: int) -> None:
        if self.run is not None:
            self.run.begin_epoch(number)

    def end_epoch(self) -> None:
        if self.run is not None:
            self.run.end_epoch()

    def phase(self, name: str) -> str:
        """`name` begins; gives the phase before."""
        return self.run.begin_phase(name) if self.run is not None else ""

    def batch_of(self, loader: object, times: int = 1) -> None:
        """A step takes `times` batches of `loader`."""
        if self.run is not None:
            self.run.batch_of(loader, times)

    def set_batch_size(self, size: BatchSize) -> None:
        """A step has so many samples."""
        if self.run is not None:
            self.run.set_batch_size(size)

    def at_step(self, step: int, since: int = 0) -> None:
        """The training has come to `step`; `since` when it waited for data (ns, `monotonic_ns`), unless 0."""
        if self.run is not None:
            self.run.at_step(step, since)

    def skip_to_step(self, step: int) -> None:
        """The training has made `step` steps; when each was made is unknown."""
        if self.run is not None:
            self.run.skip_to_step(step)

    def waited(self, nanoseconds: int) -> None:
        """So long did the training wait for data."""
        if self.run is not None:
            self.run.waited(nanoseconds)

    def waited_since(self, since: int) -> None:
        """The training has waited for data since `since` (ns, `monotonic_ns`)."""
        if self.run is not None and since:
            self.run.waited(monotonic_ns() - since)

    def wait_unknown(self) -> None:
        """Mark the wait for data as unknown: it cannot be measured from here."""
        if self.run is not None:
            self.run.wait_unknown()

    def log(self, metrics: Mapping[str, object]) -> None:
        if self.run is not None:
            self.run.log(metrics)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "run": None, "rests": False, "_settings": without_log(self._settings)}

    def __del__(self) -> None:
        # A callback that is dropped with its training, which did not come to its end: some say nothing of an exception.
        # After the end of the process there is nothing left to end, and this module may be gone.
        run = getattr(self, "run", None)
        if run is not None and run.on:
            self.end(failed=True, late=True)


CHECKPOINT = "checkpoint"
Phase = Callable[[str], str]
"""Begins a phase; gives the one before."""


def marked(method: Callable[..., Any], phase_of: Callable[[Any], Phase | None], name: str) -> Callable[..., Any]:
    """`method` of a class, in the phase `name` of what `phase_of` gives for its object; None: there is no run."""

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        phase, before = None, ""
        try:
            phase = phase_of(self)
            before = phase(name) if phase is not None else ""
        except Exception as error:  # a tag is never worth a checkpoint
            phase = None
            failed(name, error)
        try:
            return method(self, *args, **kwargs)
        finally:
            if phase is not None:
                _back(phase, before)

    return call


def _back(phase: Phase, before: str) -> None:
    try:
        phase(before)
    except Exception as error:
        failed(before, error)
