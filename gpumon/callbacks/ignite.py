"""A monitor for trainings with PyTorch Ignite 0.5 or newer.

    from gpumon.callbacks.ignite import GpuMonitor

    GpuMonitor().attach(trainer, validate=evaluator)

Epochs count from 1, as in Ignite. Steps are iterations of the trainer. Ignite calls handlers in the order in which they
were attached. If a handler for the end of an epoch is attached after the monitor, its time counts as time between
epochs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial, wraps
from threading import get_ident
from time import monotonic_ns
from typing import Any
from weakref import WeakValueDictionary

from gpumon.callbacks.hook import CHECKPOINT, Hook, Phase, guarded, restore_phase, warn_failed
from gpumon.common.errors import FrameworkError, pip

_PREVIOUS = "_gpumon_previous_phase"
"""Name of an attribute of a checkpoint handler. While the handler saves a checkpoint, the attribute contains the phase
function and the previous phase."""


def mark_saving(get_phase: Callable[[], Phase | None]) -> None:
    """Patch Ignite's Checkpoint, once per process, so that saving a checkpoint is recorded as a phase.

    `get_phase` returns the function that begins a phase, or None if there is no run.
    """
    kind = getattr(sys.modules.get("ignite.handlers.checkpoint"), "Checkpoint", None)
    if kind is None or hasattr(kind, _PREVIOUS):
        return
    call, collect = kind.__call__, kind._setup_checkpoint
    setattr(kind, _PREVIOUS, None)

    @wraps(collect)
    def begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Begin the phase. Ignite calls this method only before it saves a checkpoint."""
        try:
            phase = get_phase()
            self.__dict__[_PREVIOUS] = (phase, phase(CHECKPOINT)) if phase is not None else None
        except Exception as error:  # monitoring must never fail a checkpoint
            warn_failed(CHECKPOINT, error)
        return collect(self, *args, **kwargs)

    @wraps(call)
    def save(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Save the checkpoint, then return to the previous phase."""
        try:
            return call(self, *args, **kwargs)
        finally:
            previous = self.__dict__.pop(_PREVIOUS, None)
            if previous is not None:
                restore_phase(*previous)

    kind.__call__, kind._setup_checkpoint = save, begin


try:
    from ignite.engine import Engine, Events
except ModuleNotFoundError as error:
    if error.name not in ("ignite", "ignite.engine"):
        raise  # ignite is installed, but one of its own imports is missing
    raise FrameworkError(f"ignite is not installed: '{pip('install pytorch-ignite')}'") from None

_training: WeakValueDictionary[int, GpuMonitor] = WeakValueDictionary()
"""In each thread, the monitor whose training runs in this thread."""


class GpuMonitor:
    """Shows the training of an engine in gpumon: its epochs, iterations, evaluations and metrics.

    If an engine was attached together with the trainer, its evaluation after the training belongs to the run of the
    training. An evaluation without a training is a run of its own.
    """

    def __init__(self, name: str | None = None, **settings: Any) -> None:
        """`name` and `settings` (such as `devices`, `batch`, `run_id` or `directory`) are passed to `gpumon.run`."""
        self._hook = Hook("ignite", name, **settings)
        self._training = False
        self._alone = True
        self._previous = ""
        self._since = 0
        self._unnamed = 0

    def attach(self, trainer: Engine, **evaluators: Engine) -> GpuMonitor:
        """Monitor `trainer` and `evaluators`. The keyword of an evaluator is the name of its phase.

        The name is also the prefix of the evaluator's metrics, as in `validate_accuracy`.
        """
        for event, handler in (
            (Events.STARTED, self._started), (Events.EPOCH_STARTED, self._epoch_started),
            (Events.ITERATION_COMPLETED, self._iteration_completed), (Events.EPOCH_COMPLETED, self._epoch_completed),
            (Events.COMPLETED, self._completed), (Events.TERMINATE, self._terminated),
        ):  # fmt: skip
            trainer.add_event_handler(event, handler)
        self._attach_any(trainer)
        for phase, evaluator in evaluators.items():
            self._attach_evaluator(evaluator, phase)
        return self

    def attach_evaluator(self, evaluator: Engine) -> None:
        """Monitor an evaluator under the next free name: `evaluate`, `evaluate_2`, … Used by `gpumon run --auto`."""
        self._unnamed += 1
        self._attach_evaluator(evaluator, "evaluate" if self._unnamed == 1 else f"evaluate_{self._unnamed}")

    def _attach_evaluator(self, evaluator: Engine, phase: str) -> None:
        evaluator.add_event_handler(Events.STARTED, partial(self._evaluation_started, phase=phase))
        evaluator.add_event_handler(Events.COMPLETED, partial(self._evaluation_completed, phase=phase))
        self._attach_any(evaluator)

    def _attach_any(self, engine: Engine) -> None:
        engine.add_event_handler(Events.GET_BATCH_STARTED, self._fetch_started)
        engine.add_event_handler(Events.GET_BATCH_COMPLETED, self._fetched)
        engine.add_event_handler(Events.EXCEPTION_RAISED, self._raised)

    @guarded
    def _started(self, engine: Engine) -> None:
        self._training, self._since = True, 0
        _training[get_ident()] = self
        mark_saving(_current_phase)
        self._hook.begin(engine.state.max_epochs, 1)
        self._hook.plan(engine.state.max_iters)
        self._hook.batch_of(engine.state.dataloader)
        if engine.state.iteration:  # resumed: steps before the checkpoint do not belong to the first epoch
            self._hook.at_step(engine.state.iteration)

    @guarded
    def _epoch_started(self, engine: Engine) -> None:
        self._hook.begin_epoch(engine.state.epoch)

    def _fetch_started(self, engine: Engine) -> None:
        self._since = monotonic_ns()

    def _fetched(self, engine: Engine) -> None:
        try:
            self._hook.waited_since(self._since)
            self._since = 0
        except Exception as error:
            warn_failed("GpuMonitor._fetched", error)

    def _iteration_completed(self, engine: Engine) -> None:
        try:
            self._hook.at_step(engine.state.iteration)
        except Exception as error:
            warn_failed("GpuMonitor._iteration_completed", error)

    @guarded
    def _epoch_completed(self, engine: Engine) -> None:
        self._hook.log(_numbers(engine.state.metrics))
        self._hook.end_epoch()

    @guarded
    def _completed(self, engine: Engine) -> None:
        self._training = False
        self._hook.pause()

    @guarded
    def _terminated(self, engine: Engine) -> None:
        if engine.should_terminate == "skip_completed":
            self._completed(engine)

    @guarded
    def _evaluation_started(self, engine: Engine, phase: str) -> None:
        if not self._training:
            self._alone = not self._hook.resume()
            if self._alone:
                self._hook.begin(None, 1)
        self._previous = self._hook.phase(phase)

    @guarded
    def _evaluation_completed(self, engine: Engine, phase: str) -> None:
        self._hook.log({f"{phase}_{name}": value for name, value in _numbers(engine.state.metrics).items()})
        if self._training:
            self._hook.phase(self._previous)
        elif self._alone:
            self._hook.end()
        else:
            self._hook.pause()

    def _raised(self, engine: Engine, error: BaseException) -> None:
        """End the run. If there is no other handler of exceptions, raise the exception again.

        This is necessary because Ignite raises an exception only if no handler of exceptions is attached.
        """
        if len(engine._event_handlers[Events.EXCEPTION_RAISED]) == 1:
            self._fail(error)
            raise error

    @guarded
    def _fail(self, error: BaseException) -> None:
        self._training = False
        self._hook.end(error)

    def phase(self) -> Phase | None:
        """Return the function that begins a phase; None if no training runs."""
        return self._hook.phase if self._training else None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_training": False}


def _current_phase() -> Phase | None:
    monitor = _training.get(get_ident())
    return monitor.phase() if monitor is not None else None


def _numbers(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics that may be single numbers. Mappings, strings, lists and arrays are left out."""
    return {
        name: value
        for name, value in metrics.items()
        if not isinstance(value, Mapping | str | list | tuple) and not getattr(value, "shape", None)
    }
