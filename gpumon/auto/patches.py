"""One changed place in each framework: where a training begins, the callback is added if none is there yet.

Loaded by path (`hook`), so that nothing of gpumon is imported before a training begins. Each function takes a
module that was just imported, and may raise when that is not as expected: then nothing is changed.
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
    """`CallbackList` of Keras 3: of `fit`, which alone asks for a history."""
    kind = module.CallbackList
    made = kind.__init__

    @wraps(made)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        if kwargs.get("add_history"):
            _quietly(lambda: _add_to_keras(self))

    kind.__init__ = init


def lightning(module: ModuleType) -> None:
    """The callback connector of Lightning 2: where the callbacks of a model join those of the trainer."""
    kind = module._CallbackConnector
    joined = kind._attach_model_callbacks

    @wraps(joined)
    def join(self: Any, *args: Any, **kwargs: Any) -> Any:
        answer = joined(self, *args, **kwargs)
        _quietly(lambda: _add_to_lightning(self.trainer))
        return answer

    kind._attach_model_callbacks = join


def transformers(module: ModuleType) -> None:
    """The callback handler of Transformers' `Trainer`."""
    kind = module.CallbackHandler
    began = kind.on_train_begin

    @wraps(began)
    def begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        _quietly(lambda: _add(self.callbacks, "transformers"))
        return began(self, *args, **kwargs)

    kind.on_train_begin = begin


def xgboost(module: ModuleType) -> None:
    """The container of callbacks that each training of XGBoost makes."""
    kind = module.CallbackContainer
    made = kind.__init__

    @wraps(made)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        # First: one that stops the training keeps it from those behind.
        _quietly(lambda: _add(self.callbacks, "xgboost", place=0))

    kind.__init__ = init


def lightgbm(module: ModuleType) -> None:
    """`train` and `cv` of LightGBM, which its estimators call too."""
    for name in ("train", "cv"):
        setattr(module, name, _with_callback(getattr(module, name)))


def ignite(module: ModuleType) -> None:
    """`run` of Ignite's engines: one of more than one epoch trains, and those that run within it evaluate.

    An engine of one epoch that runs in no other may do either: it is left out.
    """
    kind = module.Engine
    ran = kind.run
    parameters = signature(ran)
    assert {"max_epochs", "max_iters"} <= {*parameters.parameters}
    running = local()
    monitors: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
    """Of trainers."""

    @wraps(ran)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        around = running.__dict__.setdefault("engines", [])

        def follow() -> None:
            if around:
                monitor = monitors.get(around[0])
                if monitor is not None and not _is_followed(self):
                    monitor.follow_evaluator(self)
                return
            given = parameters.bind(self, *args, **kwargs).arguments
            planned = given.get("max_epochs") or self.state.max_epochs or 0
            if (planned > 1 or given.get("max_iters") or self.state.max_iters) and not _is_followed(self):
                monitors[self] = _monitor("ignite").attach(self)

        _quietly(follow)
        around.append(self)
        try:
            return ran(self, *args, **kwargs)
        finally:
            around.pop()

    kind.run = run


def accelerate(module: ModuleType) -> None:
    """`init_trackers` of Accelerate: one tracker more."""
    kind = module.Accelerator
    begun = kind.init_trackers

    @wraps(begun)
    def begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = self.log_with

        def add() -> None:
            if "gpumon" not in map(str, before):
                trackers = [*before]
                _add(trackers, "accelerate", kind="GpuMonitorTracker")
                self.log_with = trackers

        _quietly(add)
        try:
            return begun(self, *args, **kwargs)
        finally:
            self.log_with = before

    kind.init_trackers = begin


def sklearn(module: ModuleType) -> None:
    """`fit` of scikit-learn's searches; one within another belongs to it."""
    kind = module.BaseSearchCV
    fitted = kind.fit
    within: list[Any] = []
    assert callable(kind.set_callbacks)

    @wraps(fitted)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = self.__dict__.get("_skl_callbacks")

        def add() -> None:
            callbacks = [*(before or ())]
            _add(callbacks, "sklearn")
            self.set_callbacks(*callbacks)

        if not within:
            _quietly(add)
        within.append(self)
        try:
            return fitted(self, *args, **kwargs)
        finally:
            within.pop()
            _quietly(lambda: self.set_callbacks(*(before or ())))

    kind.fit = fit


def _with_callback(train: Any) -> Any:
    """`train` with a monitor among its callbacks."""
    parameters = signature(train)
    assert "callbacks" in parameters.parameters

    @wraps(train)
    def call(*args: Any, **kwargs: Any) -> Any:
        def add() -> None:
            nonlocal args, kwargs
            given = parameters.bind(*args, **kwargs)
            callbacks = [*(given.arguments.get("callbacks") or ())]
            _add(callbacks, "lightgbm")
            given.arguments["callbacks"] = callbacks
            args, kwargs = given.args, given.kwargs

        _quietly(add)
        return train(*args, **kwargs)

    return call


def _add_to_keras(held: Any) -> None:
    if _wants_one(held.callbacks):
        monitor = _monitor("keras")
        monitor.set_params(held.params)
        if held._model is not None:
            monitor.set_model(held._model)
        held.callbacks.append(monitor)


def _add_to_lightning(trainer: Any) -> None:
    if trainer.state.fn == "fit":
        _add(trainer.callbacks, "lightning")


def _add(callbacks: list[Any], framework: str, place: int | None = None, kind: str = "GpuMonitor") -> None:
    if _wants_one(callbacks):
        callbacks.insert(len(callbacks) if place is None else place, _monitor(framework, kind))


def _is_followed(engine: Any) -> bool:
    """Whether a monitor of ours is attached to an engine of Ignite."""
    handlers = [getattr(handler, "func", handler) for every in engine._event_handlers.values() for handler, *_ in every]
    return not _wants_one(getattr(handler, "__self__", None) for handler in handlers)


def _wants_one(callbacks: Iterable[Any]) -> bool:
    """Whether none of these is a monitor of ours, or made of one."""
    ours = (
        kind.__module__.startswith("gpumon.callbacks.") and kind.__name__ in ("GpuMonitor", "GpuMonitorTracker")
        for callback in callbacks
        for kind in type(callback).__mro__
    )
    return not any(ours)


def _monitor(framework: str, kind: str = "GpuMonitor") -> Any:
    offer_package()  # type: ignore[name-defined]  # noqa: F821  # given by `hook`
    made = getattr(import_module(f"gpumon.callbacks.{framework}"), kind)
    return made(os.environ.get("GPUMON_RUN_NAME") or None)


def _quietly(do: Callable[[], object]) -> None:
    """A training is not worth a callback: what fails here leaves it without one."""
    try:
        do()
    except Exception as error:
        del error
