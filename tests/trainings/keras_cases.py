"""Trainings by Keras, one run of gpumon for each case; prints as JSON what the hooks saw.

The backend is that of KERAS_BACKEND; with the word `differing` only those cases run of which backends make
something of their own. Beside each `GpuMonitor` stand two neighbors: Keras calls one just before it and one just
after it.
"""

from __future__ import annotations

import copy
import gc
import json
import logging
import os
import pickle
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

warnings.filterwarnings("ignore")
# Keras would import them, for a third of the time of all cases; test_auto trains where they are there.
for name in {"jax", "pandas", "sklearn", "tensorflow"} - {os.environ["KERAS_BACKEND"]}:
    sys.modules[name] = None  # type: ignore[assignment]

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras.src.utils import python_utils  # noqa: E402

_BEFORE = set(sys.modules)

import gpumon  # noqa: E402
from gpumon.callbacks.keras import GpuMonitor  # noqa: E402
from tests.trainings import recipe  # noqa: E402

BROUGHT_IN = {name.partition(".")[0] for name in set(sys.modules) - _BEFORE} - sys.stdlib_module_names

HOOKS = ("on_train_begin", "on_epoch_begin", "on_epoch_end", "on_test_begin", "on_test_end", "on_train_end")
TORCH = keras.backend.backend() == "torch"
BATCH = 8
X = np.random.default_rng(0).normal(size=(4 * BATCH, 4)).astype("float32")
Y = X.sum(axis=1)
told: dict[str, dict[str, Any]] = {}


class Before(keras.callbacks.Callback):  # type: ignore[misc]
    """Takes the time in each hook; at the begin of a batch raises, or asks for the end, where told to."""

    def __init__(self, times: list[tuple[str, int]], fail: int = -1, stop: int = -1) -> None:
        super().__init__()
        self.times = times
        self.fail = fail
        self.stop = stop

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch == self.fail:
            raise ValueError("boom")
        if batch == self.stop:
            self.model.stop_training = True


class After(Before):
    """The other neighbor."""


def hook(name: str) -> Any:
    return lambda self, *_, **__: self.times.append((name, time.monotonic_ns()))


for name in HOOKS:
    setattr(Before, name, hook(name))


class Ends(keras.callbacks.Callback):  # type: ignore[misc]
    """Sees in which threads the ends of batches are called."""

    def __init__(self, *, safe: bool, pause: float = 0) -> None:
        super().__init__()
        self.async_safe = safe
        self.pause = pause
        self.main = threading.get_ident()
        self.seen: list[bool] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen.append(threading.get_ident() == self.main)
        time.sleep(self.pause)


class Asked(GpuMonitor):
    """Notes in which of its methods the model is asked for."""

    by: set[str] = set()  # noqa: RUF012

    @property
    def model(self) -> Any:
        self.by.add(sys._getframe(1).f_code.co_name)
        return super().model


class Batches:
    """Batches that take a while to read; when each read began, and how long it took."""

    def __init__(self, pause: float) -> None:
        self.pause = pause
        self.reads: list[tuple[int, int]] = []

    def __call__(self, count: int) -> Iterator[tuple[Any, Any]]:
        for _ in range(count):
            began = time.monotonic_ns()
            time.sleep(self.pause)
            self.reads.append((began, time.monotonic_ns() - began))
            yield X[:BATCH], Y[:BATCH]


class Slow(keras.Sequential):  # type: ignore[misc]
    """Each step takes a while, on the torch backend."""

    pause = 0.0
    slept = 0

    def train_step(self, *given: Any) -> Any:
        began = time.monotonic_ns()
        time.sleep(self.pause)
        Slow.slept += time.monotonic_ns() - began
        return super().train_step(*given)


batches = Batches(0)


def model(kind: Any = keras.Sequential, **settings: Any) -> Any:
    """A tiny one, compiled."""
    net = kind([keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
    net.compile(**{"optimizer": "sgd", "loss": "mse", "metrics": ["mae"], **settings})
    return net


def fit(
    case: str, net: Any, *data: Any, monitor: GpuMonitor | None = None, more: Any = (), fail: int = -1, stop: int = -1,
    **settings: Any,
) -> None:  # fmt: skip
    """Train with a monitor between its neighbors."""
    before, after = Before([], fail, stop), After([])
    told[case] = {"before": before.times, "after": after.times}
    began = time.monotonic_ns()
    history = net.fit(*data, callbacks=[before, monitor or GpuMonitor(case), after, *more], verbose=0, **settings)
    told[case]["history"] = {name: [float(value) for value in values] for name, values in history.history.items()}
    told[case]["took"] = time.monotonic_ns() - began


def waits(cases: Sequence[str] = ("waits", "not safe", "usual callbacks")) -> None:
    """What a wait for data is, and what is none."""
    directory = tempfile.mkdtemp()
    usual = (
        keras.callbacks.ModelCheckpoint(f"{directory}/net.weights.h5", save_weights_only=True, save_freq=2),
        keras.callbacks.TerminateOnNaN(),
        keras.callbacks.BackupAndRestore(f"{directory}/backup"),
        keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: None),
    )
    beside = {"waits": (), "not safe": (Ends(safe=False, pause=0.01),), "usual callbacks": usual}
    for case in cases:
        read = Batches(0.01)
        Slow.pause, Slow.slept = 0.02, 0
        net = model(Slow) if TORCH else model()
        fit(case, net, read(8), more=beside[case], epochs=2, steps_per_epoch=4, validation_data=(X, Y))
        told[case].update(reads=read.reads, worked=Slow.slept)


class TrialPruned(Exception):
    """As that of Optuna, which is not installed."""

    __module__ = "optuna.exceptions"


def raise_pruned(now: bool) -> None:
    if now:
        raise TrialPruned


def faults(net: Any) -> None:
    """Trainings that raise, and what comes after them in the same process."""
    same = GpuMonitor("then evaluated")
    with suppress(ValueError):
        fit("then evaluated", net, X, Y, monitor=same, batch_size=BATCH, epochs=3, fail=2)
    net.evaluate(X, Y, batch_size=BATCH, callbacks=[same], verbose=0)
    held = GpuMonitor("then another")
    with suppress(ValueError):
        fit("then another", net, X, Y, monitor=held, batch_size=BATCH, epochs=3, fail=2)
    fit("after a fault", net, X, Y, batch_size=BATCH, epochs=1)
    told["after a fault"]["held"] = held is not None
    with suppress(ValueError):
        fit("then dropped", net, X, Y, batch_size=BATCH, epochs=3, fail=2)
    gc.collect()
    prune = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: raise_pruned(epoch == 1))
    with suppress(TrialPruned):
        fit("pruned", net, X, Y, batch_size=BATCH, epochs=3, more=[prune])


class Saver(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """Takes the time of what it saves."""

    def _should_save_model(self, *given: Any) -> bool:
        self.began = time.monotonic_ns()
        return bool(super()._should_save_model(*given))

    def saved_in(self, times: list[tuple[int, int]], net: Any) -> Saver:
        own = net.save_weights
        net.save_weights = lambda *given, **more: (own(*given, **more), times.append((self.began, time.monotonic_ns())))
        return self


def saves() -> None:
    """Checkpoints before and behind the monitor."""
    directory = tempfile.mkdtemp()
    for case, behind in (("saved within", False), ("saved behind", True)):
        net, times = model(), []
        saver = Saver(f"{directory}/{behind}.weights.h5", save_weights_only=True).saved_in(times, net)
        callbacks = [GpuMonitor(case), saver] if behind else [saver, GpuMonitor(case)]
        net.fit(X, Y, batch_size=BATCH, epochs=2, callbacks=callbacks, verbose=0)
        told[case] = {"saved": times}
    net = model(optimizer=keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.1, 4, 0.9)))
    net.fit(X, Y, batch_size=BATCH, epochs=1, callbacks=[GpuMonitor("schedule")], verbose=0)


class Probe(keras.callbacks.Callback):  # type: ignore[misc]
    """Trains another model within the training of this one: as tuners do, and probes. The first of these fails."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        with suppress(ValueError):
            fit("inner", model(), X, Y, batch_size=BATCH, epochs=2, fail=1 if epoch == 0 else -1)


def threads(net: Any) -> None:
    """Whether Keras still ends batches in threads of its own, and reads no number of a batch in the training's."""
    main, plain = threading.get_ident(), python_utils.pythonify_logs
    read: list[bool] = []

    def pythonify_logs(logs: Any) -> Any:
        if logs:
            read.append(threading.get_ident() == main)
        return plain(logs)

    python_utils.pythonify_logs = pythonify_logs
    ends, steps, function = Ends(safe=True), 4, net.train_function
    monitor = Asked("threads")
    net.fit(X, Y, batch_size=BATCH, epochs=2, callbacks=[monitor, ends], verbose=0)
    python_utils.pythonify_logs = plain
    told["threads"] = {
        "ends in main": sum(ends.seen), "ends": len(ends.seen), "read in main": sum(read), "read": len(read),
        "steps": 2 * steps, "asked": sorted(Asked.by), "left as it was": net.train_function is function,
    }  # fmt: skip


def mirrored() -> None:
    """Under TensorFlow's MirroredStrategy, on two logical devices of the CPU."""
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    x = np.concatenate([X, X])
    with strategy.scope():
        net = model(metrics=[])
    net.fit(x, x.sum(axis=1), batch_size=BATCH, epochs=2, validation_data=(x, x.sum(axis=1)), verbose=0,
            callbacks=[GpuMonitor("mirrored")])  # fmt: skip
    told["mirrored"] = {"replicas": strategy.num_replicas_in_sync}


def compiled() -> None:
    """A run whose methods are called in a function that TensorFlow compiles."""
    import tensorflow as tf

    warned: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: warned.append(record.getMessage())  # type: ignore[method-assign]
    tf.get_logger().addHandler(handler)
    with gpumon.run("compiled") as run:

        @tf.function
        def step(loss: Any) -> Any:
            with run.phase("validate"):
                run.step()
                run.log(loss=0.5)
            run.config(lr=0.1)
            return loss + 1.0

        for _ in run.epochs(1):
            step(tf.constant(1.0))
    tf.get_logger().removeHandler(handler)
    told["compiled"] = {"warned": warned}


def divide_cpu() -> None:
    """Make two logical devices of the CPU, which TensorFlow allows before it first computes."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


def differing(net: Any) -> None:
    """Cases of which a backend makes something of its own."""
    fit("whole", net, X, Y, batch_size=BATCH, epochs=3, validation_data=(X, Y))
    fit("short", net, X[:20], Y[:20], batch_size=BATCH, epochs=1)
    fit("steps told", net, batches(10), epochs=2, steps_per_epoch=5)
    fit("no length", net, batches(7), epochs=1, validation_data=(X, Y))
    if not TORCH:
        several = model(steps_per_execution=3)
        fit("three at once", several, X, Y, batch_size=BATCH, epochs=2, validation_data=(X, Y))
    copied = copy.deepcopy(GpuMonitor("copied", batch=5))
    fit("copied", net, X, Y, monitor=pickle.loads(pickle.dumps(copied)), batch_size=BATCH, epochs=1)
    threads(net)
    if keras.backend.backend() == "tensorflow":
        mirrored()
        compiled()


def main() -> None:
    if keras.backend.backend() == "tensorflow":
        divide_cpu()
    net = model()
    differing(net)
    if "differing" in sys.argv:
        waits(["waits"])
        print(json.dumps({**told, "brought in": sorted(BROUGHT_IN)}), flush=True)
        return
    fit("resumed", net, X, Y, batch_size=BATCH, epochs=5, initial_epoch=3)
    fit("stopped", net, X, Y, batch_size=BATCH, epochs=3, stop=1)
    fit("every second", net, X, Y, batch_size=BATCH, epochs=4, validation_data=(X, Y), validation_freq=2)
    net.evaluate(X, Y, batch_size=BATCH, callbacks=[GpuMonitor("evaluation")], verbose=0)
    net.predict(X, batch_size=BATCH, callbacks=[GpuMonitor("prediction")], verbose=0)
    held = {"model": net, "batches": [(X[:16], Y[:16]), (X[16:], Y[16:])], "x_held": X, "y_held": Y}
    exec(recipe("train_on_batch"), {"gpumon": gpumon, **held})
    same = GpuMonitor("then evaluated well")
    net.fit(X, Y, batch_size=BATCH, epochs=1, callbacks=[same], verbose=0)
    net.evaluate(X, Y, batch_size=BATCH, callbacks=[same], verbose=0)
    net.predict(X, batch_size=BATCH, callbacks=[same], verbose=0)
    saves()
    again = GpuMonitor("again")
    for _ in range(2):
        net.fit(X, Y, batch_size=BATCH, epochs=1, callbacks=[again], verbose=0)
    pair = [GpuMonitor("one of two"), GpuMonitor("two of two")]
    net.fit(X, Y, batch_size=BATCH, epochs=1, callbacks=pair, verbose=0)
    waits()
    faults(net)
    fit("outer", model(), X, Y, batch_size=BATCH, epochs=2, more=[Probe()])
    print(json.dumps({**told, "brought in": sorted(BROUGHT_IN)}), flush=True)
    fit("fails", net, X, Y, batch_size=BATCH, epochs=3, fail=2)


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:
        if str(error) != "boom":
            raise
        # What Python itself does with an exception that nobody catches, but for the words and the exit code.
        sys.last_value = sys.exc_info()[1]
