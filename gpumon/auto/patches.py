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
from types import ModuleType
from typing import Any


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


def _add(callbacks: list[Any], framework: str, place: int | None = None) -> None:
    if _wants_one(callbacks):
        callbacks.insert(len(callbacks) if place is None else place, _monitor(framework))


def _wants_one(callbacks: Iterable[Any]) -> bool:
    """Whether none of these is a monitor of ours, or made of one."""
    ours = (
        kind.__module__.startswith("gpumon.callbacks.") and kind.__name__ == "GpuMonitor"
        for callback in callbacks
        for kind in type(callback).__mro__
    )
    return not any(ours)


def _monitor(framework: str) -> Any:
    offer_package()  # type: ignore[name-defined]  # noqa: F821  # given by `hook`
    kind = import_module(f"gpumon.callbacks.{framework}").GpuMonitor
    return kind(name=os.environ.get("GPUMON_RUN_NAME") or None)


def _quietly(do: Callable[[], object]) -> None:
    """A training is not worth a callback: what fails here leaves it without one."""
    try:
        do()
    except Exception as error:
        del error
