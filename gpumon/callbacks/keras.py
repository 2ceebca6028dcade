"""The tags of a training by `model.fit` of Keras 3, on the torch, TensorFlow or JAX backend.

    from gpumon.callbacks.keras import GpuMonitor

    model.fit(..., callbacks=[GpuMonitor()])

Epochs count from 1, as Keras prints them; steps are batches.

On the torch and JAX backends the wait for data is measured at each fetch, in training and in validation. TensorFlow
fetches inside of its graph, where nobody can tell it from the step.

Keras leaves the end of a batch to a thread of its own, so that nothing waits for the GPU (asynchronous
dispatch), unless a callback in the list wants that hook and does not say that it is safe. This one says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from threading import get_ident
from time import monotonic_ns
from typing import Any
from weakref import WeakSet, WeakValueDictionary

from gpumon.callbacks.frameworks import missing, require
from gpumon.callbacks.hook import CHECKPOINT, Hook, Phase, failed, frames, guarded, marked
from gpumon.tracking.loader import BatchSize, batch_size_of_pass
from gpumon.tracking.values import PendingNumber, number_of, whole

_WATCHED = "_gpumon_watched"


def epoch_iterator(method: str) -> Any:
    """The iterator over the batches of the innermost `method` (fit, evaluate, predict) that runs; None without one."""
    for frame in frames(method):
        found = frame.f_locals.get("epoch_iterator")
        if callable(getattr(found, "_get_iterator", None)):
            return found
    return None


def is_fitting(model: Any) -> bool:
    """Whether a `fit` of `model` is running in this thread, around the innermost one."""
    fits = [frame.f_locals for frame in frames("fit") if "epoch_iterator" in frame.f_locals]
    return any(found.get("self") is model for found in fits[1:])


def watch(iterator: Any, waited: Callable[[int], None], first: Callable[[Any], None] | None = None) -> None:
    """Have `waited` told how long each fetch of `iterator` takes, in ns, and `first` its first batch; once for each."""
    told: dict[Callable[[int], None], None] | None = getattr(iterator, _WATCHED, None)
    if told is not None:
        told[waited] = None
        return
    own, told = iterator._get_iterator, {waited: None}
    setattr(iterator, _WATCHED, told)

    def tell(nanoseconds: int) -> None:
        for each in told:
            each(nanoseconds)

    iterator._get_iterator = lambda: Timed(own(), tell, first)


class Timed:
    """Batches, each of whose fetches is timed. Whatever the fetch raises passes through."""

    def __init__(self, batches: Any, waited: Callable[[int], None], first: Callable[[Any], None] | None) -> None:
        self._batches = batches
        self._waited = waited
        self._first = first
        self._iterator: Iterator[Any] | None = None

    def __iter__(self) -> Timed:
        began = monotonic_ns()  # the workers of a loader start here
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


try:
    import keras
except ModuleNotFoundError as error:
    if error.name != "keras":
        raise  # it is there, and lacks something itself, such as its backend
    raise missing("keras") from None

require("keras", keras.__version__)

_THREADS = 64
"""More batches than Keras ends at once, and so out of their order."""
_fitting: WeakValueDictionary[int, GpuMonitor] = WeakValueDictionary()
"""The monitor whose training began last in each thread."""
_started: WeakSet[GpuMonitor] = WeakSet()
"""Monitors whose training has begun and not ended; Keras does not notify callbacks of a failure."""


class GpuMonitor(keras.callbacks.Callback):  # type: ignore[misc]  # typed or not, by what is installed
    """Shows a training in gpumon: its epochs, steps, validation and logged metrics.

    Passed to `evaluate` or `predict` alone, it shows that as a run of its own. An exception that leaves `fit` ends the
    run; of one that leaves these two Keras calls nothing: the run then ends with the next training in this thread that
    is not part of it, with the cell of a notebook, or with the process.
    """

    async_safe = True

    def __init__(self, name: str | None = None, **settings: Any) -> None:
        """`name` and `settings` (`devices`, `batch`, `metrics`, `run_id`, `log_to`) are those of `gpumon.run`."""
        super().__init__()
        self._hook = Hook(f"keras/{keras.backend.backend()}", name, **settings)
        self._new = True
        self._training = False
        self._alone = True
        self._thread = 0
        self._before = ""
        self._done = 0
        self._batch = -1
        self._each = 1
        self._ends: deque[int] = deque(maxlen=_THREADS)
        self._outer: GpuMonitor | None = None
        self._rate: float | PendingNumber | None = None

    def set_params(self, params: Any) -> None:
        """A list of callbacks was made: what is called next is no part of what was called before."""
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
        self._watch("fit")
        self._hook.config(_known(self._model))
        self._rate = _rate_of(getattr(self._model, "optimizer", None))
        self._tell_rate()

    @guarded
    def on_train_end(self, logs: Any = None) -> None:
        self._hook.rest()
        self._leave_fit()

    @guarded
    def fit_raised(self, error: BaseException) -> None:
        """The training was left by an exception, maybe that of another callback."""
        self._hook.end(error)
        self._leave_fit()

    def is_in(self, model: Any) -> bool:
        """Whether its training is one of `model`, in this thread."""
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
        # Keras has waited for the ends of all batches.
        self._done += self._capped(max(self._ends, default=-1) + 1)
        self._hook.at_step(self._done)
        self._hook.log(logs or {})
        self._hook.end_epoch()
        self._tell_rate()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        # No `self.model` here: JAX would copy its state back into the model.
        try:
            self._batch = batch
            self._hook.at_step(self._done + batch)
        except Exception as error:
            failed("GpuMonitor.on_train_batch_begin", error)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        # Mostly in another thread, later, and not in order. Not guarded: nothing here can fail.
        self._ends.append(batch)

    @guarded
    def on_test_begin(self, logs: Any = None) -> None:
        if self._training and not self._new:
            self._hook.at_step(self._done + self._begun())
        self._enter("validate", "evaluate")
        self._watch("evaluate")

    @guarded
    def on_test_end(self, logs: Any = None) -> None:
        self._leave(logs)

    @guarded
    def on_predict_begin(self, logs: Any = None) -> None:
        self._enter("predict", "predict")
        self._watch("predict")

    @guarded
    def on_predict_end(self, logs: Any = None) -> None:
        self._leave(None)

    def _still_fitting(self, earlier: GpuMonitor | None) -> GpuMonitor | None:
        """The monitor of the training in which this one begins: those begun since then failed silently."""
        while earlier is not None and earlier.params is not self.params:  # else both are of one list
            if is_fitting(earlier._model):
                return earlier
            earlier._hook.end(failed=True, late=True)
            earlier._outer, earlier = None, earlier._outer
        return None

    def _watch(self, method: str) -> None:
        """Measure the wait for each batch of `method`, which has just begun."""
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
            watch(iterator, self._hook.waited, guarded(self._look_at) if method == "fit" and size is None else None)

    def _look_at(self, data: Any) -> None:
        """The first batch of a training."""
        shapes = [shape for one in keras.tree.flatten(data) if (shape := getattr(one, "shape", ()))]
        if shapes:
            self._hook.set_batch_size(BatchSize(int(shapes[0][0])))

    def _enter(self, inside: str, alone: str) -> None:
        if self._new:
            self._new = self._training = False
            self._alone = not self._hook.goes_on()  # an evaluation after a training belongs to it
            if self._alone:
                self._hook.begin(None, 1)
        self._before = self._hook.phase(inside if self._training else alone)

    def _leave(self, logs: Mapping[str, Any] | None) -> None:
        self._hook.phase(self._before)
        if not self._training:
            self._hook.log(logs or {})
            if self._alone:
                self._hook.end()
            else:
                self._hook.rest()
            self._new = True

    def phase_of_saving(self) -> Phase | None:
        """Way to mark what is saved; None outside of a training."""
        return self._hook.phase if self._training else None

    def _tell_rate(self) -> None:
        """Keep the learning rate with the run once it is known: a GPU that has it is not waited for."""
        rate = self._rate
        if rate is not None and (isinstance(rate, float) or rate.ready()):
            self._rate = None
            self._hook.config({"learning_rate": float(f"{rate if isinstance(rate, float) else rate.value():.6g}")})

    def _begun(self) -> int:
        """Steps of this epoch once its last batch has begun; the ends of some may still be on their way."""
        if keras.backend.backend() == "torch" or self._steps():
            return self._capped(self._batch + self._each)
        # Where the length is unknown, Keras begins a last batch only to find that there is none.
        return max(self._batch, max(self._ends.copy(), default=-1) + 1)

    def _capped(self, steps: int) -> int:
        """`steps` without those that the last execution of several had no data for."""
        return min(steps, self._steps() or steps)

    def _steps(self) -> int | None:
        """Of an epoch; None where the training did not know when it began."""
        steps: int | None = (self.params or {}).get("steps")
        return steps

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_outer": None, "_rate": None}


def _known(model: Any) -> dict[str, object]:
    """Parameters of a training, none of which is read from a GPU."""
    optimizer, loss = getattr(model, "optimizer", None), getattr(model, "loss", None)
    return {
        "optimizer": type(optimizer).__name__ if optimizer is not None else None,
        "precision": model.dtype_policy.name,
        "loss": loss if isinstance(loss, str) else None,
    }


def _rate_of(optimizer: Any) -> float | PendingNumber | None:
    """The learning rate with which a training begins; None: it follows a schedule, or a GPU has it for itself."""
    rate = getattr(optimizer, "_learning_rate", None)
    value = getattr(rate, "value", None)
    here = "cpu" in str(getattr(value, "device", "")).lower()
    if here:
        return float(keras.ops.convert_to_numpy(rate))
    torch = keras.backend.backend() == "torch" and hasattr(value, "is_cuda")
    return number_of("learning_rate", value) if torch else None


def _reporting(fit: Callable[..., Any]) -> Callable[..., Any]:
    """`fit` of a model, whose monitors are told of an exception that leaves it."""

    @wraps(fit)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return fit(self, *args, **kwargs)
        except BaseException as error:
            for monitor in [*_started]:
                if monitor.is_in(self):
                    monitor.fit_raised(error)
            raise

    return call


def _saving(callback: Any) -> Phase | None:
    """Way to mark what a callback saves in this thread; None where no training of ours runs."""
    monitor = _fitting.get(get_ident())
    return monitor.phase_of_saving() if monitor is not None else None


for _kind, _method in (
    ("ModelCheckpoint", "_save_model"), ("BackupAndRestore", "_save_model"), ("OrbaxCheckpoint", "_save_checkpoint"),
):  # fmt: skip
    _holder = getattr(keras.callbacks, _kind, None)
    if hasattr(_holder, _method):
        setattr(_holder, _method, marked(getattr(_holder, _method), _saving, CHECKPOINT))
for _trainer in keras.Model.__mro__:
    if "fit" in vars(_trainer):
        _trainer.fit = _reporting(_trainer.fit)
        break
