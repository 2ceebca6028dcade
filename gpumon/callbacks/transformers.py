"""A callback for `transformers.Trainer` of Transformers 5 or newer.

    from gpumon.callbacks.transformers import GpuMonitor

    trainer = Trainer(..., callbacks=[GpuMonitor()])

Epochs count from 1, as in the Trainer's table. Steps are `state.global_step`, which counts optimizer steps. If
gradients are accumulated, a step has several batches.
"""

from __future__ import annotations

import sys
from time import monotonic_ns
from typing import Any

from gpumon.callbacks.frameworks import import_framework
from gpumon.callbacks.hook import CHECKPOINT, Hook, Phase, frames, guarded, in_phase, reporting, warn_failed
from gpumon.tracking.batch_size import BatchSize

_TrainerCallback: Any = import_framework("transformers").TrainerCallback

_PATCHED = "_gpumon_patched"
_PRUNING = "_report_to_hp_search"
"""Name of the Trainer's method that prunes a trial of a hyperparameter search. To callbacks, pruning looks like the end
of the training.
"""
_TIMES = ("_runtime", "_per_second", "_time")
_LEFT_OUT = ("epoch", "total_flos", "num_input_tokens_seen")


class GpuMonitor(_TrainerCallback):  # type: ignore[misc]  # its type is unknown
    """Shows a training run of the Trainer in gpumon: its epochs, steps, evaluations and logged metrics.

    The Trainer calls the callback in every rank. It calls no callback when the training fails, so the method `train` is
    wrapped, and an exception in it ends the run. If the Trainer was imported after this object was created, `train` is
    not wrapped. After an exception, the run then ends with the process or the next training.
    """

    def __init__(self, name: str | None = None, **settings: Any) -> None:
        """`name` and `settings` (such as `devices`, `batch`, `run_id` or `log_to`) are passed to `gpumon.run`."""
        self._hook = Hook("transformers", name, **settings)
        self._previous: str | None = None
        self._phase = ""
        self._epoch = 0
        self._in_epoch = False
        self._training = self._alone = False
        self._since = 0
        self._logged = 0
        _patch_trainer()

    @guarded
    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        _patch_trainer()

    @guarded
    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._epoch, self._in_epoch, self._previous, self._phase, self._since = 0, False, None, "", 0
        self._training, self._alone, self._logged = True, False, state.global_step
        self._hook.begin(state.num_train_epochs, 1)
        self._hook.plan(state.max_steps)
        if args.world_size > 1:
            self._hook.wait_unknown()
        # `state` has the batch size in use: `auto_find_batch_size` restarts the training with a smaller batch size.
        batch = state.train_batch_size or args.train_batch_size
        self._hook.set_batch_size(BatchSize(batch * args.gradient_accumulation_steps))
        self._hook.batch_of(kwargs.get("train_dataloader"), args.gradient_accumulation_steps)
        if state.global_step:
            self._hook.at_step(state.global_step)
        self._hook.config(_parameters(args, batch // max(1, args.n_gpu)))

    @guarded
    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._training, self._previous, self._phase = False, None, ""
        if any(frames(_PRUNING)):
            self._hook.end(stopped=True)  # the Trainer then raises `TrialPruned`
        else:
            self._hook.pause()

    @guarded
    def end_with_error(self, error: BaseException) -> None:
        """End the run after an exception in `train`."""
        if self._training:
            self._training = self._in_epoch = False
            self._hook.end(error)

    @guarded
    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._end_phase()
        # `state.epoch` is a float with rounding errors. If an epoch was left early, it is too low.
        self._epoch = max(int((state.epoch or 0) + 1e-6) + 1, self._epoch + 1)
        self._hook.begin_epoch(self._epoch)
        self._in_epoch = True
        self._start_wait(args)

    @guarded
    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._in_epoch, self._since = False, 0
        self._hook.end_epoch()
        self._begin_next_phase(state, control)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        try:
            self._hook.waited_since(self._since)
            self._since = 0
            if self._previous is not None:  # the announced phase did not take place
                self._end_phase()
        except Exception as error:
            warn_failed("GpuMonitor.on_step_begin", error)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        try:
            self._hook.at_step(state.global_step)
            self._start_wait(args)
            self._begin_next_phase(state, control)
        except Exception as error:
            warn_failed("GpuMonitor.on_step_end", error)

    @guarded
    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        logs = logs or {}
        if "train_runtime" in logs:
            return  # totals of the whole training, which belong to no epoch
        self._hook.log({name: value for name, value in logs.items() if _is_shown(name)})
        if self._previous is None:
            # To log, the Trainer waited for the GPU, so the time since the step was not a wait for data.
            self._logged = state.global_step
            self._start_wait(args)
            self._begin_next_phase(state, control)

    @guarded
    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # For an evaluation that was not announced, or that runs although a checkpoint was announced, this is the first
        # call.
        if self._phase == "evaluate":
            return
        self._alone = not self._training and not self._hook.resume()
        if self._alone:  # there was no training before
            self._hook.begin(None, 1)
        self._begin_phase("evaluate")

    @guarded
    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._end_phase()
        if self._training:
            self._start_wait(args)
            self._begin_next_phase(state, control)

    @guarded
    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any, **kwargs: Any) -> None:
        self._hook.log({name: value for name, value in (metrics or {}).items() if _is_shown(name)})
        self._end_phase()

    @guarded
    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._end_phase()
        self._start_wait(args)

    def checkpoint_phase(self) -> Phase | None:
        """Return the function that begins a phase.

        None if no training runs, or if the checkpoint phase has already begun.
        """
        return self._hook.phase if self._training and self._phase != CHECKPOINT else None

    def _start_wait(self, args: Any) -> None:
        # With several ranks, this time would include a wait for other ranks, because all ranks count the tokens of a
        # step together.
        self._since = monotonic_ns() if args.world_size == 1 and self._in_epoch else 0

    def _begin_next_phase(self, state: Any, control: Any) -> None:
        """Begin the evaluation or checkpoint that the Trainer has announced, if it comes next.

        The Trainer calls no callback when an evaluation or a checkpoint begins. After a step or an epoch, it logs,
        evaluates and saves in this order, each only if `control` announces it. It logs a step only once.
        """
        if control.should_log and state.global_step > self._logged:
            return
        if control.should_evaluate and self._phase != "evaluate":
            self._begin_phase("evaluate")
        elif control.should_save and not self._phase:
            self._begin_phase(CHECKPOINT)

    def _begin_phase(self, name: str) -> None:
        self._since, self._phase = 0, name
        previous = self._hook.phase(name)
        if self._previous is None:
            self._previous = previous

    def _end_phase(self) -> None:
        self._since, self._phase = 0, ""
        if self._previous is not None:
            previous, self._previous = self._previous, None
            if self._training or self._alone:
                self._hook.phase(previous)
            else:
                self._hook.pause()
        if self._alone:
            self._alone = False
            self._hook.end()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_training": False, "_alone": False, "_previous": None, "_phase": ""}


def _monitors(trainer: Any) -> list[GpuMonitor]:
    return [callback for callback in trainer.callback_handler.callbacks if isinstance(callback, GpuMonitor)]


def _checkpoint_phase(trainer: Any) -> Phase | None:
    return next((monitor.checkpoint_phase() for monitor in _monitors(trainer)), None)


def _patch_trainer() -> None:
    """Patch the Trainer, if imported, to report exceptions and to record the saving of a checkpoint as a phase.

    Saving is patched because no callback is called before the best model is saved.
    """
    kind = getattr(sys.modules.get("transformers.trainer"), "Trainer", None)
    if kind is None or hasattr(kind, _PATCHED):
        return
    setattr(kind, _PATCHED, True)
    if hasattr(kind, "train"):
        kind.train = reporting(kind.train, _monitors)
    if hasattr(kind, "_save_checkpoint"):
        kind._save_checkpoint = in_phase(kind._save_checkpoint, _checkpoint_phase, CHECKPOINT)


def _parameters(args: Any, batch: int) -> dict[str, object]:
    """Return the training parameters. `batch`: samples per device in each forward pass."""
    precision = next((name for name in ("bf16", "fp16", "tf32") if getattr(args, name, None)), None)
    names = ("learning_rate", "gradient_accumulation_steps", "weight_decay", "warmup_steps", "max_grad_norm", "seed")
    return {
        "optimizer": str(getattr(args.optim, "value", args.optim)),
        "batch_size": batch,
        "precision": precision or "fp32",
        "lr_scheduler": str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)),
        **{name: getattr(args, name, None) for name in names},
    }


def _is_shown(name: str) -> bool:
    return name not in _LEFT_OUT and not name.endswith(_TIMES)
