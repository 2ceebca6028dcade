"""Trainings by the Trainer of Transformers, one run of gpumon for each case; prints as JSON what the hooks saw.

Beside each `GpuMonitor` stand two neighbors: the Trainer calls one just before it and one just after it.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from contextlib import suppress
from typing import Any

warnings.filterwarnings("ignore")

import torch  # noqa: E402
from torch.utils.data import Dataset, IterableDataset  # noqa: E402
from transformers import (  # noqa: E402
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from gpumon.callbacks.transformers import GpuMonitor  # noqa: E402

HOOKS = ("on_train_begin", "on_epoch_begin", "on_epoch_end", "on_evaluate", "on_save", "on_train_end")
told: dict[str, dict[str, Any]] = {}


class Before(TrainerCallback):  # type: ignore[misc]
    """Takes the time in each hook; raises or ends the epoch at a step where asked."""

    def __init__(self, times: list[tuple[str, int]], stop: int = 0, fail: int = 0) -> None:
        self.times = times
        self.stop = stop
        self.fail = fail
        self.error: BaseException = ValueError("boom")
        self.monitor: Any = None

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_epoch_stop = state.global_step == self.stop
        if state.global_step == self.fail:
            raise self.error


class After(Before):
    """The other neighbor."""


class Interrupting(After):
    """Is interrupted by the user."""

    def __init__(self, times: list[tuple[str, int]], stop: int = 0, fail: int = 0) -> None:
        super().__init__(times, stop, fail)
        self.error = KeyboardInterrupt()


class TrialPruned(Exception):  # as Optuna's
    """Ends a trial of a search."""


TrialPruned.__module__ = "optuna.exceptions"


class Pruning(After):
    """Does what `Trainer._report_to_hp_search` does for a trial that is pruned."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        def _report_to_hp_search() -> None:
            self.monitor.on_train_end(args, state, control)
            raise TrialPruned

        if state.global_step == self.fail:
            _report_to_hp_search()


def hook(name: str) -> Any:
    return lambda self, *_, **__: self.times.append((name, time.monotonic_ns()))


for name in HOOKS:
    setattr(Before, name, hook(name))


class Texts(Dataset[Any]):
    """Made-up texts that take a while to read."""

    def __init__(self, count: int, pause: float = 0) -> None:
        self.words = torch.randint(0, 50, (count, 8), generator=torch.Generator().manual_seed(0))
        self.pause = pause
        self.slept = 0

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> dict[str, Any]:
        began = time.monotonic_ns()
        time.sleep(self.pause)
        self.slept += time.monotonic_ns() - began
        return {"input_ids": self.words[index], "labels": int(self.words[index, 0] > 25)}


class Stream(IterableDataset[Any]):
    """Texts without a length."""

    pause = 0.0

    def __iter__(self) -> Any:
        return iter([Texts(1)[0]] * 64)


class Pause:
    """Makes each step of a model take as long as it is told."""

    def __init__(self, seconds: float, room: int = 0) -> None:
        self.seconds = seconds
        self.room = room
        """Samples that there is memory for, unless 0."""
        self.slept = 0

    def __call__(self, module: Any, inputs: Any, named: Any) -> None:
        if 0 < self.room < len(named["input_ids"]):
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        began = time.monotonic_ns()
        time.sleep(self.seconds)
        self.slept += time.monotonic_ns() - began


def train(
    case: str, directory: str, *, resume: str | None = None, texts: Texts | Stream | None = None,
    pause: float = 0, stop: int = 0, fail: int = 0, room: int = 0, alone: bool = False, after: type[After] = After,
    **settings: Any,
) -> Any:  # fmt: skip
    """A training whose run is called `case`, or `alone` an evaluation without one."""
    told[case] = {"before": [], "after": []}
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=50, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
            max_position_embeddings=8,
        )
    )  # fmt: skip
    work = Pause(pause, room)
    model.register_forward_pre_hook(work, with_kwargs=True)
    arguments = TrainingArguments(
        directory, per_device_train_batch_size=8, report_to=[], disable_tqdm=True, use_cpu=True,
        **{"save_strategy": "no", **settings},
    )  # fmt: skip
    neighbor, monitor = after(told[case]["after"], stop=stop, fail=fail), GpuMonitor(case)
    neighbor.monitor = monitor
    trainer = Trainer(
        model, arguments, train_dataset=texts or Texts(64), eval_dataset=Texts(16, pause=texts.pause if texts else 0),
        callbacks=[Before(told[case]["before"]), monitor, neighbor],
    )  # fmt: skip
    if alone:
        trainer.evaluate()
        return trainer
    trainer.train(resume_from_checkpoint=resume)
    told[case]["log"] = trainer.state.log_history
    told[case]["worked"] = work.slept
    return trainer


def main(directory: str) -> None:
    whole = train(
        "whole", directory, num_train_epochs=2, eval_strategy="epoch", logging_strategy="steps", logging_steps=3,
        gradient_accumulation_steps=2, save_strategy="epoch",
    )  # fmt: skip
    whole.evaluate()
    told["whole"]["predicted"] = whole.predict(Texts(8)).metrics["test_loss"]
    train("evaluation alone", directory, alone=True).evaluate()
    train("resumed", directory, resume=f"{directory}/checkpoint-4", num_train_epochs=3, gradient_accumulation_steps=2)
    train(
        "steps", directory, max_steps=11, eval_strategy="steps", eval_steps=4, logging_strategy="epoch",
        save_strategy="steps", save_steps=5, learning_rate=0.001,
    )  # fmt: skip
    train("broken off", directory, num_train_epochs=2, stop=3)
    train(
        "best", directory, num_train_epochs=2, eval_strategy="epoch", save_strategy="best",
        metric_for_best_model="loss", logging_strategy="no",
    )  # fmt: skip
    texts = Texts(16, pause=0.005)
    train("waits", directory, num_train_epochs=2, texts=texts, pause=0.03, eval_strategy="epoch", logging_strategy="no")
    told["waits"]["slept"] = texts.slept
    texts = Texts(48, pause=0.002)
    train("waits, logging each step", directory, num_train_epochs=1, texts=texts, pause=0.01, logging_steps=1)
    told["waits, logging each step"]["slept"] = texts.slept
    train("streamed", directory, texts=Stream(), max_steps=3, gradient_accumulation_steps=2)
    train("shrunk", directory, texts=Texts(16), num_train_epochs=1, auto_find_batch_size=True, room=4)
    with suppress(TrialPruned):
        train("pruned", directory, num_train_epochs=2, fail=5, after=Pruning)
    with suppress(KeyboardInterrupt):
        train("interrupted", directory, num_train_epochs=2, fail=5, after=Interrupting)
    with suppress(ValueError):
        train("caught", directory, num_train_epochs=2, fail=5)
    told["caught"]["raised"] = time.monotonic_ns()
    print(json.dumps(told), flush=True)
    train("failed", directory, num_train_epochs=2, fail=5)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except ValueError as error:
        if str(error) != "boom":
            raise
        # What Python itself does with an exception that nobody catches, but for the words and the exit code.
        sys.last_value = sys.exc_info()[1]
