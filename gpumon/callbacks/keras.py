"""A callback for `model.fit` of Keras 3, on the torch, TensorFlow or JAX backend.

    from gpumon.callbacks.keras import GpuMonitor

    model.fit(..., callbacks=[GpuMonitor()])

Epochs count from 1, as Keras prints them. Steps are batches.

On the torch and JAX backends, the wait for data is measured at each fetch, in training and in validation. TensorFlow
fetches batches inside its graph, where the wait cannot be separated from the step.

To avoid waiting for the GPU, Keras can call `on_train_batch_end` in a separate thread (asynchronous dispatch). It does
so only if every callback with this method declares itself `async_safe`, as this callback does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from threading import get_ident
from time import monotonic_ns
from typing import Any
from weakref import WeakSet, WeakValueDictionary

from gpumon.callbacks.frameworks import import_framework
from gpumon.callbacks.hook import CHECKPOINT, Hook, Phase, frames, guarded, in_phase, reporting, warn_failed
from gpumon.tracking.batch_size import BatchSize, batch_size_of_pass
from gpumon.tracking.logged_values import PendingNumber, number_of, whole

_LISTENERS = "_gpumon_listeners"
"""Name of an attribute of an iterator. It contains the functions that are called with the duration of each fetch."""


def epoch_iterator(method: str) -> Any:
    """Return the batch iterator of the innermost running `method` (fit, evaluate, predict); None if none runs."""
    for frame in frames(method):
        iterator = frame.f_locals.get("epoch_iterator")
        if callable(getattr(iterator, "_get_iterator", None)):
            return iterator
    return None


def is_fitting(model: Any) -> bool:
    """Whether the innermost `fit` of this thread runs inside a `fit` of `model`."""
    fits = [frame.f_locals for frame in frames("fit") if "epoch_iterator" in frame.f_locals]
    return any(variables.get("self") is model for variables in fits[1:])


def time_fetches(iterator: Any, waited: Callable[[int], None], first: Callable[[Any], None] | None = None) -> None:
    """Call `waited` with the duration of each fetch of `iterator` in ns, and `first` once with the first batch."""
    listeners: dict[Callable[[int], None], None] | None = getattr(iterator, _LISTENERS, None)
    if listeners is not None:
        listeners[waited] = None
        return
    get_iterator, listeners = iterator._get_iterator, {waited: None}
    setattr(iterator, _LISTENERS, listeners)

    def notify(nanoseconds: int) -> None:
        for listener in listeners:
            listener(nanoseconds)

    iterator._get_iterator = lambda: TimedBatches(get_iterator(), notify, first)


class TimedBatches:
    """Iterates over batches and times each fetch. Exceptions of a fetch pass through."""

    def __init__(self, batches: Any, waited: Callable[[int], None], first: Callable[[Any], None] | None) -> None:
        self._batches = batches
        self._waited = waited
        self._first = first
        self._iterator: Iterator[Any] | None = None

    def __iter__(self) -> TimedBatches:
        began = monotonic_ns()  # this starts the workers of a loader
        self._iterator = iter(self._batches)
        self._waited(monotonic_ns() - began)
        return self

    def __next__(self) -> Any:
        assert self._iterator is not None
        began = monotonic_ns()
        try:
            batch = next(self._iterator)
        finally:
            self._waited(monotonic_ns() - began)
        if self._first is not None:
            first, self._first = self._first, None
            first(batch)
        return batch


keras = import_framework("keras")
_Callback: Any = keras.callbacks.Callback

_THREADS = 64
"""Number of most recent batch ends that are stored, because batch ends may arrive out of order. Keras has fewer
threads."""
_fitting: WeakValueDictionary[int, GpuMonitor] = WeakValueDictionary()
"""By thread id: the monitor whose training began last in the thread."""
_started: WeakSet[GpuMonitor] = WeakSet()
"""Monitors whose training is running. Used to end their runs after an exception, because Keras reports no exceptions to
callbacks."""


class GpuMonitor(_Callback):  # type: ignore[misc]  # its type is unknown
    """Shows a training run in gpumon: its epochs, steps, validation and logged metrics.

    If the callback is passed only to `evaluate` or `predict`, this call is shown as a run of its own. An exception in
    `fit` ends the run. Keras does not report exceptions in `evaluate` and `predict`. After such an exception, the run
    ends with the notebook cell, with the process, or when this thread begins another training that is not part of the
    run.
    """

    async_safe = True

    def __init__(self, name: str | None = None, **settings: Any) -> None:
        """`name` and `settings` (such as `devices`, `batch`, `run_id` or `log_to`) are passed to `gpumon.run`."""
        super().__init__()
        self._hook = Hook(f"keras/{keras.backend.backend()}", name, **settings)
        self._new = True
        self._training = False
        self._alone = True
        self._thread = 0
        self._previous = ""
        self._done = 0
        """Number of steps before this epoch."""
        self._batch = -1
        self._each = 1
        """Number of steps per execution (`steps_per_execution` of Keras)."""
        self._ends: deque[int] = deque(maxlen=_THREADS)
        self._outer: GpuMonitor | None = None
        self._rate: float | PendingNumber | None = None

    def set_params(self, params: Any) -> None:
        """Called when Keras creates a list of callbacks.

        The `fit`, `evaluate` or `predict` that follows is a new call.
        """
        super().set_params(params)
        self._new = True

    @guarded
    def on_train_begin(self, logs: Any = None) -> None:
        self._new, self._training, self._done, self._thread = False, True, 0, get_ident()
        self._outer = self._still_fitting(_fitting.get(self._thread))
        _fitting[self._thread] = self
        _started.add(self)
        self._hook.begin((self.params or {}).get("epochs"), 1)
        self._each = getattr(self._model, "steps_per_execution", 1)
        self._measure_wait("fit")
        self._hook.config(_parameters(self._model))
        self._rate = _learning_rate(getattr(self._model, "optimizer", None))
        self._publish_rate()

    @guarded
    def on_train_end(self, logs: Any = None) -> None:
        self._hook.pause()
        self._leave_fit()

    @guarded
    def end_with_error(self, error: BaseException) -> None:
        """End the run after an exception in `fit`, possibly of another callback."""
        self._hook.end(error)
        self._leave_fit()

    def trains(self, model: Any) -> bool:
        """Whether this monitor shows a run that trains `model` in this thread."""
        return self._training and self._thread == get_ident() and self._model is model

    def _leave_fit(self) -> None:
        self._training = False
        _started.discard(self)
        if self._outer is not None:
            _fitting[self._thread], self._outer = self._outer, None

    @guarded
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._batch = -1
        self._ends.clear()
        self._hook.begin_epoch(epoch + 1)

    @guarded
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        # At this point, Keras has waited for the end of all batches.
        self._done += self._capped(max(self._ends, default=-1) + 1)
        self._hook.at_step(self._done)
        self._hook.log(logs or {})
        self._hook.end_epoch()
        self._publish_rate()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        # `self.model` is not used: with JAX, it would copy the state back into the model.
        try:
            self._batch = batch
            self._hook.at_step(self._done + batch)
        except Exception as error:
            warn_failed("GpuMonitor.on_train_batch_begin", error)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        # Usually called with a delay, in another thread and out of order. Not guarded, because nothing here can fail.
        self._ends.append(batch)

    @guarded
    def on_test_begin(self, logs: Any = None) -> None:
        if self._training and not self._new:
            self._hook.at_step(self._done + self._epoch_steps())
        self._enter("validate", "evaluate")
        self._measure_wait("evaluate")

    @guarded
    def on_test_end(self, logs: Any = None) -> None:
        self._leave(logs)

    @guarded
    def on_predict_begin(self, logs: Any = None) -> None:
        self._enter("predict", "predict")
        self._measure_wait("predict")

    @guarded
    def on_predict_end(self, logs: Any = None) -> None:
        self._leave(None)

    def _still_fitting(self, earlier: GpuMonitor | None) -> GpuMonitor | None:
        """Return the monitor of the training that encloses this one; None if there is none.

        The search goes outward from `earlier`, the monitor of the previous training in this thread. If the `fit` of a
        monitor no longer runs, it has failed without notice. The run of this monitor is then ended.
        """
        while earlier is not None and earlier.params is not self.params:  # same params mean the same list of callbacks
            if is_fitting(earlier._model):
                return earlier
            earlier._hook.end(failed=True, late=True)
            earlier._outer, earlier = None, earlier._outer
        return None

    def _measure_wait(self, method: str) -> None:
        """Measure the wait for each batch of `method`, which has just begun. For `fit`, also publish the batch size."""
        iterator = epoch_iterator(method)
        if iterator is None:
            return
        adapter = iterator.data_adapter
        size = whole(adapter.batch_size)
        if method == "fit" and size is not None:
            last = whole(adapter.partial_batch_size) if adapter.has_partial_batch else size
            batches = whole(adapter.num_batches) if iterator.steps_per_epoch is None else 0
            self._hook.set_batch_size(
                batch_size_of_pass(size, size * ((batches or 0) - 1) + (last or size), batches or 0)
            )
            self._hook.config({"batch_size": size})
        if keras.backend.backend() != "tensorflow":
            first = guarded(self._read_batch_size) if method == "fit" and size is None else None
            time_fetches(iterator, self._hook.waited, first)

    def _read_batch_size(self, batch: Any) -> None:
        """Publish the batch size of a training: the length of its first batch."""
        shapes = [shape for array in keras.tree.flatten(batch) if (shape := getattr(array, "shape", ()))]
        if shapes:
            self._hook.set_batch_size(BatchSize(int(shapes[0][0])))

    def _enter(self, inside: str, alone: str) -> None:
        if self._new:
            self._new = self._training = False
            self._alone = not self._hook.resume()  # an evaluation after a training is part of its run
            if self._alone:
                self._hook.begin(None, 1)
        self._previous = self._hook.phase(inside if self._training else alone)

    def _leave(self, logs: Mapping[str, Any] | None) -> None:
        self._hook.phase(self._previous)
        if not self._training:
            self._hook.log(logs or {})
            if self._alone:
                self._hook.end()
            else:
                self._hook.pause()
            self._new = True

    def phase(self) -> Phase | None:
        """Return the function that begins a phase; None while no training runs."""
        return self._hook.phase if self._training else None

    def _publish_rate(self) -> None:
        """Publish the learning rate once it can be read without waiting for a GPU."""
        rate = self._rate
        if rate is not None and (isinstance(rate, float) or rate.ready()):
            self._rate = None
            self._hook.config({"learning_rate": float(f"{rate if isinstance(rate, float) else rate.value():.6g}")})

    def _epoch_steps(self) -> int:
        """Return the number of steps of this epoch.

        Called when the epoch's last batch has begun but may not have ended.
        """
        if keras.backend.backend() == "torch" or self._steps():
            return self._capped(self._batch + self._each)
        # If the number of batches is not declared, Keras begins one more batch and finds that there is none.
        return max(self._batch, max(self._ends.copy(), default=-1) + 1)

    def _capped(self, steps: int) -> int:
        """Limit `steps` to the length of an epoch.

        With several steps per execution, there may be no data for the last ones.
        """
        return min(steps, self._steps() or steps)

    def _steps(self) -> int | None:
        """Return the number of steps per epoch; None if the training does not declare it at the start."""
        steps: int | None = (self.params or {}).get("steps")
        return steps

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_outer": None, "_rate": None}


def _parameters(model: Any) -> dict[str, object]:
    """Return the training parameters that can be read without waiting for a GPU."""
    optimizer, loss = getattr(model, "optimizer", None), getattr(model, "loss", None)
    return {
        "optimizer": type(optimizer).__name__ if optimizer is not None else None,
        "precision": model.dtype_policy.name,
        "loss": loss if isinstance(loss, str) else None,
    }


def _learning_rate(optimizer: Any) -> float | PendingNumber | None:
    """Return the initial learning rate; None if it follows a schedule or cannot be read without waiting for a GPU."""
    rate = getattr(optimizer, "_learning_rate", None)
    value = getattr(rate, "value", None)
    is_on_cpu = "cpu" in str(getattr(value, "device", "")).lower()
    if is_on_cpu:
        return float(keras.ops.convert_to_numpy(rate))
    torch = keras.backend.backend() == "torch" and hasattr(value, "is_cuda")
    return number_of("learning_rate", value) if torch else None


def _fitting_monitors(model: Any) -> list[GpuMonitor]:
    """Return the monitors whose run trains `model` in this thread."""
    return [monitor for monitor in _started if monitor.trains(model)]


def _current_phase(callback: Any) -> Phase | None:
    """Return the function that begins a phase of this thread's training; None if no monitored training runs."""
    monitor = _fitting.get(get_ident())
    return monitor.phase() if monitor is not None else None


for _kind, _method in (
    ("ModelCheckpoint", "_save_model"), ("BackupAndRestore", "_save_model"), ("OrbaxCheckpoint", "_save_checkpoint"),
):  # fmt: skip
    _holder = getattr(keras.callbacks, _kind, None)
    if hasattr(_holder, _method):
        setattr(_holder, _method, in_phase(getattr(_holder, _method), _current_phase, CHECKPOINT))
for _trainer in keras.Model.__mro__:
    if "fit" in vars(_trainer):
        _trainer.fit = reporting(_trainer.fit, _fitting_monitors)
        break
