"""Patches a method of each framework, so that each training gets gpumon's callback unless it already has one.

This file is loaded by its path (`hook`), so that no other part of gpumon is imported before a training begins. Each
function patches a module that has just been imported. If the module is not as expected, the function may raise, and
changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import wraps
from importlib import import_module
from inspect import signature
from threading import local
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary


def keras(module: ModuleType) -> None:
    """Patch `CallbackList` of Keras 3 to add the callback in `fit`, which is the only method with `add_history`."""
    kind = module.CallbackList
    original = kind.__init__

    @wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if kwargs.get("add_history"):
            _quietly(lambda: _add_to_keras(self))

    kind.__init__ = init


def lightning(module: ModuleType) -> None:
    """Patch the callback connector of Lightning 2.

    In it, the model's callbacks are added to the trainer's callbacks.
    """
    kind = module._CallbackConnector
    original = kind._attach_model_callbacks

    @wraps(original)
    def attach(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        _quietly(lambda: _add_to_lightning(self.trainer))
        return result

    kind._attach_model_callbacks = attach


def transformers(module: ModuleType) -> None:
    """Patch the callback handler of Transformers' `Trainer`."""
    kind = module.CallbackHandler
    original = kind.on_train_begin

    @wraps(original)
    def begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        _quietly(lambda: _add(self.callbacks, "transformers"))
        return original(self, *args, **kwargs)

    kind.on_train_begin = begin


def xgboost(module: ModuleType) -> None:
    """Patch the container of callbacks, which XGBoost creates for each training."""
    kind = module.CallbackContainer
    original = kind.__init__

    @wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        # The monitor is added first. When a callback stops the training, later callbacks are not called.
        _quietly(lambda: _add(self.callbacks, "xgboost", index=0))

    kind.__init__ = init


def lightgbm(module: ModuleType) -> None:
    """Patch `train` and `cv` of LightGBM. Its estimators also call these functions."""
    for name in ("train", "cv"):
        setattr(module, name, _with_callback(getattr(module, name)))


def ignite(module: ModuleType) -> None:
    """Patch `run` of Ignite's engines.

    An engine with several epochs runs a training, and engines that run inside it are its evaluations. Any other engine
    with only one epoch may be a training or an evaluation, so it is not monitored.
    """
    kind = module.Engine
    original = kind.run
    parameters = signature(original)
    assert {"max_epochs", "max_iters"} <= {*parameters.parameters}
    running = local()
    monitors: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
    """The monitor of each training engine."""

    @wraps(original)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        engines = running.__dict__.setdefault("engines", [])

        def attach() -> None:
            if engines:
                monitor = monitors.get(engines[0])
                if monitor is not None and not _is_monitored(self):
                    monitor.attach_evaluator(self)
                return
            arguments = parameters.bind(self, *args, **kwargs).arguments
            planned = arguments.get("max_epochs") or self.state.max_epochs or 0
            if (planned > 1 or arguments.get("max_iters") or self.state.max_iters) and not _is_monitored(self):
                monitors[self] = _monitor("ignite").attach(self)

        _quietly(attach)
        engines.append(self)
        try:
            return original(self, *args, **kwargs)
        finally:
            engines.pop()

    kind.run = run


def accelerate(module: ModuleType) -> None:
    """Patch `init_trackers` of Accelerate to add a tracker."""
    kind = module.Accelerator
    original = kind.init_trackers

    @wraps(original)
    def begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        log_with = self.log_with

        def add() -> None:
            if "gpumon" not in map(str, log_with):
                trackers = [*log_with]
                _add(trackers, "accelerate", kind="GpuMonitorTracker")
                self.log_with = trackers

        _quietly(add)
        try:
            return original(self, *args, **kwargs)
        finally:
            self.log_with = log_with

    kind.init_trackers = begin


def sklearn(module: ModuleType) -> None:
    """Patch `fit` of scikit-learn's searches. A search inside another search gets no callback of its own."""
    kind = module.BaseSearchCV
    original = kind.fit
    running: list[Any] = []
    assert callable(kind.set_callbacks)

    @wraps(original)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        previous = self.__dict__.get("_skl_callbacks")

        def add() -> None:
            callbacks = [*(previous or ())]
            _add(callbacks, "sklearn")
            self.set_callbacks(*callbacks)

        if not running:
            _quietly(add)
        running.append(self)
        try:
            return original(self, *args, **kwargs)
        finally:
            running.pop()
            _quietly(lambda: self.set_callbacks(*(previous or ())))

    kind.fit = fit


def _with_callback(train: Any) -> Any:
    """Wrap LightGBM's function `train` or `cv` to add a monitor to its callbacks."""
    parameters = signature(train)
    assert "callbacks" in parameters.parameters

    @wraps(train)
    def call(*args: Any, **kwargs: Any) -> Any:
        def add() -> None:
            nonlocal args, kwargs
            bound = parameters.bind(*args, **kwargs)
            callbacks = [*(bound.arguments.get("callbacks") or ())]
            _add(callbacks, "lightgbm")
            bound.arguments["callbacks"] = callbacks
            args, kwargs = bound.args, bound.kwargs

        _quietly(add)
        return train(*args, **kwargs)

    return call


def _add_to_keras(callback_list: Any) -> None:
    if _has_no_monitor(callback_list.callbacks):
        monitor = _monitor("keras")
        monitor.set_params(callback_list.params)
        if callback_list._model is not None:
            monitor.set_model(callback_list._model)
        callback_list.callbacks.append(monitor)


def _add_to_lightning(trainer: Any) -> None:
    if trainer.state.fn == "fit":
        _add(trainer.callbacks, "lightning")


def _add(callbacks: list[Any], framework: str, index: int | None = None, kind: str = "GpuMonitor") -> None:
    if _has_no_monitor(callbacks):
        callbacks.insert(len(callbacks) if index is None else index, _monitor(framework, kind))


def _is_monitored(engine: Any) -> bool:
    """Whether a monitor of gpumon is attached to an engine of Ignite."""
    handlers = [getattr(handler, "func", handler) for event in engine._event_handlers.values() for handler, *_ in event]
    return not _has_no_monitor(getattr(handler, "__self__", None) for handler in handlers)


def _has_no_monitor(callbacks: Iterable[Any]) -> bool:
    """Whether none of `callbacks` is one of gpumon's monitors or an instance of a subclass."""
    monitors = (
        kind.__module__.startswith("gpumon.callbacks.") and kind.__name__ in ("GpuMonitor", "GpuMonitorTracker")
        for callback in callbacks
        for kind in type(callback).__mro__
    )
    return not any(monitors)


def _monitor(framework: str, kind: str = "GpuMonitor") -> Any:
    offer_package()  # type: ignore[name-defined]  # noqa: F821  # set by `hook`
    monitor = getattr(import_module(f"gpumon.callbacks.{framework}"), kind)
    return monitor(os.environ.get("GPUMON_RUN_NAME") or None)


def _quietly(action: Callable[[], object]) -> None:
    """Call `action`. If it fails, ignore the exception, so that the training continues without the callback."""
    try:
        action()
    except Exception as error:
        del error
