"""The tags of a Lightning training, of `lightning.pytorch` or `pytorch_lightning` from 2.0 on.

    from gpumon.callbacks.lightning import GpuMonitor

    trainer = Trainer(callbacks=[GpuMonitor()])

Epochs count as Lightning counts them, from 0; steps are `trainer.global_step`, which are steps of
optimizers: several batches each where gradients are accumulated, one for each optimizer where there are several.
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
from gpumon.callbacks.hook import CHECKPOINT, Hook, failed, guarded, marked

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
_CALLBACKS = tuple(f"{package}.callbacks.callback" for package in PACKAGES)
"""Modules that define the class Callback."""


class _Tags:
    """The hooks, whichever package calls them."""

    def __init__(self, name: str | None = None, **settings: Any) -> None:
        """`name` and `settings` (`devices`, `batch`, `metrics`, `run_id`, `log_to`) are those of `gpumon.run`.

        Raises FrameworkError where Lightning is missing or older than supported.
        """
        adopt_callbacks()
        super().__init__()
        self._hook = Hook("lightning", name, **settings)
        self._before = ""
        self._step = 0
        self._in_epoch = False
        self._since = 0
        self._seen: dict[str, Any] = {}
        self._trains = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        adopt_callbacks()  # a spawned rank may come here before it has imported Lightning
        self.__dict__.update(state)

    @guarded
    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        # In each rank, once torch.distributed is up: before, nobody could say which rank this is.
        self._in_epoch, self._since = False, 0
        if stage == "fit" or not self._hook.goes_on():  # a validation or test after a training belongs to it
            self._step, self._seen, self._trains = 0, {}, stage == "fit"
            planned = trainer.max_epochs if stage == "fit" else None
            self._hook.begin(planned, 0, _environment(trainer), trainer.loggers)
        _mark_saving(trainer, self)

    @guarded
    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._leave(trainer)
        if self._trains:
            self._hook.rest()
        else:
            self._hook.end()

    @guarded
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        # Neither on_train_end nor teardown follows.
        self._leave(trainer)
        self._hook.end(exception)

    @guarded
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        _watch_fetching(trainer, self)
        if len(trainer.optimizers) == 1:  # several count several steps for the same batch
            self._hook.batch_of(trainer.train_dataloader, trainer.accumulate_grad_batches)
        self._come_to(trainer.global_step)  # after a resume: the steps before are not of its first epoch
        self._hook.plan(trainer.max_steps)
        self._hook.config(_known(trainer))

    @guarded
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._log(trainer)

    @guarded
    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._log(trainer)  # of the epoch that ended: only now has Lightning computed all of them
        self._begin_epoch(trainer)
        # The workers of the loader start before the first batch is fetched; between several ranks there is
        # also the wait for the slowest of them, which is no wait for data.
        self._since = monotonic_ns() if trainer.world_size == 1 else 0

    @guarded
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._in_epoch = False
        self._hook.end_epoch()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if not self._in_epoch:  # resumed in the middle of an epoch, whose start is not called again
            self._begin_epoch(trainer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        try:
            self._come_to(trainer.global_step)
        except Exception as error:
            failed("GpuMonitor.on_train_batch_end", error)

    @guarded
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._before = self._hook.phase("sanity" if trainer.sanity_checking else "validate")

    @guarded
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            self._log(trainer)
        self._hook.phase(self._before)

    @guarded
    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        self._before = self._hook.phase("test")

    @guarded
    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        self._log(trainer)
        self._hook.phase(self._before)

    @guarded
    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        self._before = self._hook.phase("predict")

    @guarded
    def on_predict_end(self, trainer: Any, pl_module: Any) -> None:
        self._hook.phase(self._before)

    @guarded
    def _begin_epoch(self, trainer: Any) -> None:
        self._in_epoch = True
        self._hook.begin_epoch(trainer.current_epoch)

    def _come_to(self, step: int) -> None:
        if step != self._step:
            self._step = step
            self._hook.at_step(step)

    def _log(self, trainer: Any) -> None:
        metrics = dict(trainer.callback_metrics)
        # What has not been computed again since is of an epoch before: the same object still.
        fresh = {name: value for name, value in chosen(metrics).items() if self._seen.get(name) is not value}
        self._seen = metrics
        self._hook.log(fresh)

    def _leave(self, trainer: Any) -> None:
        self._in_epoch = False
        _watch_fetching(trainer, None)
        _mark_saving(trainer, None)

    def _before_fetch(self, own: Callable[[], None]) -> Callable[[], None]:
        def call() -> None:
            own()
            self._since = self._since or monotonic_ns()

        return call

    def _after_fetch(self, own: Callable[[], None]) -> Callable[[], None]:
        def call() -> None:
            self._hook.waited_since(self._since)
            self._since = 0
            own()

        return call


class GpuMonitor(_Tags):
    """Shows a Lightning training in gpumon: its epochs, steps, phases, logged metrics and how it ended.

    Publishes from every rank. Its state needs no place in a checkpoint. The Callback class of each Lightning
    that is or will be loaded joins its bases, so that either Trainer takes it, and whoever asks for its class.
    """


def _adopt(callback: type) -> None:
    if not issubclass(GpuMonitor, callback):
        GpuMonitor.__bases__ = (*GpuMonitor.__bases__, callback)


class _Adopting:
    """Finder of modules that finds none by itself: it has GpuMonitor adopt the Callback of a Lightning that is loaded.

    Imports by their order of names put gpumon before lightning.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec that the other finders give of a module with a Callback."""
        if name not in _CALLBACKS:
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        spec = next((found for finder in others if (found := finder.find_spec(name, path, target)) is not None), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            with suppress(Exception):  # a loader that takes no attribute: an instance adopts it
                spec.loader.exec_module = partial(_loaded, spec.loader.exec_module)  # type: ignore[method-assign,union-attr]
        return spec


def _loaded(load: Callable[[Any], None], module: Any) -> None:
    load(module)
    with suppress(Exception):  # a Lightning of another shape: an instance says what is missing
        _adopt(module.Callback)


def adopt_callbacks() -> None:
    """Make GpuMonitor a Callback of each Lightning that this process has loaded, of an installed one where none is.

    They are different classes in the two packages, and importing the one that is not used takes seconds.
    Raises FrameworkError where there is none, or only one older than supported.
    """
    for module in [sys.modules[name] for name in PACKAGES if name in sys.modules] or [_import_installed()]:
        require(module.__name__.partition(".")[0], getattr(module, "__version__", ""))
        _adopt(module.Callback)


def _import_installed() -> Any:
    for name in PACKAGES:
        if find_spec(name.partition(".")[0]) is not None:
            return import_module(name)
    raise missing("lightning")


def chosen(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of `trainer.callback_metrics` that is shown.

    A metric logged both by step and by epoch stands there three times, as itself and with a suffix.
    """
    return {
        name: value
        for name, value in metrics.items()
        if re.sub("_(step|epoch)$", "", name) == name or _stem(name) not in metrics
    }


def _stem(name: str) -> str:
    return name.rpartition("_")[0]


def _environment(trainer: Any) -> Mapping[str, str] | None:
    """The environment of a rank with what only the trainer knows of it."""
    if trainer.world_size == 1:
        return None
    here = trainer.world_size // max(1, trainer.num_nodes)
    return {**os.environ, "LOCAL_RANK": str(trainer.local_rank), "LOCAL_WORLD_SIZE": str(here)}


def _known(trainer: Any) -> dict[str, object]:
    """Parameters of a training; of several optimizers the first."""
    optimizer = trainer.optimizers[0] if trainer.optimizers else None
    group = (getattr(optimizer, "param_groups", None) or [{}])[0]
    rate = group.get("initial_lr", group.get("lr"))
    return {
        "optimizer": type(optimizer).__name__ if optimizer is not None else None,
        "learning_rate": rate if isinstance(rate, float | int) else None,  # else a tensor, maybe of a GPU
        "batch_size": getattr(trainer.train_dataloader, "batch_size", None),
        "precision": trainer.precision,
        "accumulate_grad_batches": trainer.accumulate_grad_batches,
        "gradient_clip_val": trainer.gradient_clip_val,
    }


def _mark_saving(trainer: Any, tags: _Tags | None) -> None:
    """Have what the trainer saves be a phase of its own; None ends that."""
    trainer.__dict__.pop("save_checkpoint", None)
    if tags is not None:
        save = marked(type(trainer).save_checkpoint, lambda _: tags._hook.phase, CHECKPOINT)
        trainer.save_checkpoint = partial(save, trainer)


def _watch_fetching(trainer: Any, tags: _Tags | None) -> None:
    """Have `tags` see where each fetch of a training batch begins and ends; None stops that.

    From hook to hook one would also measure transfers, loggers, and a wait for the GPU where a progress bar
    shows the loss. The loop calls these two methods for its profiler; without them nothing is measured.
    """
    loop = getattr(getattr(trainer, "fit_loop", None), "epoch_loop", None)
    before, after = (tags._before_fetch, tags._after_fetch) if tags is not None else (None, None)
    for name, watch in (("_on_before_fetch", before), ("_on_after_fetch", after)):
        if loop is None or not hasattr(type(loop), name):
            return
        if watch is None:
            loop.__dict__.pop(name, None)
        else:
            setattr(loop, name, watch(getattr(loop, name)))


for _module in [sys.modules[name] for name in _CALLBACKS if name in sys.modules]:
    _adopt(_module.Callback)
sys.meta_path.insert(0, _Adopting())
