"""The tags of a training by `transformers.Trainer`, from Transformers 5 on.

    from gpumon.callbacks.transformers import GpuMonitor

    trainer = Trainer(..., callbacks=[GpuMonitor()])

Epochs count from 1, as in the Trainer's own table; steps are `state.global_step`, each an optimizer
step over all batches whose gradients are accumulated.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import Any

from gpumon.callbacks.hook import Hook, failed, guarded, missing, require

_OLDEST = 5
try:
    import transformers
except ModuleNotFoundError as error:
    if error.name != "transformers":
        raise  # it is there, and lacks something itself
    raise missing("transformers", _OLDEST) from None

require("transformers", transformers.__version__, _OLDEST)

_FIRST = ("loss", "eval_loss", "learning_rate", "grad_norm")
_TIMES = ("_runtime", "_per_second", "_time")
_LEFT_OUT = ("epoch", "total_flos", "num_input_tokens_seen")


class GpuMonitor(transformers.TrainerCallback):  # type: ignore[misc]  # typed or not, by what is installed
    """Shows a training of the Trainer in gpumon: its epochs, steps, evaluations and logged metrics.

    The Trainer calls it in every rank. It calls nothing when a training fails: the run then ends with
    the process, or with the next training.
    """

    def __init__(self, name: str | None = None, **settings: Any) -> None:
        """`name` and `settings` (`devices`, `batch`, `run_id`, `log_to`) are those of `gpumon.run`."""
        self._hook = Hook("transformers", name, **settings)
        self._before: str | None = None
        self._epoch = 0
        self._in_epoch = False
        self._since = 0

    @guarded
    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._epoch, self._in_epoch, self._before, self._since = 0, False, None, 0
        self._hook.begin(state.num_train_epochs, 1)
        if args.world_size > 1:
            self._hook.wait_unknown()
        self._hook.batch_of(kwargs.get("train_dataloader"), args.gradient_accumulation_steps)
        if state.global_step:
            self._hook.at_step(state.global_step)

    @guarded
    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._hook.end()

    @guarded
    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._end_evaluation()
        # A float that may be off in its last digit, and stays behind when an epoch is broken off.
        self._epoch = max(int((state.epoch or 0) + 1e-6) + 1, self._epoch + 1)
        self._hook.begin_epoch(self._epoch)
        self._in_epoch = True
        self._wait_begins(args)

    @guarded
    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._in_epoch, self._since = False, 0
        self._hook.end_epoch()
        if control.should_evaluate and not control.should_log:
            self._begin_evaluation()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        try:
            self._hook.waited_since(self._since)
            self._since = 0
            if self._before is not None:  # it was announced and never came
                self._end_evaluation()
        except Exception as error:
            failed("GpuMonitor.on_step_begin", error)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        try:
            self._hook.at_step(state.global_step)
            if control.should_evaluate and not control.should_log:
                self._begin_evaluation()
            self._wait_begins(args)
        except Exception as error:
            failed("GpuMonitor.on_step_end", error)

    @guarded
    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        self._since = 0
        logs = logs or {}
        if "train_runtime" in logs:
            return  # the sums over the whole training belong to no epoch
        self._hook.log({name: logs[name] for name in sorted(logs, key=_rank_of) if _is_shown(name)})
        if control.should_evaluate:
            self._begin_evaluation()
        else:
            # To log, the Trainer has waited for the GPU: what has passed since the step is no wait for data.
            self._wait_begins(args)

    @guarded
    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._before is None:
            self._begin_evaluation()

    @guarded
    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._end_evaluation()
        self._wait_begins(args)

    @guarded
    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any, **kwargs: Any) -> None:
        self._end_evaluation()

    @guarded
    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._wait_begins(args)

    def _wait_begins(self, args: Any) -> None:
        # Several ranks count the tokens of a step together before it begins: they also wait for each other.
        self._since = monotonic_ns() if args.world_size == 1 and self._in_epoch else 0

    def _begin_evaluation(self) -> None:
        # There is no hook for its beginning: it follows the end of a step or epoch, and its log, that announced it;
        # else the first batch is the first sign.
        self._since = 0
        if self._before is None:
            self._before = self._hook.phase("evaluate")

    def _end_evaluation(self) -> None:
        self._since = 0
        if self._before is not None:
            before, self._before = self._before, None
            self._hook.phase(before)


def _rank_of(name: str) -> int:
    """Few have room: the ones that everybody looks at come first."""
    return _FIRST.index(name) if name in _FIRST else len(_FIRST)


def _is_shown(name: str) -> bool:
    return name not in _LEFT_OUT and not name.endswith(_TIMES)
