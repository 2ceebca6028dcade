"""A callback for Lightning 2.0 or newer, as the package `lightning.pytorch` or `pytorch_lightning`.

    from gpumon.callbacks.lightning import GpuMonitor

    trainer = Trainer(callbacks=[GpuMonitor()])

Epochs count from 0, as in Lightning. Steps are `trainer.global_step`, which counts optimizer steps. If gradients are
accumulated, a step has several batches. If there are several optimizers, each of them makes its own steps.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from time import monotonic_ns
from typing import Any

from gpumon.callbacks.frameworks import missing, require
from gpumon.callbacks.hook import CHECKPOINT, Hook, guarded, in_phase, warn_failed

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
_CALLBACKS = tuple(f"{package}.callbacks.callback" for package in PACKAGES)
"""Modules that define the class Callback."""


class _Hooks:
    """The methods that Lightning calls. They are the same for both packages."""

    def __init__(self, name: str | None = None, **settings: Any) -> None:
        """`name` and `settings` (such as `devices`, `batch`, `run_id` or `log_to`) are passed to `gpumon.run`.

        Raises FrameworkError if Lightning is missing or too old.
        """
        adopt_callbacks()
        super().__init__()
        self._hook = Hook("lightning", name, **settings)
        self._previous = ""
        self._step = 0
        self._in_epoch = False
        self._since = 0
        self._logged: dict[str, Any] = {}
        self._trains = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        adopt_callbacks()  # a spawned rank may not have imported Lightning yet
        self.__dict__.update(state)

    @guarded
    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        # Called in each rank once torch.distributed is initialized. Before that, the rank is not available.
        self._in_epoch, self._since = False, 0
        if stage == "fit" or not self._hook.resume():  # validations and tests after a training belong to its run
            self._step, self._logged, self._trains = 0, {}, stage == "fit"
            planned = trainer.max_epochs if stage == "fit" else None
            self._hook.begin(planned, 0, _environment(trainer), trainer.loggers)
        _mark_saving(trainer, self)

    @guarded
    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._leave(trainer)
        if self._trains:
            self._hook.pause()
        else:
            self._hook.end()

    @guarded
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        # Lightning calls neither on_train_end nor teardown after this.
        self._leave(trainer)
        self._hook.end(exception)

    @guarded
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        _measure_fetches(trainer, self)
        if len(trainer.optimizers) == 1:  # with several optimizers, a batch has several steps
            self._hook.batch_of(trainer.train_dataloader, trainer.accumulate_grad_batches)
        self._set_step(trainer.global_step)  # after a resume, earlier steps do not belong to the first epoch
        self._hook.plan(trainer.max_steps)
        self._hook.config(_parameters(trainer))

    @guarded
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._log(trainer)

    @guarded
    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._log(trainer)  # Lightning has only now finished computing the metrics of the previous epoch
        self._begin_epoch(trainer)
        # The workers of the loader start before the first batch is fetched. With several ranks, this time would include
        # the wait for the slowest rank, which is not a wait for data.
        self._since = monotonic_ns() if trainer.world_size == 1 else 0

    @guarded
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._in_epoch = False
        self._hook.end_epoch()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if not self._in_epoch:  # resumed within an epoch: on_train_epoch_start is not called again
            self._begin_epoch(trainer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        try:
            self._set_step(trainer.global_step)
        except Exception as error:
            warn_failed("GpuMonitor.on_train_batch_end", error)

    @guarded
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._previous = self._hook.phase("sanity" if trainer.sanity_checking else "validate")

    @guarded
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            self._log(trainer)
        self._hook.phase(self._previous)

    @guarded
    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        self._previous = self._hook.phase("test")

    @guarded
    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        self._log(trainer)
        self._hook.phase(self._previous)

    @guarded
    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        self._previous = self._hook.phase("predict")

    @guarded
    def on_predict_end(self, trainer: Any, pl_module: Any) -> None:
        self._hook.phase(self._previous)

    @guarded
    def _begin_epoch(self, trainer: Any) -> None:
        self._in_epoch = True
        self._hook.begin_epoch(trainer.current_epoch)

    def _set_step(self, step: int) -> None:
        if step != self._step:
            self._step = step
            self._hook.at_step(step)

    def _log(self, trainer: Any) -> None:
        metrics = dict(trainer.callback_metrics)
        # A value that is still the same object was not computed again. It belongs to an earlier epoch.
        new = {name: value for name, value in select_metrics(metrics).items() if self._logged.get(name) is not value}
        self._logged = metrics
        self._hook.log(new)

    def _leave(self, trainer: Any) -> None:
        self._in_epoch = False
        _measure_fetches(trainer, None)
        _mark_saving(trainer, None)

    def _before_fetch(self, method: Callable[[], None]) -> Callable[[], None]:
        def call() -> None:
            method()
            self._since = self._since or monotonic_ns()

        return call

    def _after_fetch(self, method: Callable[[], None]) -> Callable[[], None]:
        def call() -> None:
            self._hook.waited_since(self._since)
            self._since = 0
            method()

        return call


class GpuMonitor(_Hooks):
    """Shows a Lightning training in gpumon: its epochs, steps, phases and logged metrics, and how it ended.

    The callback publishes from every rank and saves no state in checkpoints. The class Callback of each Lightning
    package that is or will be imported is added to the base classes of this class. So it passes the type checks of both
    packages.
    """


def _adopt(callback: type) -> None:
    if not issubclass(GpuMonitor, callback):
        GpuMonitor.__bases__ = (*GpuMonitor.__bases__, callback)


class _AdoptingFinder:
    """A module finder that makes GpuMonitor a subclass of Callback if Lightning is imported after gpumon.

    This is the usual order, because sorted imports list gpumon before lightning.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of a module that defines Callback, and None for every other module.

        The spec comes from the other finders. Its loader is changed so that it adopts the class when the module is
        loaded.
        """
        if name not in _CALLBACKS:
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            with suppress(Exception):  # if the loader has no settable attributes, the constructor adopts the class
                spec.loader.exec_module = partial(_exec_and_adopt, spec.loader.exec_module)  # type: ignore[method-assign,union-attr]
        return spec


def _exec_and_adopt(exec_module: Callable[[Any], None], module: Any) -> None:
    exec_module(module)
    with suppress(Exception):  # if this Lightning is not as expected, the constructor reports the problem
        _adopt(module.Callback)


def adopt_callbacks() -> None:
    """Make GpuMonitor a subclass of the Callback of each Lightning package that has been imported.

    If neither package has been imported, import one of them. Not both are imported, because importing a package takes
    seconds. Raises FrameworkError if Lightning is missing or too old.
    """
    for module in [sys.modules[name] for name in PACKAGES if name in sys.modules] or [_import_installed()]:
        require(module.__name__.partition(".")[0], getattr(module, "__version__", ""))
        _adopt(module.Callback)


def _import_installed() -> Any:
    for name in PACKAGES:
        if find_spec(name.partition(".")[0]) is not None:
            return import_module(name)
    raise missing("lightning")


def select_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics to show, from those in `trainer.callback_metrics`.

    A metric that is logged both by step and by epoch is listed three times: without a suffix, with the suffix `_step`
    and with the suffix `_epoch`. Only the one without a suffix is returned.
    """
    return {
        name: value
        for name, value in metrics.items()
        if re.sub("_(step|epoch)$", "", name) == name or _stem(name) not in metrics
    }


def _stem(name: str) -> str:
    return name.rpartition("_")[0]


def _environment(trainer: Any) -> Mapping[str, str] | None:
    """Return the environment with the trainer's local rank and local size added. None for a single process."""
    if trainer.world_size == 1:
        return None
    local_size = trainer.world_size // max(1, trainer.num_nodes)
    return {**os.environ, "LOCAL_RANK": str(trainer.local_rank), "LOCAL_WORLD_SIZE": str(local_size)}


def _parameters(trainer: Any) -> dict[str, object]:
    """Return the training parameters. If there are several optimizers, only the first one is described."""
    optimizer = trainer.optimizers[0] if trainer.optimizers else None
    group = (getattr(optimizer, "param_groups", None) or [{}])[0]
    rate = group.get("initial_lr", group.get("lr"))
    return {
        "optimizer": type(optimizer).__name__ if optimizer is not None else None,
        "learning_rate": rate if isinstance(rate, float | int) else None,  # a tensor may be on a GPU
        "batch_size": getattr(trainer.train_dataloader, "batch_size", None),
        "precision": trainer.precision,
        "accumulate_grad_batches": trainer.accumulate_grad_batches,
        "gradient_clip_val": trainer.gradient_clip_val,
    }


def _mark_saving(trainer: Any, hooks: _Hooks | None) -> None:
    """Make the trainer record the saving of a checkpoint as a phase in the run of `hooks`.

    If `hooks` is None, undo this.
    """
    trainer.__dict__.pop("save_checkpoint", None)
    if hooks is not None:
        save = in_phase(type(trainer).save_checkpoint, lambda _: hooks._hook.phase, CHECKPOINT)
        trainer.save_checkpoint = partial(save, trainer)


def _measure_fetches(trainer: Any, hooks: _Hooks | None) -> None:
    """Measure each fetch of a training batch for `hooks`. If `hooks` is None, undo this.

    The time between callback hooks would include transfers and loggers, and a wait for the GPU if a progress bar shows
    the loss. So two methods that the loop has for its profiler are wrapped. If they do not exist, nothing is measured.
    """
    loop = getattr(getattr(trainer, "fit_loop", None), "epoch_loop", None)
    before, after = (hooks._before_fetch, hooks._after_fetch) if hooks is not None else (None, None)
    for name, wrap in (("_on_before_fetch", before), ("_on_after_fetch", after)):
        if loop is None or not hasattr(type(loop), name):
            return
        if wrap is None:
            loop.__dict__.pop(name, None)
        else:
            setattr(loop, name, wrap(getattr(loop, name)))


for _module in [sys.modules[name] for name in _CALLBACKS if name in sys.modules]:
    _adopt(_module.Callback)
sys.meta_path.insert(0, _AdoptingFinder())
