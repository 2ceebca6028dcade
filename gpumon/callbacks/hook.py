"""The base of all callbacks: a run that begins and ends with the training.

A framework calls its callbacks in its own order and its own threads, pickles them, copies them, and
may drop them silently. So a `Hook` holds nothing but settings until `begin`, and no
method of it ever raises into the training.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from time import monotonic_ns
from typing import Any, ParamSpec
from weakref import WeakSet

from gpumon.callbacks.cell import end_with_cell
from gpumon.callbacks.log_to import with_loggers, without_log
from gpumon.tracking.active_run import ActiveRun, run
from gpumon.tracking.loader import Samples
from gpumon.tracking.warn import warn_once

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

    def samples(self, found: Samples) -> None:
        """A step has so many samples."""
        if self.run is not None:
            self.run.samples(found)

    def at_step(self, step: int, since: int = 0) -> None:
        """The training has come to `step`; `since` when it waited for data (ns, `monotonic_ns`), unless 0."""
        if self.run is not None:
            self.run.at_step(step, since)

    def made_by_now(self, step: int) -> None:
        """The training has made `step` steps; when each was made is unknown."""
        if self.run is not None:
            self.run.made_by_now(step)

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
